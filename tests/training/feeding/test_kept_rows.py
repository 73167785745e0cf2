"""Rows that fit host memory are read once: later epochs cost no reading, and the numbers are the same."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from daskkern import KernelClassifier, Landmarks
from daskkern.arrays import Array
from daskkern.backend.uploads import Arrived, Uploads
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.events import EpochFinished, Event
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.training.feeding import feed as feeding
from daskkern.training.feeding.block_cache_policy import with_blocks
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.measured_rates import Rates
from daskkern.training.planning.memory_plan import ALL_ROWS, ROWS_SHARE, MemoryPlan, plan_memory, row_bytes
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.plans import CENTRES

GB = 10**9
MANY = replace(CENTRES, n=20_000_000)  # blocks of 400 GB a rank, rows of 9 GB


@pytest.mark.parametrize("budget", [12 * GB, 16 * GB, 20 * GB, 40 * GB, 400 * GB])
def test_rows_are_kept_where_they_fit_the_plan(budget: int) -> None:
    plan = plan_memory(MANY, budget, epochs=5)
    every_row = row_bytes(MANY)
    assert plan.keeps_rows == (every_row <= ROWS_SHARE * budget)
    assert dict(plan.items).get(ALL_ROWS, 0) == every_row * plan.keeps_rows
    assert plan.total + plan.kept <= budget
    if budget < 40 * GB:  # there is only one pass, so that nothing is read again
        assert not plan_memory(MANY, budget).keeps_rows


def test_rows_are_not_kept_where_blocks_take_their_place() -> None:
    sizes = replace(CENTRES, window=1, p=100, s=80, q=10, n=2_000_000)
    plan = plan_memory(sizes, 3 * GB, keep="memory", epochs=5)
    assert plan.kept
    assert not plan.keeps_rows
    assert not plan.with_rows().keeps_rows
    assert plan_memory(replace(sizes, window=4), 3 * GB, keep="memory", epochs=5).keeps_rows  # temporary centres


def test_rows_make_room_for_blocks_on_their_way_to_disk() -> None:
    plan = plan_memory(replace(MANY, m=20_000), 19 * GB, epochs=5)
    assert plan.keeps_rows
    tight = replace(plan, budget=plan.total + 1)
    assert not tight.on_disk().keeps_rows
    assert ALL_ROWS not in dict(tight.on_disk().items)
    assert plan.on_disk().keeps_rows == (plan.on_disk().total <= plan.budget)


def test_rows_stay_on_the_host_of_a_device_that_they_do_not_fit() -> None:
    sizes = replace(MANY, device="gpu")
    plan = plan_memory(sizes, 40 * GB, 12 * GB, epochs=5)
    assert plan.keeps_rows
    assert plan.rows_on_host
    assert ALL_ROWS in dict(plan.items)
    assert ALL_ROWS not in dict(plan.device_items)
    small = plan_memory(replace(sizes, n=1_000_000), 40 * GB, 12 * GB, epochs=5)
    assert small.keeps_rows
    assert not small.rows_on_host
    assert ALL_ROWS in dict(small.device_items)


def test_rows_are_kept_where_blocks_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = replace(CENTRES, window=1, p=100, s=80, q=10, n=2_000_000)
    plan = plan_memory(sizes, 3 * GB, keep="auto", epochs=5)
    assert plan.kept
    monkeypatch.setattr("daskkern.training.feeding.block_cache_policy.memory_pays", lambda *_: False)
    monkeypatch.setattr("daskkern.training.feeding.block_cache_policy.entry_ns", lambda *_: 1.0)
    settings = FitSettings(Gaussian(1.0), SquaredHinge(), Landmarks(10), EigenPro())
    rates: Rates = SimpleNamespace(fresh=1e9)  # type: ignore[assignment]
    moved = with_blocks(plan, settings, 0, rates)
    assert not moved.kept
    assert moved.keeps_rows


@pytest.fixture(params=["dense", "sparse"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    sparse = request.param == "sparse"
    with StoreWriter(
        tmp_path / "s", n_features=6, task="classification", classes=(0, 1), chunk_rows=100, sparse=sparse,
        scale="maxabs",
    ) as writer:  # fmt: skip
        writer.append(scipy.sparse.csr_array(np.where(X > 0, X, 0)) if sparse else X, y)
    return tmp_path / "s"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("on_host", [False, True])
def test_the_second_epoch_reads_nothing(store: Path, on_host: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.planning.memory_plan.KEEP_SHARE", 0.0)  # not by the rule for what is small
    reads: list[int] = [0]
    read = StoreRows.read

    def counted(self: StoreRows, *arguments: object) -> object:
        reads[0] += 1
        return read(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreRows, "read", counted)
    if on_host:
        monkeypatch.setattr(feeding, "Feed", _host_feed())
        monkeypatch.setattr("daskkern.training.run.rank.Feed", feeding.Feed)
    found = {}
    for share in (0.0, 0.5):
        monkeypatch.setattr("daskkern.training.planning.memory_plan.ROWS_SHARE", share)
        after: list[int] = []

        def listen(event: Event, after: list[int] = after) -> None:
            if isinstance(event, EpochFinished):
                after.append(reads[0])

        settings = FitSettings(
            Gaussian(2.0), SquaredHinge(), Landmarks(50), EigenPro(), max_epochs=3, batch_size=40, keep_blocks="never"
        )
        result = fit(StoreSource.at(str(store)), settings, listener=listen)
        found[share] = result.model.coef
        assert (after[2] == after[1] == after[0]) == (share > 0)
    np.testing.assert_array_equal(found[0.0], found[0.5])


def _host_feed() -> type[feeding.Feed]:
    """Return a feed whose kept rows are on the host, as with a device that they do not fit."""

    class HostFeed(feeding.Feed):
        def __init__(self, memory: MemoryPlan, *rest: object) -> None:
            super().__init__(replace(memory, rows_on_host=memory.keeps_rows), *rest)  # type: ignore[arg-type]

    return HostFeed


def test_batches_go_to_the_device_each_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    class Counting(Uploads):
        def begin(self, *arrays: Array) -> Arrived:
            copied.append(arrays[0].shape[0])
            return super().begin(*arrays)

    monkeypatch.setattr("daskkern.training.planning.memory_plan.KEEP_SHARE", 0.0)
    monkeypatch.setattr(feeding, "Uploads", Counting)
    monkeypatch.setattr("daskkern.training.run.rank.Feed", _host_feed())
    KernelClassifier(kernel=Gaussian(2.0), basis=Landmarks(50), max_epochs=3, keep_blocks="never").fit(str(store))
    assert sum(copied) == 3 * 1000


@pytest.mark.one_in(3)
@pytest.mark.parametrize("solver", [EigenPro(), NystromSGD()], ids=["eigenpro", "nystrom-sgd"])
def test_a_block_takes_the_place_of_the_one_before(
    solver: Solver, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[tuple[int, int], int]] = []
    feeds: list[feeding.Feed] = []
    fresh = False

    class ValidationResult(feeding.Feed):
        def _overwritten(self, shape: tuple[int, int]) -> Array:
            feeds.append(self)
            if fresh:
                return np.empty(shape, np.float32)
            block = super()._overwritten(shape)
            places.append((shape, block.ctypes.data))
            return block

    monkeypatch.setattr("daskkern.training.run.rank.Feed", ValidationResult)
    settings = FitSettings(
        Gaussian(2.0), SquaredHinge(), Landmarks(50), solver, max_epochs=2, batch_size=350, keep_blocks="never"
    )
    again = fit(StoreSource.at(str(store)), settings).model.coef
    fresh = True
    np.testing.assert_array_equal(fit(StoreSource.at(str(store)), settings).model.coef, again)
    for epoch in (places[: len(places) // 2], places[len(places) // 2 :]):
        assert len({place for _, place in epoch}) <= 2  # the first may have been the short one
        assert {shape for shape, _ in epoch} == {(334, 50), (333, 50)}
    assert all(feed._memory is None for feed in feeds)
