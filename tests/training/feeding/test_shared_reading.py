"""Fits whose rows are read once have the bits of fits whose ranks each read them, and read a store once an epoch."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.cluster.gang.rank_context import Regroup
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import SpecError
from daskkern.events import EpochTimed, Event, StageFinished
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import SGD, EigenPro, NystromSGD, Solver
from daskkern.training.feeding.shared_reading import ReadingTimes, SharedReading, reading_times
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.settings import FitSettings
from tests.support.fits import Fit, Runs, toy_settings
from tests.support.threads import reading_threads, run_threads

N, D = 160, 5


def _store(place: Path, kind: str) -> str:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 200, (N, D)).astype(np.uint8)
    if kind == "sparse":
        X = scipy.sparse.csr_array(np.where(X > 90, X / 100, 0).astype(np.float32))
    classes = ("low", "high") if kind != "targets" else None
    task = "regression" if classes is None else "classification"
    dense = X.toarray() if kind == "sparse" else X
    y = (
        np.stack([np.sin(dense[:, k] / 40) for k in range(3)], 1)
        if classes is None
        else (dense[:, 0] > dense[:, 1]) * 1
    )
    with StoreWriter(
        place, n_features=D, task=task, classes=classes, has_weight=kind != "dense", chunk_rows=20,
        sparse=kind == "sparse", dtype="float32" if kind == "sparse" else "uint8", n_targets=1 if classes else 3,
    ) as writer:  # fmt: skip
        weight = None if kind == "dense" else 0.5 + rng.uniform(size=N)
        writer.append(X, y, weight)
    return str(place)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("shared")
    return {kind: _store(place / kind, kind) for kind in ("dense", "sparse", "targets")}


def _fit(
    store: str,
    basis: BasisSpec | None = None,
    solver: Solver[object] | None = None,
    loss: Loss | None = None,
    *,
    reshuffle: bool = False,
    **changes: object,
) -> Fit:
    settings = toy_settings(basis or Landmarks(40), solver or EigenPro(), loss or Logistic(), "float32")
    made = Fit.of(StoreSource.at(store), replace(settings, batch_size=8, max_epochs=2, **changes))  # type: ignore[arg-type]
    assert isinstance(made.prepared.plan, BatchPlan)
    plan = replace(made.prepared.plan, reshuffle=reshuffle, piece_rows=0, window_rows=40)
    assert plan.n_windows > 3
    return replace(made, prepared=replace(made.prepared, plan=plan))


def _once(made: Fit) -> Fit:
    return replace(made, settings=replace(made.settings, reading="once"))


def _same(made: Fit, ranks: int, **how: object) -> None:
    each, once = made.results(ranks, **how), _once(made).results(ranks, **how)  # type: ignore[arg-type]
    for mine, theirs in zip(each, once, strict=True):
        np.testing.assert_array_equal(mine.coef, theirs.coef)
        np.testing.assert_array_equal(mine.ids, theirs.ids)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("reshuffle", [False, True], ids=["same batches", "reshuffled"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "targets"])
def test_models_are_the_same_bits(stores: dict[str, str], kind: str, reshuffle: bool, ranks: int) -> None:
    loss = Squared() if kind == "targets" else Logistic()
    _same(_fit(stores[kind], loss=loss, reshuffle=reshuffle), ranks)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("basis", "solver", "changes"),
    [
        (AllRows(), EigenPro(), {}),
        (Landmarks(40), EigenPro(window=2), {}),
        (Landmarks(40), NystromSGD(mode="streamed"), {}),
        (Landmarks(40), SGD(), {}),
        (Landmarks(40), EigenPro(), {"sampling": "weighted"}),
        (Landmarks(40), EigenPro(), {"early_stopping": EarlyStopping(0.2, 2)}),
    ],
    ids=["all rows", "window", "nystrom", "sgd", "weighted", "early stopping"],
)
def test_methods_are_the_same_bits(
    stores: dict[str, str], basis: BasisSpec, solver: Solver[object], changes: dict[str, object]
) -> None:
    _same(_fit(stores["sparse"], basis, solver, **changes), 2)


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_cache_blocks_of_different_batches_get_their_rows(stores: dict[str, str], ranks: int) -> None:
    """With 3 ranks, their parts of the 40 columns differ, and so does what fits the cache."""
    made = _fit(stores["dense"])
    whole = made.results(ranks)[0].coef
    for kept in (17 * 8 * 14 * 4, 10 * 8 * 14 * 4):
        _same(made, ranks, kept=kept)
        np.testing.assert_array_equal(made.results(ranks, kept=kept)[0].coef, whole)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("reshuffle", [False, True])
def test_rows_that_are_kept_are_read_in_the_first_epoch_only(
    stores: dict[str, str], reshuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seen = _fit(stores["dense"], reshuffle=reshuffle), _counted(monkeypatch)
    for ranks in (2, 3):
        _same(made, ranks, keeps_rows=True)
        seen.clear()
        _once(made).results(ranks, keeps_rows=True)
        assert set(_stretches(seen)) == {1}


@pytest.mark.long
def test_a_store_is_read_once_an_epoch_whatever_the_number_of_ranks(
    stores: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, seen = _fit(stores["dense"]), _counted(monkeypatch)
    for ranks in (2, 3, 4):
        seen.clear()
        _once(made).results(ranks)
        assert set(_stretches(seen)) == {made.settings.max_epochs}
        seen.clear()
        made.results(ranks)
        assert set(_stretches(seen)) == {ranks * made.settings.max_epochs}


def _counted(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how often windows' chunks of 20 rows are read from now on."""
    seen: Counter[int] = Counter()
    lock, read = threading.Lock(), StoreRows.read

    def counted(self: StoreRows, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        if fields & (Fields.X | Fields.y) == Fields.X | Fields.y:  # not the points of the model
            with lock:
                seen.update(range(start // 20, -(-stop // 20)))
        return read(self, start, stop, fields)

    monkeypatch.setattr(StoreRows, "read", counted)
    return seen


def _stretches(seen: Counter[int]) -> Iterator[int]:
    assert sorted(seen) == list(range(N // 20))
    yield from seen.values()


@pytest.mark.parametrize("reshuffle", [False, True])
def test_a_run_that_is_cut_in_mid_epoch_goes_on_with_the_same_bits(stores: dict[str, str], reshuffle: bool) -> None:
    before = reading_threads()
    made = _fit(stores["targets"], loss=Squared(), reshuffle=reshuffle)
    whole = made.results(2)
    runs = Runs(_once(made))
    for until in (5, 25):
        assert all(isinstance(result, Regroup) for result in runs.run(2, until=until))
    for mine, theirs in zip(runs.run(2), whole, strict=True):
        np.testing.assert_array_equal(mine.coef, theirs.coef)  # type: ignore[union-attr]
    assert reading_threads() <= before


def test_no_thread_is_left_by_a_fit_that_is_stopped(stores: dict[str, str]) -> None:
    before = reading_threads()
    steps: list[Event] = []
    made = _once(_fit(stores["dense"]))
    found = made.results(2, listen=steps.append, stop=lambda: len(steps) > 20)
    assert {result.reason for result in found} == {"interrupted"}
    assert reading_threads() <= before


def test_waiting_for_rows_of_another_rank_counts_as_reading(
    stores: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoreRows.read

    def slowly(self: StoreRows, *arguments: object) -> object:
        threading.Event().wait(0.02)
        return read(self, *arguments)  # type: ignore[arg-type]

    heard: list[Event] = []
    made = _once(_fit(stores["dense"]))
    monkeypatch.setattr(StoreRows, "read", slowly)
    made.results(2, listen=heard.append)
    for times in (event for event in heard if isinstance(event, EpochTimed)):
        assert times.reading >= 0.04  # at least the first window, on both ranks
        assert times.reading > times.waiting
    detail = [event.detail for event in heard if isinstance(event, StageFinished) and event.stage == "reading"]
    assert detail == ["each window by one of 2 ranks, as requested"]


def test_the_faster_way_is_chosen_and_reported(stores: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = reading_threads()
    rows = StoreSource.at(stores["dense"]).open("float32")
    plan = BatchPlan(N, 20, 8, window_rows=40)
    settings = toy_settings(Landmarks(40), EigenPro())

    def chosen(comm: Communicator) -> tuple[bool, list[str]]:
        heard: list[str] = []
        reading = SharedReading(TimedCommunicator(comm), settings, False, lambda event: heard.append(event.detail))
        stream = reading.batches(rows, plan, 1, ALL, 0, lambda index: True)
        first = next(stream).block
        shared = "daskkern-share" in [thread.name for thread in threading.enumerate()]
        comm.barrier()
        stream.close()  # type: ignore[attr-defined]
        assert first.X is not None
        return shared, heard

    for times, once in ((ReadingTimes(0.1, 0.01, 2), True), (ReadingTimes(0.1, 0.06, 2), False)):
        found = partial(lambda times, *_: times, times)
        monkeypatch.setattr("daskkern.training.feeding.shared_reading.reading_times", found)
        for shared, heard in run_threads(2, chosen, channels=True):
            assert shared == once
            assert len(heard) == 1
            assert ("by one of 2 ranks" in heard[0]) == once
            assert ("by all 2 ranks" in heard[0]) != once
    assert reading_threads() <= before


def test_times_are_the_same_on_all_ranks(stores: dict[str, str]) -> None:
    for kind in ("dense", "sparse", "targets"):
        rows = StoreSource.at(stores[kind]).open("float32")
        found = run_threads(3, partial(_times, rows), channels=True)
        assert len(set(found)) == 1
        assert found[0] is not None
        assert found[0].each > 0 < found[0].sent
        assert found[0].once == found[0].each / 3 + found[0].sent
    assert run_threads(2, partial(_times, rows)) == [None, None]


def _times(rows: Rows, comm: Communicator) -> ReadingTimes | None:
    return reading_times(TimedCommunicator(comm), rows, BatchPlan(N, 20, 8, window_rows=40), 1, ALL)


def test_settings_are_checked() -> None:
    settings = toy_settings(Landmarks(40), EigenPro())
    with pytest.raises(SpecError, match="got reading='twice'; expected one of auto, once, each"):
        replace(settings, reading="twice")
    with pytest.raises(SpecError, match="got reading='once' with virtual_shards=2"):
        replace(settings, reading="once", virtual_shards=2)
    assert isinstance(replace(settings, reading="each", virtual_shards=2), FitSettings)
