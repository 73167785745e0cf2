"""Rates and the times that follow from them: the arithmetic, never the clock."""

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_diabetes, load_iris

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import AutoKernel, Gaussian, Kernel, L1Laplacian, Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.feeding.disk_rates import DiskRates, measure_disk
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning import measured_rates
from daskkern.training.planning import speeds as speeds_module
from daskkern.training.planning.measured_rates import Rates, calibrate, expected_batch, worst
from daskkern.training.planning.memory_plan import MemoryPlan, plan_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.speeds import Speeds, kernel_times
from daskkern.training.planning.timing import disk_pays, estimate
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from tests.support.plans import planned_settings, planned_source

RATES = Rates(5.0, 4.0, 1.0, 1e10, 1e10, 1e10, 1e9, 1e-6, 1e-5, 500, DiskRates("/x", 10**12, 1e9, 1e9, False), 0.5)
WAYS: list[tuple[BasisSpec, Solver[object]]] = [
    (Landmarks(300), EigenPro()),
    (Landmarks(300), EigenPro(projection="eigenpro")),
    (AllRows(), EigenPro()),
    (Landmarks(300), NystromSGD(mode="streamed")),
]
ways = pytest.mark.parametrize(("basis", "solver"), WAYS, ids=["landmarks", "iterative", "all_rows", "nystrom"])


def _plan(basis: BasisSpec, solver: Solver[object], **changes: object) -> MemoryPlan:
    return upper_bound_plan(planned_source(), planned_settings(basis, solver, **changes), 1, 2, 8 << 30)


@pytest.mark.one_in(3)
@ways
def test_a_calibration_measures_everything(basis: BasisSpec, solver: Solver[object]) -> None:
    plan = _plan(basis, solver)
    rates = calibrate(planned_source(), planned_settings(basis, solver), plan.sizes, 1, with_disk=False)
    for field in fields(Rates):
        if field.name != "disk":
            assert getattr(rates, field.name) > 0, field.name
    assert rates.disk is None
    time = estimate(plan, rates, 3)
    assert 0 < time.total < 1000
    assert 1 <= time.batch <= plan.sizes.m


