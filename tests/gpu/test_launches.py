"""How much a GPU is given for one step: where steps are short, that is what takes the time."""

from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest

from daskkern.basis import BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.kernels.engines import block_products as products
from daskkern.linalg import column_blocks
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import launches_counted
from tests.support.gpu.fake_gpu import FakeGpu

N, M, P = 1600, 160, 1536
BLOCKS = 24  # of the columns


@pytest.fixture
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


def _fit(
    solver: Solver[Any], basis: BasisSpec, epochs: int, dtype: Literal["float32", "float64"] = "float32"
) -> tuple[FitResult, Counter[str]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 6))
    info = SourceInfo(N, 6, "classification", (0, 1, 2), Scaling(), None, 1, True)
    source = ArraySource(X, np.digitize(X[:, 0], [-0.5, 0.5]), None, info)
    settings = FitSettings(
        Gaussian(3.0), SquaredHinge(), basis, solver, max_epochs=epochs, batch_size=M, device="gpu",
        keep_blocks="never", dtype=dtype,
    )  # fmt: skip
    with launches_counted() as names:
        result = fit(source, settings)
    return result, Counter(names)


def _per_step(solver: Solver[Any], basis: BasisSpec) -> Counter[str]:
    """Return the launches of a step, by name, as the mean over an epoch without the set-up."""
    few, many = (_fit(solver, basis, epochs)[1] for epochs in (2, 4))
    return Counter({name: round((many[name] - few[name]) / (2 * N / M)) for name in many})


SOLVERS = {
    "eigenpro": (EigenPro(window=10, averaging=0.0), 130),
    "nystrom_sgd": (NystromSGD(mode="streamed"), 65),
}


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SOLVERS)
def test_a_step_takes_few_launches_however_many_blocks_there_are(
    cupy_here: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver, most = SOLVERS[name]
    assert len(column_blocks(P, 0, 1).blocks) == BLOCKS
    joined = _per_step(solver, Landmarks(P))
    assert joined.total() <= most, joined
    monkeypatch.setattr(products, "SHORT", 0)
    apart = _per_step(solver, Landmarks(P))
    assert apart.total() >= joined.total() + 3 * BLOCKS, apart


@pytest.mark.repeated
def test_the_model_is_the_same_in_one_launch_and_in_many(
    cupy_here: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In float64: the projection onto close landmarks multiplies the rounding of float32 sums.
    joined, in_one = _fit(EigenPro(), Landmarks(P), 3, "float64")
    monkeypatch.setattr(products, "SHORT", 0)
    apart, in_many = _fit(EigenPro(), Landmarks(P), 3, "float64")
    assert in_one.total() < in_many.total()
    X = np.random.default_rng(1).standard_normal((50, 6))
    one, other = joined.model.scores(X), apart.model.scores(X)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(other).max())
