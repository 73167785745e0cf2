"""The serial and the threaded communicator keep one contract."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.summation import add_in_order
from daskkern.errors import CommunicatorClosedError
from tests.support.threads import ThreadedCommunicator, run_threads

each_size = pytest.mark.parametrize("size", [1, 2, 3])


@each_size
def test_allreduce_is_the_sum_with_the_same_bits_everywhere(size: int) -> None:
    parts = np.random.default_rng(0).standard_normal((size, 4, 3)).astype(np.float32)
    expected = add_in_order(list(parts))
    for total in run_threads(size, lambda comm: comm.allreduce(parts[comm.rank])):
        assert total.dtype == np.float32
        np.testing.assert_array_equal(total, expected)


@each_size
def test_allgather_keeps_rank_order_and_lengths(size: int) -> None:
    for gathered in run_threads(size, lambda comm: comm.allgather(np.full((comm.rank, 2), comm.rank))):
        assert [part.tolist() for part in gathered] == [[[r, r]] * r for r in range(size)]


@each_size
def test_broadcast_gives_everyone_the_array_of_the_root(size: int) -> None:
    root = size - 1
    for array in run_threads(size, lambda comm: comm.broadcast(np.array([comm.rank]), root)):
        assert array.tolist() == [root]


@each_size
def test_inputs_stay_as_they_were_and_results_are_ones_own(size: int) -> None:
    def work(comm: Communicator) -> list[float]:
        mine = np.full(2, float(comm.rank))
        total = comm.allreduce(mine)
        gathered = comm.allgather(mine)
        if comm.size > 1:
            total += 100
            gathered[0][:] = -1
        comm.barrier()
        return mine.tolist()

    assert run_threads(size, work) == [[float(rank)] * 2 for rank in range(size)]


@settings(max_examples=10, deadline=None)
@given(size=st.integers(1, 4), rounds=st.integers(1, 20))
def test_collectives_one_after_the_other_are_never_mixed_up(size: int, rounds: int) -> None:
    def work(comm: Communicator) -> list[int]:
        return [int(comm.allreduce(np.array([k * (comm.rank + 1)]))[0]) for k in range(rounds)]

    expected = [k * size * (size + 1) // 2 for k in range(rounds)]
    assert run_threads(size, work) == [expected] * size


def test_bytes_sent_counts_the_payload_to_every_peer() -> None:
    def work(comm: Communicator) -> int:
        comm.allreduce(np.zeros(10, np.float32))
        return comm.bytes_sent

    assert run_threads(3, work) == [80, 80, 80]
    assert run_threads(1, work) == [0]


def test_the_first_failure_stops_all_ranks_and_is_what_the_caller_sees() -> None:
    stopped = []

    def work(comm: Communicator) -> None:
        if comm.rank == 1:
            raise ZeroDivisionError("rank 1 has a bug")
        try:
            comm.barrier()
        except CommunicatorClosedError as error:
            stopped.append(str(error))
            raise

    with pytest.raises(ZeroDivisionError, match="rank 1 has a bug"):
        run_threads(3, work)
    assert len(stopped) == 2
    assert all("rank 1 failed: rank 1 has a bug" in reason for reason in stopped)


def test_a_peer_that_never_comes_ends_in_an_error_not_in_a_wait() -> None:
    alone = ThreadedCommunicator.group(2, timeout_s=0.05)[0]
    with pytest.raises(CommunicatorClosedError, match=r"a rank did not arrive within 0\.05 s"):
        alone.allreduce(np.zeros(1))
    with pytest.raises(CommunicatorClosedError):
        alone.barrier()  # and stays closed


def test_abort_wakes_a_rank_that_waits() -> None:
    waiting, other = ThreadedCommunicator.group(2)
    seen: list[str] = []

    def wait() -> None:
        try:
            waiting.barrier()
        except CommunicatorClosedError as error:
            seen.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.02)
    other.abort("the user changed their mind")
    thread.join(10)
    assert seen == ["the collective was aborted: the user changed their mind"]


def test_a_single_rank_has_no_other_root() -> None:
    with pytest.raises(ValueError, match="expected 0, the only rank"):
        SerialCommunicator().broadcast(np.zeros(1), root=1)