@pytest.mark.parametrize(("solver", "timed"), [(EigenPro(), L1Laplacian), (Falkon(), Laplacian)])
def test_where_rows_will_choose_the_slowest_kernel_is_timed(
    solver: Solver[object], timed: type[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Kernel] = []

    def speeds(kernel: Kernel, *others: object) -> Speeds:
        seen.append(kernel)
        return Speeds(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr(measured_rates, "speeds", speeds)
    settings = replace(planned_settings(Landmarks(300), solver), kernel=AutoKernel())
    calibrate(planned_source(), settings, _plan(Landmarks(300), solver).sizes, 1, with_disk=False)
    assert [type(kernel) for kernel in seen] == [timed]


def test_a_call_that_is_held_up_for_seconds_is_not_taken_for_all_of_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with ten times as many processes as cores, one call of some hundred microseconds took 16 s."""
    now, held_up = 0.0, False

    def clock() -> float:
        nonlocal now
        now += 0.005
        return now

    class HeldUp(Gaussian):
        def matvec(self, X: HostArray, Z: HostArray, A: HostArray, *others: object, **how: object) -> HostArray:
            nonlocal now, held_up
            if len(A) == 16 and not held_up:
                now, held_up = now + 16.0, True
            return super().matvec(X, Z, A, *others, **how)

    monkeypatch.setattr(speeds_module, "time", SimpleNamespace(perf_counter=clock))
    X = np.random.default_rng(0).standard_normal((200, 4))
    times = kernel_times(HeldUp(1.0), X, X, 1)
    assert held_up
    assert times.call < 0.1


def test_a_rank_without_columns_is_timed_with_some(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def speeds(kernel: Kernel, left: object, Z: HostArray, *others: object) -> Speeds:
        seen.append(len(Z))
        return Speeds(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr(measured_rates, "speeds", speeds)
    sizes = _plan(*WAYS[0]).sizes
    assert sizes is not None
    for share in (None, 0.0):
        calibrate(
            planned_source(), planned_settings(*WAYS[0]), replace(sizes, ranks=2, share=share), 1, with_disk=False
        )
    assert replace(sizes, ranks=2, share=0.0).own == 0
    assert seen[1] >= seen[0] > 1


@pytest.mark.parametrize("n_features", [40, 300])
def test_the_expected_batch_of_features_is_near_that_of_the_set_up(n_features: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6))
    source = ArraySource(X, X[:, 0], None, SourceInfo(*X.shape, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(2.0), Squared(), RandomFeatures(n_features), EigenPro(), 1e-5)
    plan = upper_bound_plan(source, settings, 1, 2, 8 << 30)
    assert plan.sizes is not None
    found = calibrate(source, settings, plan.sizes, 1, with_disk=False).batch
    made = prepare(source, settings, False).plan.batch_size
    assert made / 3 < found < 3 * made


def test_the_disk_is_measured_without_leaving_anything(tmp_path: Path) -> None:
    rates = measure_disk(str(tmp_path))
    assert rates is None or (rates.write > 0 and rates.read > 0)
    assert list(tmp_path.iterdir()) == []
    assert measure_disk(str(tmp_path / "absent")) is None


def test_the_expected_batch_is_near_the_one_that_the_set_up_finds() -> None:
    source, settings = planned_source(), replace(planned_settings(Landmarks(1000), EigenPro()), kernel=Gaussian(2.0))
    sizes = upper_bound_plan(source, settings, 1, 2, 8 << 30).sizes
    found = prepare(source, settings, False).plan.batch_size
    assert found / 3 <= expected_batch(settings.kernel, source.X, sizes) <= 3 * found
    assert expected_batch(settings.kernel, source.X, replace(sizes, auto_batch=False, m=77)) == 77


@pytest.mark.one_in(5)
@pytest.mark.parametrize("X", [load_diabetes().data, load_iris().data, np.linspace(0, 1, 200)[:, None], np.eye(3)])
@pytest.mark.parametrize("kernel", [Gaussian("median"), Gaussian(100.0), Laplacian("median")])
def test_the_expected_batch_of_a_small_store_is_near_too(X: np.ndarray, kernel: Kernel) -> None:
    X = X.astype(np.float32)
    source = ArraySource(X, X[:, 0], None, SourceInfo(*X.shape, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(kernel, Squared(), Landmarks(1000), EigenPro(), device="cpu")
    sizes = upper_bound_plan(source, settings, 1, 2, 8 << 30).sizes
    found = prepare(source, settings, False).plan.batch_size
    assert found / 2 <= expected_batch(kernel.resolve(X), X, sizes) <= 2 * found


def test_the_expected_batch_of_sparse_rows_is_that_of_dense_ones() -> None:
    source, settings = planned_source(), planned_settings(Landmarks(1000), EigenPro())
    sizes = upper_bound_plan(source, settings, 1, 2, 8 << 30).sizes
    X = np.where(source.X > 0.5, source.X, 0).astype(np.float32)
    dense = expected_batch(Gaussian(2.0), X, sizes)
    assert expected_batch(Gaussian(2.0), csr_array(X), sizes) == pytest.approx(dense, rel=0.01)


def test_one_row_has_a_batch_of_one() -> None:
    X = np.ones((1, 2), np.float32)
    source = ArraySource(X, X[:, 0], None, SourceInfo(1, 2, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(1.0), Squared(), Landmarks(10), EigenPro(), device="cpu")
    assert expected_batch(Gaussian(1.0), X, upper_bound_plan(source, settings, 1, 2, 8 << 30).sizes) == 1


@ways
def test_stages_add_up(basis: BasisSpec, solver: Solver[object]) -> None:
    plan = _plan(basis, solver, keep_blocks="never")
    for epochs in (1, 2, 7):
        time = estimate(plan, RATES, epochs)
        setup, first, later = (stage.seconds for stage in time.stages)
        assert time.total == pytest.approx(setup + first + (epochs - 1) * later)
    for stage in time.stages:
        assert sum(seconds for _, seconds in stage.parts) == pytest.approx(stage.seconds, rel=1e-9)
        assert all(seconds >= 0 for _, seconds in stage.parts)


@ways
@pytest.mark.parametrize("name", ["matvec_ns", "block_ns", "product_ns", "row_s", "call_s"])
def test_slower_machines_never_take_less(basis: BasisSpec, solver: Solver[object], name: str) -> None:
    plan = _plan(basis, solver, keep_blocks="never")
    slower = replace(RATES, **{name: 3 * getattr(RATES, name)})
    assert estimate(plan, slower, 5).total >= estimate(plan, RATES, 5).total


@ways
def test_kept_blocks_save_the_kernel_work_of_later_epochs(basis: BasisSpec, solver: Solver[object]) -> None:
    never, kept = _plan(basis, solver, keep_blocks="never"), _plan(basis, solver)
    assert kept.kept
    saved = estimate(never, RATES, 2).stages[2].seconds - estimate(kept, RATES, 2).stages[2].seconds
    assert saved > 0
    parts = dict(estimate(kept, RATES, 2).stages[2].parts)
    assert parts["kernel blocks"] == 0
    on_disk = replace(never, disk=never.kept_wanted)
    assert estimate(kept, RATES, 2).stages[2].seconds <= estimate(on_disk, RATES, 2).stages[2].seconds


def test_samples_of_large_stores_are_not_read_whole() -> None:
    plan = _plan(Landmarks(300), EigenPro(), keep_blocks="never")
    assert plan.sizes is not None
    large = replace(plan, sizes=replace(plan.sizes, n=10**9))
    near, far = (dict(estimate(each, RATES, 1).stages[0].parts)["reading"] for each in (plan, large))
    assert near == pytest.approx(5 * 3000 * RATES.row_s)
    assert far < 1e-3 * 5 * 10**9 * RATES.row_s


def test_the_disk_pays_when_reading_is_cheaper_and_was_measured() -> None:
    sizes = plan_memory(_plan(Landmarks(300), EigenPro()).sizes, 8 << 30).sizes
    assert not disk_pays(sizes, RATES, 10)  # 4 ns to read, 4 ns to compute
    fast = replace(RATES, disk=replace(RATES.disk, read=8e9))
    assert disk_pays(sizes, fast, 10)
    assert not disk_pays(sizes, fast, 2)  # written for one reading
    assert not disk_pays(sizes, replace(fast, disk=replace(fast.disk, cached=True)), 10)
    assert not disk_pays(sizes, replace(fast, disk=None), 10)


def test_the_slowest_rank_decides() -> None:
    other = replace(
        RATES, matvec_ns=9.0, memory=1e8, batch=100, disk=DiskRates("/y", 10**9, 3e9, 5e8, True), seconds=0.2
    )
    slow = worst([RATES, other])
    assert (slow.matvec_ns, slow.memory, slow.batch, slow.seconds) == (9.0, 1e8, 100, 0.5)
    assert slow.disk == DiskRates("/y", 10**9, 1e9, 5e8, True)
    assert worst([RATES, replace(RATES, disk=None)]).disk is None
