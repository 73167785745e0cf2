"""The clock of the collectives tells waiting for slower ranks from what the exchange costs."""

import time

import numpy as np
import pytest

from daskkern.backend import timed
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.threads import run_threads
from daskkern.backend.timed import TimedCommunicator, Times


class Slow(SerialCommunicator):
    """A single rank whose collectives take their time."""

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return array


def test_one_rank_waits_for_nobody() -> None:
    comm = TimedCommunicator(Slow())
    for _ in range(3):
        time.sleep(0.01)
        comm.allreduce(np.ones(2))
    times = comm.times()
    assert times.collectives == 3
    assert times.waiting == times.longest_wait == 0
    assert times.exchanging >= 0.06
    assert times.working >= 0.03


def test_the_slower_rank_is_waited_for_by_the_others_and_all_are_told_the_same() -> None:
    def work(inner: Communicator) -> tuple[Times, float]:
        comm = TimedCommunicator(inner)
        comm.barrier()
        comm.begin()
        begun = time.perf_counter()
        for step in range(6):
            time.sleep(0.03 if step % 3 == comm.rank else 0.01)  # each is the slowest in turn
            assert comm.allreduce(np.ones(2))[0] == 3
            comm.allgather(np.ones(1))
            comm.broadcast(np.ones(1))
        took = time.perf_counter() - begun
        return comm.times(), took

    results = run_threads(3, work)
    assert len({times for times, _ in results}) == 1
    times, took = results[0]
    assert times.collectives == 18
    total = times.working + times.waiting + times.exchanging
    assert total == pytest.approx(took, rel=0.1, abs=0.01)
    assert times.working >= 6 * (0.03 + 0.01 + 0.01) / 3
    assert times.waiting >= 0.9 * 6 * (0.02 + 0.02) / 3
    assert times.longest_wait >= times.waiting


def test_long_epochs_are_summed_up_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "_FOLD", 7)

    def work(inner: Communicator) -> int:
        comm = TimedCommunicator(inner)
        for _ in range(50):
            comm.allreduce(np.ones(1))
        return comm.times().collectives

    assert run_threads(2, work) == [50, 50]


def test_results_and_counts_are_those_of_the_communicator_inside() -> None:
    def work(inner: Communicator) -> tuple[float, int, int]:
        comm = TimedCommunicator(inner)
        total = float(comm.allreduce(np.ones(10))[0])
        return total, comm.bytes_sent, inner.bytes_sent

    assert run_threads(2, work) == [(2.0, 80, 80)] * 2
