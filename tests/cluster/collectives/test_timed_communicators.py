"""The clock of the collectives tells waiting for slower ranks from what the exchange costs."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.cluster.collectives import timed
from daskkern.cluster.collectives.timed import TimedCommunicator, Times
from tests.support.threads import run_threads

COST = 0.5
_APART = 128.0
"""So far do the clocks of two hosts differ."""


class Meeting:
    """A communicator in a time of its own: an allreduce ends COST after the last rank has come, on every rank."""

    def __init__(self, inner: Communicator, clock: threading.local) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        ahead = _APART * self._inner.rank
        moments = self._inner.allgather(np.array([self._clock.now - ahead]))
        self._clock.now = float(max(moment[0] for moment in moments)) + COST + ahead
        return self._inner.allreduce(array)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> threading.local:
    """The time of each thread, which goes on when it is told to."""
    made = threading.local()
    monkeypatch.setattr(timed, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


def run(size: int, clock: threading.local, seconds: Callable[[int, int], float], fold: int = 100) -> Times:
    """Return the times of six steps, of which step i takes rank r ``seconds(r, i)``."""

    def work(inner: Communicator) -> Times:
        clock.now = _APART * inner.rank
        comm = TimedCommunicator(Meeting(inner, clock), fold)  # type: ignore[arg-type]
        for step in range(6):
            clock.now += seconds(inner.rank, step)
            assert comm.allreduce(np.ones(2))[0] == size
        return comm.times()

    results = run_threads(size, work)
    assert len(set(results)) == 1
    return results[0]


def test_one_rank_waits_for_nobody(clock: threading.local) -> None:
    assert run(1, clock, lambda rank, step: 2.0) == Times(12.0, 0.0, 0.0, 0.0, 0.0, 6 * COST, 6)


def test_equal_ranks_only_exchange(clock: threading.local) -> None:
    assert run(3, clock, lambda rank, step: 1.0) == Times(6.0, 0.0, 0.0, 0.0, 0.0, 6 * COST, 6)


def test_ranks_that_are_slow_in_turn_all_wait(clock: threading.local) -> None:
    found = run(3, clock, lambda rank, step: 3.0 if step % 3 == rank else 1.0)
    assert found == Times(10.0, 0.0, 0.0, 8.0, 8.0, 6 * COST, 6)


def test_one_slow_rank_is_waited_for_by_the_others(clock: threading.local) -> None:
    found = run(3, clock, lambda rank, step: 4.0 if rank == 2 else 1.0)
    assert found == Times(6 * 6.0 / 3, 0.0, 0.0, 6 * 6.0 / 3, 18.0, 6 * COST, 6)


def test_reading_and_checkpoints_are_told_from_computing(clock: threading.local) -> None:
    def work(inner: Communicator) -> Times:
        clock.now = _APART * inner.rank
        comm = TimedCommunicator(Meeting(inner, clock))  # type: ignore[arg-type]
        for _ in range(3):
            with comm.reading():
                clock.now += 2.0 if inner.rank else 0.0
            clock.now += 1.0
            comm.allreduce(np.ones(2))
        with comm.checkpointing():
            comm.allreduce(np.ones(2))
            clock.now += 0.25
        return comm.times()

    found = run_threads(2, work)
    assert found == [Times(3.0, 3.0, COST + 0.25, 3.0, 6.0, 3 * COST, 3)] * 2


def test_long_epochs_are_summed_up_on_the_way(clock: threading.local) -> None:
    found = run(3, clock, lambda rank, step: 4.0 if rank == 2 else 1.0, fold=4)
    assert found == Times(6 * 6.0 / 3, 0.0, 0.0, 6 * 6.0 / 3, 18.0, 6 * COST, 6)


def test_results_and_counts_are_those_of_the_communicator_inside() -> None:
    def work(inner: Communicator) -> tuple[float, int, int, int]:
        comm = TimedCommunicator(inner)
        total = float(comm.allreduce(np.ones(10))[0])
        assert len(comm.allgather(np.ones(1))) == 2
        assert comm.broadcast(np.array([comm.rank]), 1)[0] == 1
        comm.barrier()
        return total, comm.bytes_sent, inner.bytes_sent, comm.times().collectives

    assert run_threads(2, work) == [(2.0, 96, 96, 4)] * 2


def test_a_clock_can_be_started_anew() -> None:
    comm = TimedCommunicator(SerialCommunicator())
    comm.allreduce(np.ones(1))
    comm.begin()
    assert comm.times().collectives == 0
