"""Whole fits on a GPU, or on its stand-in, against the same fits on the CPU."""

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.basis import (
    AllRows,
    BasisSpec,
    DoublyStochastic,
    Landmarks,
    LocallyLinear,
    LocalRows,
    NystromFeatures,
    RandomFeatures,
)
from daskkern.cli.main import main
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.data.schema.schema import Scaling
from daskkern.data.storage.writer import StoreWriter
from daskkern.events import EpochFinished, Event, StageFinished, silent
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import AutoKernel, Gaussian, Kernel, L1Laplacian, Laplacian
from daskkern.linalg import column_blocks, distributed_factor
from daskkern.losses import Logistic, Loss, Squared, SquaredHinge
from daskkern.models import KernelModel, load_model, save_model
from daskkern.solvers import (
    BSGD,
    NYTRO,
    PCG,
    SDCA,
    SGD,
    AdaGrad,
    ASkotch,
    BlockCD,
    Direct,
    DoublySGD,
    EigenPro,
    Falkon,
    LocalRidge,
    Norma,
    NystromSGD,
    Solver,
)
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from tests.support.gpu.fake_gpu import FakeGpu
from tests.support.threads import ThreadedCommunicator, run_threads

N, D = 130, 4
_GAUSSIAN = Gaussian(2.0)


@dataclass(frozen=True)
class Case:
    """One way to fit; `far` rows are so far from the origin that they are moved before distances."""

    basis: BasisSpec
    solver: Solver[Any]
    loss: Loss
    far: bool = True
    kernel: Kernel = _GAUSSIAN


CASES = {
    "eigenpro, all rows": Case(AllRows(), EigenPro(), Squared()),
    "eigenpro, momentum": Case(AllRows(), EigenPro(momentum=0.5), Squared(), far=False, kernel=Laplacian(3.0)),
    "eigenpro 3": Case(Landmarks(40), EigenPro(window=1), Logistic()),
    "eigenpro 4, exact": Case(Landmarks(40), EigenPro(window=3), Squared()),
    "eigenpro 4, iterative": Case(Landmarks(40), EigenPro(projection="eigenpro", window=2), SquaredHinge()),
    "eigenpro, random features": Case(RandomFeatures(40), EigenPro(), Squared()),
    "eigenpro, nystrom features": Case(NystromFeatures(40), EigenPro(), Squared()),
    "nystrom_sgd": Case(Landmarks(40), NystromSGD(), SquaredHinge()),
    "falkon": Case(Landmarks(40), Falkon(), Squared()),
    "falkon, logistic": Case(Landmarks(40), Falkon(), Logistic()),
    "nytro": Case(Landmarks(40), NYTRO(), Logistic()),
    "adagrad": Case(RandomFeatures(40), AdaGrad(l1=1e-3), Squared()),
    "doubly_sgd": Case(DoublyStochastic(16), DoublySGD(), Logistic()),
    "askotch": Case(AllRows(), ASkotch(), Squared()),
    "block_cd": Case(AllRows(), BlockCD(), Squared()),
    "bsgd": Case(Landmarks(40), BSGD(), Squared()),
    "direct": Case(Landmarks(40), Direct(), Squared(), far=False),
    "local_ridge": Case(LocalRows(20), LocalRidge(), Squared()),
    "local_ridge, trees": Case(LocalRows(20, n_trees=2), LocalRidge(), Squared()),
    "locally linear": Case(LocallyLinear(8, 3), SGD(), Squared()),
    "norma": Case(AllRows(), Norma(), Squared()),
    "pcg": Case(AllRows(), PCG(), Squared()),
    "sdca": Case(AllRows(), SDCA(), Squared()),
    "sgd": Case(RandomFeatures(40), SGD(), Squared()),
}
DISTRIBUTED = (
    "eigenpro, all rows",
    "eigenpro 4, exact",
    "eigenpro 4, iterative",
    "nystrom_sgd",
    "falkon",
    "doubly_sgd",
    "nytro",
)


def _source(far: bool) -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = np.digitize(X[:, 0] + np.sin(2 * X[:, 1]), [-0.7, 0.7])
    info = SourceInfo(N, D, "classification", ("low", "middle", "high"), Scaling(), None, 1, True)
    return ArraySource(X + 300 * far, y, rng.uniform(0.2, 2.0, N), info)


def _settings(case: Case, device: str, **others: Any) -> FitSettings:
    given = {"max_epochs": 2, "batch_size": 32, "dtype": "float64", **others}
    return FitSettings(case.kernel, case.loss, case.basis, case.solver, 1e-3, device=device, **given)


def _agree(found: HostArray, expected: HostArray, tolerance: float = 1e-7) -> None:
    assert type(found) is np.ndarray
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def _scores(model: KernelModel, far: bool) -> HostArray:
    return model.scores(np.asarray(_source(far).X))


