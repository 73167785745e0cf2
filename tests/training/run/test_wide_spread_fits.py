"""Fits on float32 rows that spread widely against the length scale, such as raw tables."""

from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, Landmarks, NystromFeatures
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.data.schema.schema import Scaling
from daskkern.events import silent
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import PCG, SGD, BlockCD, Direct, EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from tests.support.threads import run_threads

rng = np.random.default_rng(0)
N, D = 500, 6


def _table(spread: float) -> tuple[HostArray, HostArray]:
    """Return rows (N, D) in pairs of neighbours, and targets that neighbours share."""
    half = rng.standard_normal((N // 2, D))
    half[:, 2] *= spread
    X = np.concatenate([half, half + 0.3 * rng.standard_normal(half.shape)])
    y = np.tile(np.sin(3 * half[:, 0]) + half[:, 1], 2)
    return X.astype(np.float32), y


WIDE, Y = _table(1e4)
CASES = {
    "eigenpro on landmarks": (Landmarks(200), EigenPro()),
    "eigenpro on all rows": (AllRows(), EigenPro()),
    "falkon": (Landmarks(200), Falkon()),
    "direct": (Landmarks(200), Direct()),
    "direct on all rows": (AllRows(), Direct()),
    "pcg": (AllRows(), PCG()),
    "nystrom": (Landmarks(200), NystromSGD()),
    "sgd": (AllRows(), SGD()),
    "features": (NystromFeatures(150), SGD()),
    "block_cd": (AllRows(), BlockCD()),
}


@pytest.mark.long
@pytest.mark.one_in(7)
@pytest.mark.parametrize("case", CASES)
def test_scores_in_float32_are_those_of_float64(case: str, tmp_path: Path) -> None:
    basis, solver = CASES[case]
    found, expected = (_fitted(dtype, basis, solver) for dtype in ("float32", "float64"))
    scores = expected.predict(WIDE.astype(np.float64))
    close = 0.02 * float(np.abs(scores).max())
    np.testing.assert_allclose(found.predict(WIDE), scores, atol=close)
    found.save(tmp_path / "model.zarr")
    np.testing.assert_allclose(daskkern.load(tmp_path / "model.zarr").predict(WIDE), found.predict(WIDE), rtol=1e-6)


def _fitted(dtype: str, basis: BasisSpec, solver: Solver) -> KernelRegressor:
    alpha = 1e-3
    model = KernelRegressor(Laplacian(10.0), "squared", basis, solver, alpha=alpha, max_epochs=5, dtype=dtype)
    return model.fit(WIDE.astype(dtype), Y)


@pytest.mark.long
def test_a_raw_table_with_one_heavy_feature_is_fitted() -> None:
    X = rng.exponential(1.0, (1500, 8))
    X[:, 5] = np.exp(rng.normal(6, 2, 1500))
    label = (X[:, 0] + np.log(X[:, 5]) > 7).astype(int)
    model = KernelClassifier(Laplacian(10.0), basis=Landmarks(1000), solver=EigenPro()).fit(
        X[:1000].astype("f4"), label[:1000]
    )
    assert model.score(X[1000:].astype("f4"), label[1000:]) > 0.8


@pytest.mark.long
@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("basis", [AllRows(), Landmarks(200)], ids=["all rows", "landmarks"])
def test_any_number_of_ranks_makes_the_same_model(basis: BasisSpec) -> None:
    info = SourceInfo(N, D, "regression", None, Scaling(), None, 1, True)
    source = ArraySource(WIDE, Y[:, None], None, info)
    settings = FitSettings(Laplacian(10.0), Squared(), basis, EigenPro(), 1e-3, max_epochs=3, device="cpu")
    prepared = prepare(source, settings, held_out=False)
    assert prepared.basis.placement.wide
    memory = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)

    def work(comm: Communicator) -> FitRankResult:
        found = run_rank(
            comm, RankTask(FitJob(source, settings), prepared, memory, 1), RankContext(silent, lambda: False)
        )
        assert isinstance(found, FitRankResult)
        return found

    def scores(ranks: int) -> HostArray:
        kernel = prepared.basis.kernel
        return sum(kernel.block(WIDE, found.points) @ found.coef for found in run_threads(ranks, work))

    alone = scores(1)
    np.testing.assert_allclose(scores(3), alone, rtol=0, atol=1e-4 * np.abs(alone).max())
