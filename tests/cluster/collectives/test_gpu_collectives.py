"""Collectives over NCCL on stand-ins for GPUs: the numbers of the host's, deadlines, aborts, and the host instead.

Nothing here has run on a GPU.
"""

import importlib
import inspect
import re
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskkern.backend.communicator import Communicator
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.gpus import gpu_collectives
from daskkern.cluster.collectives.nccl import GATHER_BYTES, NcclCommunicator
from daskkern.cluster.collectives.timed import TimedCommunicator, Times
from daskkern.errors import CommunicatorClosedError, DivergenceError
from tests.support.gpu.fake_cupy import Fake, Killed
from tests.support.threads import run_threads

SHAPES = [(), (1,), (7,), (5, 3), (2, 3, 4), (0, 3)]


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def cupy(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = fake.module()
    for name, part in fake.modules.items():
        monkeypatch.setitem(sys.modules, name, part)
    return module


def on_gpus(
    size: int,
    cupy: ModuleType,
    work: Callable[[Communicator, str], Any],
    *,
    share: bool = False,
    timeout_s: float = 60,
    gather_bytes: int = GATHER_BYTES,
) -> list[Any]:
    """Run `work` on threads with a GPU each, or one for all."""

    def rank_main(host: Communicator) -> Any:
        cupy.cuda.runtime.setDevice(0 if share else host.rank)
        with gpu_collectives(host, cupy, gather_bytes) as (comm, note):
            return work(comm, note)

    return run_threads(size, rank_main, timeout_s)


def contribution(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.asarray(1000 * np.random.default_rng([rank, len(shape)]).standard_normal(shape)).astype(dtype)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("way", ["gathered", "in segments"])
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_the_numbers_are_those_of_the_host_to_the_bit(
    way: str, size: int, dtype: str, cupy: ModuleType, fake: Fake
) -> None:
    def work(comm: Communicator, note: str) -> list[Any]:
        assert isinstance(comm, NcclCommunicator)
        assert note == "collectives run over NCCL 23203"
        found = []
        for shape in SHAPES:
            mine = cupy.asarray(contribution(comm.rank, shape, dtype))
            kept = mine.get()
            total, last = comm.allreduce(mine), comm.broadcast(mine, comm.size - 1)
            parts = comm.allgather(mine) if shape else []
            uneven = comm.allgather(cupy.asarray(np.full((comm.rank, 2), comm.rank, dtype)))
            comm.barrier()
            for array in (total, last, *parts, *uneven):
                assert isinstance(array, cupy.ndarray)
                array[...] = array
            np.testing.assert_array_equal(mine.get(), kept)
            found.append([total.get(), last.get(), [p.get() for p in parts], [p.get() for p in uneven]])
        strided = cupy.asarray(np.arange(24.0).reshape(4, 6))[::2, ::-3]
        np.testing.assert_array_equal(comm.allreduce(strided).get(), comm.size * np.asarray(strided))
        assert comm.bytes_sent > 0
        assert set(comm.ways) == {"nccl" if way == "gathered" else "nccl, segments"}
        np.testing.assert_array_equal(comm.allreduce(np.ones(2)), np.full(2, comm.size))  # host arrays stay there
        return found

    results = on_gpus(size, cupy, work, gather_bytes=GATHER_BYTES if way == "gathered" else -1)
    for position, shape in enumerate(SHAPES):
        inputs = [contribution(rank, shape, dtype) for rank in range(size)]
        expected = add_in_order(inputs)
        for total, last, parts, uneven in (found[position] for found in results):
            np.testing.assert_array_equal(total, expected, strict=True)
            np.testing.assert_array_equal(last, inputs[-1], strict=True)
            for part, given in zip(parts, inputs, strict=bool(shape)):
                np.testing.assert_array_equal(part, given, strict=True)
            assert [part.tolist() for part in uneven] == [[[rank, rank]] * rank for rank in range(size)]
    assert [link.state for link in fake.links] == ["destroyed"] * size


def test_ranks_that_share_a_gpu_take_the_host(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> str:
        assert not isinstance(comm, NcclCommunicator)
        return note

    assert set(on_gpus(3, cupy, work, share=True)) == {
        "collectives are staged through host memory: ranks 0 and 1 share a GPU, which NCCL does not allow"
    }
    assert fake.links == []


def test_gpus_whose_uuid_has_a_zero_byte_are_told_apart(cupy: ModuleType, fake: Fake) -> None:
    assert {cupy.cuda.runtime.getDeviceProperties(number)["uuid"] for number in range(2)} == {b""}
    notes = on_gpus(2, cupy, lambda comm, note: note)
    assert set(notes) == {"collectives run over NCCL 23203"}


def test_without_nccl_or_a_gpu_on_all_ranks_the_host_is_taken(cupy: ModuleType, fake: Fake) -> None:
    def mixed(host: Communicator) -> str:
        cupy.cuda.runtime.setDevice(host.rank)
        with gpu_collectives(host, cupy if host.rank else np) as (comm, note):
            assert comm is host
            return note

    assert set(run_threads(3, mixed)) == {"collectives are staged through host memory: rank 0 computes on the CPU"}
    fake.nccl.available = False
    notes = on_gpus(2, cupy, lambda comm, note: note)
    assert all(
        re.match(r"collectives are staged through host memory: rank 0 has no NCCL; install nvidia-nccl", note)
        for note in notes
    )


def test_on_the_cpu_nothing_is_said() -> None:
    def work(host: Communicator) -> str:
        with gpu_collectives(host, np) as (comm, note):
            assert comm is host
            return note

    assert run_threads(2, work) == ["", ""]
    assert run_threads(1, work) == [""]


def test_when_one_rank_cannot_join_all_take_the_host(cupy: ModuleType, fake: Fake) -> None:
    fake.refuses_to_join = True
    notes = on_gpus(3, cupy, lambda comm, note: note, timeout_s=5.0)
    assert set(notes) == {"collectives are staged through host memory: NCCL could not be started on all ranks"}
    assert "destroyed" not in [link.state for link in fake.links]


LATE = r"over NCCL was aborted by rank 0: .* in 0\.3 s"


def test_a_peer_that_does_not_come_ends_in_an_error_at_the_deadline(cupy: ModuleType, fake: Fake) -> None:
    said = []

    def work(comm: Communicator, note: str) -> None:
        if comm.rank == 0:
            begun = time.monotonic()
            comm.timeout_s = 0.3
            comm.allreduce(cupy.asarray(np.ones(3))).get()
            with pytest.raises(CommunicatorClosedError, match=LATE):
                comm.allreduce(cupy.asarray(np.ones(3)))
            said.append(time.monotonic() - begun)
            with pytest.raises(CommunicatorClosedError, match=LATE):
                comm.allreduce(np.ones(3))  # over the host: what was read is worth nothing

    with pytest.raises(CommunicatorClosedError, match=LATE):
        on_gpus(2, cupy, work)
    assert 0.2 < said[0] < 30
    assert [link.state for link in fake.links] == ["aborted", "aborted"]  # the other one is not released without it


def test_a_rank_that_dies_before_the_others_are_connected_does_not_hang_them(cupy: ModuleType, fake: Fake) -> None:
    fake.dies_while_connecting = True
    begun = time.monotonic()
    notes = on_gpus(3, cupy, lambda comm, note: note, timeout_s=2.0)
    assert set(notes) == {"collectives are staged through host memory: NCCL could not be started on all ranks"}
    assert time.monotonic() - begun < 30
    assert {link.state for link in fake.links} == {"aborted"}


def test_a_rank_that_dies_before_the_release_does_not_hang_the_others(cupy: ModuleType, fake: Fake) -> None:
    fake.dies_in_release = True

    def work(comm: Communicator, note: str) -> None:
        comm.allreduce(cupy.asarray(np.ones(3)))
        comm.timeout_s = 0.5

    on_gpus(2, cupy, work)
    assert sorted(link.state for link in fake.links) == ["open", "open"]  # left alone


@pytest.mark.parametrize("died_in", ["allGather", "broadcast", "send"])
def test_a_rank_that_is_killed_in_an_operation_does_not_hang_the_others(
    died_in: str, cupy: ModuleType, fake: Fake
) -> None:
    seconds: list[float] = []

    def work(comm: Communicator, note: str) -> None:
        comm.barrier()
        fake.dies_in, comm.timeout_s, begun = died_in, 0.4, time.monotonic()
        collective = comm.allreduce if died_in != "broadcast" else lambda array: comm.broadcast(array, 2)

        def until_noticed() -> None:
            collective(cupy.asarray(np.ones(3))).get()
            comm.check()

        with pytest.raises(CommunicatorClosedError, match="over NCCL was aborted by rank"):
            until_noticed()
        with pytest.raises(CommunicatorClosedError, match="over NCCL was aborted by rank"):
            comm.allgather_of(cupy.asarray(np.ones(3)), [3] * comm.size)
        seconds.append(time.monotonic() - begun)
        if len(seconds) == 2:
            fake.buried.set()

    with pytest.raises(Killed):
        on_gpus(3, cupy, work, gather_bytes=-1 if died_in == "send" else GATHER_BYTES)
    assert max(seconds) < 20
    assert {link.state for link in fake.links} == {"aborted"}


def test_lengths_that_are_known_are_not_exchanged(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        asked: list[Any] = []
        assert isinstance(comm, NcclCommunicator)
        comm._host.allgather = asked.append  # type: ignore[method-assign, assignment]
        try:
            for lengths in ([2, 2, 2], [0, 3, 1]):
                mine = cupy.asarray(np.full((lengths[comm.rank], 2), comm.rank, np.float32))
                parts = comm.allgather_of(mine, lengths)
                assert [part.get().tolist() for part in parts] == [[[r, r]] * n for r, n in enumerate(lengths)]
            assert asked == []
            with pytest.raises(ValueError, match=r"got arrays of \[5\] rows to gather; expected \[2\]"):
                comm.allgather_of(cupy.asarray(np.ones(5)), [2, 2, 2])
        finally:
            del comm._host.allgather

    on_gpus(3, cupy, work)


def test_a_rank_goes_on_while_its_gpu_waits_for_others(cupy: ModuleType, fake: Fake) -> None:
    went_on = threading.Event()

    def work(comm: Communicator, note: str) -> list[float]:
        assert comm.in_stream is cupy
        if comm.rank == 1:
            assert went_on.wait(30)
        received = [comm.broadcast(cupy.asarray(np.full(2, 10.0 * comm.rank + step)), 1) for step in range(3)]
        went_on.set()
        return [float(array.get()[0]) for array in received]

    assert on_gpus(2, cupy, work) == [[10.0, 11.0, 12.0]] * 2


def test_the_deadline_counts_from_when_the_gpu_comes_to_an_operation(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> float:
        comm.timeout_s = 1.0
        if comm.rank == 0:
            received = [comm.broadcast(cupy.asarray(np.zeros(2)), 1) for _ in range(3)]
        else:
            received = []
            for step in range(3):
                time.sleep(0.6)  # the last one comes after 1.8 s
                received.append(comm.broadcast(cupy.asarray(np.full(2, 1.0 + step)), 1))
        return float(sum(array.get()[0] for array in received))

    assert on_gpus(2, cupy, work) == [6.0, 6.0]


def test_times_are_those_of_the_streams_which_nothing_waits_for(cupy: ModuleType, fake: Fake) -> None:
    went_on = threading.Event()

    def work(inner: Communicator, note: str) -> Times:
        comm = TimedCommunicator(inner)
        if comm.rank == 1:
            assert went_on.wait(30)
            time.sleep(0.5)
        comm.broadcast(cupy.asarray(np.ones(3)), 1)
        went_on.set()
        return comm.times()

    first, second = on_gpus(2, cupy, work)
    assert first == second
    assert first.collectives == 1
    assert first.longest_wait > 0.4
    assert first.waiting == first.longest_wait / 2


def test_what_was_made_of_arrays_that_never_came_is_not_the_error(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        comm.timeout_s = 0.3
        if comm.rank == 0:
            comm.broadcast(cupy.asarray(np.ones(3)), 1).get()
            raise DivergenceError("the loss became nan")

    with pytest.raises(CommunicatorClosedError, match=LATE):
        on_gpus(2, cupy, work)


def test_a_failure_that_nobody_has_noticed_is_told_at_the_release(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        comm.timeout_s = 0.3
        if comm.rank == 0:
            comm.broadcast(cupy.asarray(np.ones(3)), 1)

    with pytest.raises(CommunicatorClosedError, match=LATE):
        on_gpus(2, cupy, work)


def test_an_abort_of_the_gang_ends_an_operation_on_the_gpu(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        if comm.rank == 1:
            time.sleep(0.1)
            comm.abort("worker 1 was lost")
            return
        comm.broadcast(cupy.asarray(np.ones(3)), 1).get()
        comm.check()

    with pytest.raises(CommunicatorClosedError, match="worker 1 was lost"):
        on_gpus(2, cupy, work)
    assert [link.state for link in fake.links] == ["aborted", "aborted"]


def test_an_error_that_nccl_has_noticed_is_told(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        if comm.rank == 1:
            fake.links[0].world.broken = "NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error"
            return
        comm.broadcast(cupy.asarray(np.ones(3)), 1).get()
        comm.check()

    with pytest.raises(CommunicatorClosedError, match=r"NCCL failed on rank 0: NCCL_ERROR_REMOTE"):
        on_gpus(2, cupy, work)


def test_a_rank_that_fails_leaves_no_communicator_open(cupy: ModuleType, fake: Fake) -> None:
    def work(comm: Communicator, note: str) -> None:
        comm.allreduce(cupy.asarray(np.ones(3)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_gpus(2, cupy, work)
    assert {link.state for link in fake.links} == {"aborted"}


def test_the_stand_in_has_the_signatures_of_cupy(fake: Fake) -> None:
    real = pytest.importorskip("cupy", reason="install daskkern[cuda12] to compare signatures", exc_type=ImportError)
    try:
        theirs = importlib.import_module("cupy.cuda.nccl")
    except ImportError as error:
        pytest.skip(f"this CuPy finds no NCCL; install nvidia-nccl-cu12 ({error})")
    fake.module()
    ours = fake.nccl
    if not theirs.available:
        pytest.skip("this CuPy finds no NCCL; install nvidia-nccl-cu12")
    for name in ("allGather", "broadcast", "send", "recv", "check_async_error", "abort", "destroy"):
        line = getattr(theirs.NcclCommunicator, name).__doc__.splitlines()[0]  # as Cython embeds it
        parameters = [word.split()[-1] for word in re.search(r"\((.*)\)", line).group(1).split(", ")]
        assert list(inspect.signature(getattr(ours.NcclCommunicator, name)).parameters) == parameters
    for name in ("groupStart", "groupEnd", "get_version"):
        assert callable(getattr(theirs, name))
    assert isinstance(theirs.get_unique_id(), bytes)
    assert len(theirs.get_unique_id()) == 128
    assert issubclass(theirs.NcclError, Exception)
    assert (theirs.NCCL_INT64, theirs.NCCL_FLOAT32, theirs.NCCL_FLOAT64) == (4, 7, 8)
    for name in ("commId", "ndev", "rank"):
        assert name in theirs.NcclCommunicator.__doc__
    assert callable(real.cuda.Event.synchronize)
    assert {"getDevice", "setDevice", "deviceGetPCIBusId"} <= set(dir(real.cuda.runtime))
    assert callable(real.cuda.get_current_stream)
    assert "disable_timing" in real.cuda.Event.__doc__
    assert isinstance(real.cuda.Event.done, property)
    assert callable(real.cuda.get_elapsed_time)
