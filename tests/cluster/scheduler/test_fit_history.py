"""What the scheduler remembers of a fit stays within bounds, holds every epoch, and forgets what is done again."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.cluster.scheduler.downsampling import Downsampled
from daskkern.cluster.scheduler.fits import FitRecord
from daskkern.cluster.scheduler.history import FitHistory
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.events import (
    BatchFinished,
    CheckpointWritten,
    EpochFinished,
    FitResumed,
    FitStarted,
    RankReported,
    to_message,
)


@given(st.integers(0, 400), st.integers(2, 40))
def test_a_thinned_line_keeps_its_ends_and_its_order(number: int, most: int) -> None:
    line = Downsampled(most)
    for i in range(number):
        line.add((i,))
    kept = [point[0] for point in line.points]
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    if number:
        assert (kept[0], kept[-1]) == (0, number - 1)
        assert max((b - a for a, b in pairwise(kept)), default=0) <= max(1, 4 * number // most)


def _record(events: list[Any], max_epochs: int = 10) -> FitRecord:
    record = FitRecord(FitMetadata("0123456789ab", "eigenpro", max_epochs=max_epochs))
    for event in events:
        record.note(to_message(event))
    return record


def test_every_epoch_is_kept_and_batches_are_thinned() -> None:
    events: list[Any] = [FitStarted("eigenpro", 100, 3, 1, 20, 2, 300)]
    for epoch in range(1, 301):
        events += [BatchFinished(epoch, batch, 20, 1 / epoch, 100.0) for batch in range(1, 21)]
        events.append(EpochFinished(epoch, 1 / epoch, 1.0))
    reported = _record(events).history.to_message()
    assert [epoch["epoch"] for epoch in reported["epochs"]] == list(range(1, 301))
    batches = reported["batches"]
    assert 900 < len(batches["loss"]) <= 2000
    assert (batches["epoch"][-1], batches["batch"][-1]) == (300, 20)
    assert len({len(column) for column in batches.values()}) == 1
    assert [notice["event"] for notice in reported["notices"]] == ["FitStarted"]


def test_what_is_done_again_is_forgotten() -> None:
    events = [
        FitStarted("eigenpro", 100, 3, 1, 20, 3, 10),
        RankReported(2, "c", "CPU", 1, 2),
        *(BatchFinished(1, batch, 8, 0.5, 100.0) for batch in range(1, 9)),
        EpochFinished(1, 0.5, 1.0),
        BatchFinished(2, 1, 8, 0.4, 100.0),
        FitResumed(1, 4, 2),
    ]
    reported = _record(events).history.to_message()
    assert reported["batches"]["batch"] == [1, 2, 3, 4]
    assert reported["epochs"] == []
    assert reported["ranks"] == []


def test_a_start_that_is_told_again_forgets_nothing_until_a_batch_goes_back() -> None:
    start = FitStarted("eigenpro", 100, 3, 1, 20, 2, 10)
    events = [start, *(BatchFinished(epoch, 1, 1, 0.5, 100.0) for epoch in range(1, 52))]
    events += [EpochFinished(epoch, 0.5, 1.0) for epoch in range(1, 52)]
    again = _record([*events, RankReported(2, "c", "CPU", 1, 2), start, FitResumed(51, 0, 2)]).history.to_message()
    assert [epoch["epoch"] for epoch in again["epochs"]] == list(range(1, 51))
    assert again["batches"]["epoch"] == list(range(1, 51))
    assert again["ranks"] == []
    second = _record([*events, start, BatchFinished(1, 1, 1, 0.5, 100.0)]).history.to_message()
    assert (second["epochs"], second["batches"]["epoch"]) == ([], [1])


def test_checkpoints_do_not_push_other_events_out() -> None:
    events: list[Any] = [FitStarted("eigenpro", 100, 3, 1, 20, 2, 300)]
    events += [CheckpointWritten(1, batch, 0.5) for batch in range(1, 6001)]
    events += [FitResumed(1, 6000, 1), CheckpointWritten(1, 6001, 0.5)]
    record = _record(events)
    reported = record.history.to_message()
    kinds = ["FitStarted", "CheckpointWritten", "FitResumed", "CheckpointWritten"]
    assert [notice["event"] for notice in reported["notices"]] == kinds
    assert [event["event"] for event in record.events] == kinds
    assert reported["notices"][1]["batch"] == 6000
    assert reported["checkpoints"] == {"count": 6001, "seconds": pytest.approx(3000.5)}


def test_whoever_follows_hears_of_every_last_checkpoint() -> None:
    registry = FitRegistry()
    record = registry.record(FitMetadata("0123456789ab", "eigenpro"))
    heard, since = [], 0
    for batch in range(1, 4):
        record.note(to_message(CheckpointWritten(1, batch, 0.5)))
        reported = registry.events("0123456789ab", since)
        heard, since = heard + [event["batch"] for event in reported["events"]], reported["next"]
    assert heard == [1, 2, 3]
    assert registry.events("0123456789ab", since)["events"] == []


def test_ranks_are_bounded_and_epochs_thinned_when_a_fit_ends() -> None:
    events: list[Any] = [RankReported(rank, "a", "CPU", 1, 2) for rank in (-1, 0, 10**12)]
    events += [EpochFinished(epoch, 0.5, 1.0) for epoch in range(1, 9002)]
    record = _record(events)
    assert [rank["rank"] for rank in record.history.glance()["ranks"]] == [0]
    record.end("finished")
    epochs = [epoch["epoch"] for epoch in record.history.to_message()["epochs"]]
    assert (epochs[0], epochs[-1]) == (1, 9001)
    assert 1000 < len(epochs) <= 2001


def test_reports_of_ranks_do_not_push_other_events_out() -> None:
    record = _record([RankReported(i % 2, "ab"[i % 2], "CPU", i, 2) for i in range(9)] + [CheckpointWritten(1, 2, 0.1)])
    assert [event["event"] for event in record.events] == ["CheckpointWritten"]
    assert [rank["memory_bytes"] for rank in record.history.to_message()["ranks"]] == [8, 7]


def test_the_time_left_follows_from_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("daskkern.cluster.scheduler.history.time", SimpleNamespace(time=lambda: clock[0]))
    history = FitHistory()
    assert history.seconds_left(10) != history.seconds_left(10)  # NaN
    for batch in range(1, 9):
        clock[0] += 2.0
        history.note(to_message(BatchFinished(1, batch, 8, 0.5, 100.0)))
    assert history.seconds_left(10) == pytest.approx(9 * 8 * 2.0)
    assert history.seconds_left(0) != history.seconds_left(0)
    history.note(to_message(BatchFinished(1, 9, 8, 0.5, 100.0, "duality gap", 0.1, 0.001)))
    assert history.seconds_left(1) != history.seconds_left(1)  # steps after the last batch


def test_the_cost_of_a_formation_is_the_time_until_its_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("daskkern.cluster.scheduler.history.time", SimpleNamespace(time=lambda: now[0]))
    kept = FitRecord(FitMetadata("0123456789ab", "flights"))
    assert kept.prospects() == (float("inf"), 0.0)
    for started, first in ((1000.0, 1004.0), (1100.0, 1101.5)):
        now[0] = started
        kept.history.forming()
        for later in (0.0, 1.0):
            now[0] = first + later
            kept.note(to_message(BatchFinished(1, 1, 5, 1.0, 10.0)))
        assert kept.prospects() == (float("inf"), first - started)