@pytest.mark.long
@pytest.mark.one_in(5)
@pytest.mark.parametrize("kernel", [Laplacian("median"), L1Laplacian("median"), AutoKernel()], ids=lambda one: one.name)
def test_a_metric_learned_on_the_gpu_is_that_of_the_cpu(xp: ModuleType, kernel: Kernel) -> None:
    case = replace(CASES["eigenpro 4, exact"], kernel=kernel)
    learning = FeatureLearning(n_iter=2, n_landmarks=40)
    models = [fit(_source(False), _settings(case, where, learn_features=learning)).model for where in ("cpu", "gpu")]
    _agree(models[1].feature_importances(), models[0].feature_importances(), 1e-5)
    assert np.ptp(models[0].feature_importances()) > 0.1
    _agree(_scores(models[1], False), _scores(models[0], False), 1e-4)


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", CASES)
def test_a_model_trained_on_the_gpu_is_that_of_the_cpu(xp: ModuleType, name: str) -> None:
    case = CASES[name]
    source = _source(case.far)
    expected = fit(source, _settings(case, "cpu"))
    found = fit(source, _settings(case, "gpu"))
    _agree(_scores(found.model, case.far), _scores(expected.model, case.far))
    losses = [[epoch.loss for epoch in result.epochs] for result in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=1e-7)


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["eigenpro, all rows", "eigenpro 4, exact"])
def test_float32_fits_agree_as_far_as_float32_can(xp: ModuleType, name: str) -> None:
    case = replace(CASES[name], far=False, kernel=Laplacian(3.0))
    source = _source(far=False)
    found, expected = (fit(source, _settings(case, device, dtype="float32")).model for device in ("gpu", "cpu"))
    assert found.coef.dtype == np.float32
    _agree(_scores(found, far=False), _scores(expected, far=False), 1e-3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["eigenpro 4, exact", "eigenpro, all rows"])
def test_validation_and_early_stopping_take_place_on_the_gpu(xp: ModuleType, name: str) -> None:
    case = CASES[name]
    source, stopping = _source(case.far), EarlyStopping(fraction=0.2, patience=1)
    results = [fit(source, _settings(case, device, max_epochs=4, early_stopping=stopping)) for device in ("gpu", "cpu")]
    found, expected = ([(e.validation_loss, e.validation_score) for e in result.epochs] for result in results)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    _agree(_scores(results[0].model, case.far), _scores(results[1].model, case.far))


@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("keep", ["memory", "disk"])
def test_kept_blocks_give_the_model_of_blocks_made_anew(xp: ModuleType, keep: str, tmp_path: Path) -> None:
    case = CASES["eigenpro, all rows"]
    source, settings = _source(case.far), _settings(case, "gpu", scratch=str(tmp_path))
    plan = MemoryPlan(items=(), kept=1 << 24, kept_wanted=1 << 24, keeps_rows=keep == "memory", budget=1 << 40)
    if keep == "disk":
        plan = replace(plan, kept=0, disk=1 << 24)
    _agree(_coef(_ranks(source, settings, 1, plan)), fit(source, settings).model.coef)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["eigenpro 4, exact", "falkon"])
def test_rows_that_stay_on_the_host_go_to_the_gpu_batch_by_batch(xp: ModuleType, name: str) -> None:
    case = CASES[name]
    source, settings = _source(case.far), _settings(case, "gpu")
    plan = MemoryPlan((), kept=0, kept_wanted=0, keeps_rows=True, budget=1 << 40, rows_on_host=True)
    _agree(_coef(_ranks(source, settings, 1, plan)), fit(source, settings).model.coef)


def _ranks(
    source: ArraySource, settings: FitSettings, size: int, plan: MemoryPlan, listen: Callable[[Event], None] = silent
) -> list[FitRankResult]:
    prepared = prepare(source, settings, False)

    def work(comm: Communicator) -> FitRankResult:
        task = RankTask(FitJob(source, settings), prepared, plan, 1)
        result = run_rank(comm, task, RankContext(listen if comm.rank == 0 else silent, lambda: False))
        assert isinstance(result, FitRankResult)
        return result

    return run_threads(size, work)


def _coef(results: list[FitRankResult]) -> HostArray:
    coef = np.empty((sum(result.ids.size for result in results), results[0].coef.shape[1]), results[0].coef.dtype)
    for result in results:
        coef[result.ids] = result.coef
    return coef


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", DISTRIBUTED)
def test_two_ranks_on_one_gpu_make_the_model_of_one(xp: ModuleType, name: str) -> None:
    case = CASES[name]
    source, settings = _source(case.far), _settings(case, "gpu", max_epochs=1)
    plan = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
    reported: list[Event] = []
    one, two = (_coef(_ranks(source, settings, size, plan, reported.append)) for size in (1, 2))
    _agree(two, one)
    notes = [event.detail for event in reported if isinstance(event, StageFinished) and event.stage == "collectives"]
    assert notes == ["collectives are staged through host memory: ranks 0 and 1 share a GPU, which NCCL does not allow"]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("first", "name"), [*(("gpu", name) for name in DISTRIBUTED), ("cpu", DISTRIBUTED[0]), ("cpu", DISTRIBUTED[1])]
)
def test_a_run_is_continued_on_the_other_device(xp: ModuleType, name: str, first: str, tmp_path: Path) -> None:
    case, other = CASES[name], {"gpu": "cpu", "cpu": "gpu"}[first]
    source, where = _source(case.far), str(tmp_path / "checkpoint")
    ended = 1 if name != "doubly_sgd" else 2
    policy = CheckpointPolicy(checkpoint=where, checkpoint_s=0.0, commit_s=0.0)
    fit(source, _settings(case, first, max_epochs=ended), policy=policy)
    copied = str(shutil.copytree(where, tmp_path / "copied"))
    went_on, stayed = (
        fit(source, _settings(case, device), policy=replace(policy, checkpoint=place, resume=True))
        for device, place in ((other, where), (first, copied))
    )
    assert [epoch.epoch for epoch in went_on.epochs] == [1, 2]
    _agree(_scores(went_on.model, case.far), _scores(stayed.model, case.far))


def test_a_model_is_saved_on_one_device_and_scores_on_the_other(xp: ModuleType, tmp_path: Path) -> None:
    case = CASES["eigenpro 4, exact"]
    model = fit(_source(far=True), _settings(case, "gpu", dtype="float32")).model
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(_scores(loaded, far=True), _scores(model, far=True))
    placed = loaded.on("gpu")
    _agree(_scores(placed, far=True), _scores(loaded, far=True), 1e-4)
    assert (placed.predict(np.asarray(_source(far=True).X)) == loaded.predict(np.asarray(_source(far=True).X))).all()
    assert loaded.on("cpu") is loaded
    travelled = pickle.loads(pickle.dumps(placed))
    np.testing.assert_array_equal(_scores(travelled, far=True), _scores(loaded, far=True))


def test_losses_of_the_epochs_are_told(xp: ModuleType) -> None:
    reported: list[Event] = []
    fit(_source(far=True), _settings(CASES["eigenpro, all rows"], "gpu"), listener=reported.append)
    losses = [event.loss for event in reported if isinstance(event, EpochFinished)]
    assert len(losses) == 2
    assert losses[1] < losses[0]


def test_the_commands_score_and_predict_on_the_gpu(
    xp: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = np.asarray(_source(far=True).X), np.asarray(_source(far=True).y)
    names = ("low", "middle", "high")
    with StoreWriter(
        tmp_path / "s.zarr", n_features=D, dtype="float32", task="classification", classes=names
    ) as writer:
        writer.append(X.astype(np.float32), y)
    save_model(fit(_source(far=True), _settings(CASES["falkon"], "cpu", dtype="float32")).model, tmp_path / "m.zarr")
    found = []
    for device in ("cpu", "gpu"):
        out = tmp_path / f"{device}.zarr"
        words = [str(tmp_path / "m.zarr"), str(tmp_path / "s.zarr"), "--device", device]
        for command in (["score", *words, "--json"], ["predict", *words, "--out", str(out)]):
            with pytest.raises(SystemExit) as ended:
                main(command)
            assert not ended.value.code
        found.append(np.asarray(zarr.open_group(out, mode="r")["scores"]))
    accuracies = [json.loads(line)["accuracy"] for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert accuracies[0] == accuracies[1]
    _agree(found[1], found[0], 1e-3)


def test_virtual_ranks_compute_on_the_device_of_their_rank(stand_in: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []

    init = EigenPro.init

    def noted(self: EigenPro, *given: Any) -> Any:
        found.append(xp.cuda.runtime.getDevice())
        return init(self, *given)

    monkeypatch.setattr(EigenPro, "init", noted)
    source, settings = _source(far=True), _settings(CASES["eigenpro 3"], "gpu", virtual_shards=3)
    plan = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
    with stand_in.installed() as xp:
        xp.cuda.runtime.setDevice(2)
        task = RankTask(FitJob(source, settings), prepare(source, settings, False), plan, 1)
        run_rank(SerialCommunicator(), task, RankContext())
        xp.cuda.runtime.setDevice(0)
    assert found == [2, 2, 2]


def test_a_rank_without_columns_sends_and_receives_arrays_of_the_gpu(xp: ModuleType) -> None:
    K, h = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0], [-1.0]])

    def work(comm: Communicator) -> tuple[HostArray, HostArray]:
        assert isinstance(comm, ThreadedCommunicator)
        layout = column_blocks(2, comm.rank, comm.size)
        panels = [xp.asarray(K[layout.blocks[k].start :, layout.blocks[k]].copy()) for k in layout.own]
        factor = distributed_factor(panels, layout, 0.0, comm, "float64", xp)
        solved = factor.solve(xp.asarray(h[layout.columns()]), comm)
        assert set(comm.sent) == {xp.ndarray}
        return layout.columns(), solved.get()

    x = np.zeros((2, 1))
    for columns, values in run_threads(3, work):
        x[columns] = values
    np.testing.assert_allclose(K @ x, h, atol=1e-12)
