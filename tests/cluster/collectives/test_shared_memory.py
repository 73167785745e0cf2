"""Sums through the memory of a host have the bits of those by messages, and fail in the same sentences."""

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.shared_memory import MEMORY_BYTES, HostMemory, no_token
from daskkern.cluster.collectives.shared_sums import LEVELS, SHARED, HostRanks
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import ClusterError, CommunicatorClosedError
from tests.support import ranks
from tests.support.cluster import by_messages, mixed_cluster, wait_until
from tests.support.collectives.reordering import reordering_transports
from tests.support.collectives.summing import sums_and_ways

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        platform.machine() != "x86_64" or not Path("/dev/shm").is_dir(), reason="run on Linux on an x86-64 processor"
    ),
]


@pytest.fixture(autouse=True)
def _no_file_is_left() -> Iterator[None]:
    """Each file loses its name as soon as all ranks have opened it; other fits of this machine may open some."""
    before = files()
    yield
    left = files() - before
    wait_until(lambda: not left & files(), timeout_s=30, what="no file was left")


def files() -> set[Path]:
    return set(Path("/dev/shm").glob("daskkern-sums-*"))


def together(
    size: int,
    work: Callable[[DaskCommunicator], object],
    seed: int = 0,
    timeout_s: float = 30.0,
    ranks_per_host: int | None = None,
) -> list[object]:
    """Run ranks in threads, on one host unless `ranks_per_host` is given."""
    transports = reordering_transports(size, timeout_s, seed, ranks_per_host=ranks_per_host or size)

    def rank(number: int) -> object:
        comm = DaskCommunicator(transports[number])
        comm.start(30.0)
        return work(comm)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(rank, range(size)))


@settings(max_examples=15, deadline=None)
@given(
    size=st.integers(2, 11),
    dtype=st.sampled_from(["float32", "float64", "int64"]),
    shape=st.sampled_from([(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (40, 3)]),
    seed=st.integers(0, 1000),
)
def test_sums_have_the_bits_of_the_tree(size: int, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [np.asarray(10.0 ** rng.integers(-6, 6) * rng.standard_normal(shape)).astype(dtype) for _ in range(size)]

    def sums(comm: DaskCommunicator) -> HostArray:
        first = np.asarray(comm.allreduce(parts[comm.rank]))
        assert first.flags.writeable
        again = np.asarray(comm.allreduce(first))
        assert comm.ways[SHARED] == 2
        return np.stack([first, again])

    expected = add_in_order(parts)
    for found in together(size, sums, seed):
        np.testing.assert_array_equal(found, np.stack([expected, add_in_order([expected] * size)]), strict=True)


def test_many_sums_of_many_shapes_follow_each_other_at_any_pace() -> None:
    def sums(comm: DaskCommunicator) -> None:
        pace = np.random.default_rng(comm.rank)
        for number in range(400):
            shape = (number % 7, 1 + number % 3)
            finish = comm.begin_allreduce(np.full(shape, comm.rank + number, "float32"))
            if pace.random() < 0.05:
                time.sleep(pace.random() / 100)
            np.testing.assert_array_equal(np.asarray(finish()), np.full(shape, 6 + 4 * number, "float32"), strict=True)

    together(4, sums)


def test_strided_arrays_and_arrays_written_right_after() -> None:
    def total(comm: DaskCommunicator) -> HostArray:
        array = np.arange(24.0).reshape(4, 6)[::2, ::-3] + comm.rank
        finish = comm.begin_allreduce(array)
        array[:] = np.nan
        return np.asarray(finish())

    for found in together(3, total):
        np.testing.assert_array_equal(found, 3 * np.arange(24.0).reshape(4, 6)[::2, ::-3] + 3)


def test_large_arrays_go_by_messages() -> None:
    def ways(comm: DaskCommunicator) -> dict[str, int]:
        large = np.full(MEMORY_BYTES // 8, 1.0)
        assert float(np.asarray(comm.allreduce(large))[-1]) == 2.0
        assert float(np.asarray(comm.allreduce(np.ones(1)))[0]) == 2.0
        return dict(comm.ways)

    assert together(2, ways) == [{"direct": 1, SHARED: 1}] * 2


def test_groups_and_places_sum_for_themselves() -> None:
    def sums(comm: DaskCommunicator) -> tuple[float, ...]:
        group, place = divmod(comm.rank, 3)
        parts = [comm.of_ranks(range(3 * group, 3 * group + 3)), comm.of_ranks(range(place, 6, 3))]
        term = np.array([10.0**comm.rank])
        found = []
        for _ in range(20):
            found = [float(np.asarray(part.allreduce(term))[0]) for part in (*parts, comm)]
        assert [part.ways[SHARED] for part in (*parts, comm)] == [20, 20, 20]
        return tuple(found)

    rows = [(111.0, 1001.0), (111.0, 10010.0), (111.0, 100100.0), (111e3, 1001.0), (111e3, 10010.0), (111e3, 100100.0)]
    assert together(6, sums) == [(*row, 111111.0) for row in rows]


@settings(max_examples=15, deadline=None)
@given(
    size=st.integers(3, 14),
    ranks_per_host=st.integers(2, 6),
    dtype=st.sampled_from(["float32", "float64", "int64"]),
    shape=st.sampled_from([(), (0,), (1,), (5,), (3, 4), (2, 0, 3)]),
    seed=st.integers(0, 1000),
)
def test_sums_over_several_hosts_have_the_bits_of_the_tree(
    size: int, ranks_per_host: int, dtype: str, shape: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    parts = [np.asarray(10.0 ** rng.integers(-6, 6) * rng.standard_normal(shape)).astype(dtype) for _ in range(size)]

    def sums(comm: DaskCommunicator) -> HostArray:
        first = np.asarray(comm.allreduce(parts[comm.rank]))
        assert first.flags.writeable
        again = np.asarray(comm.allreduce(first))
        assert comm.ways[LEVELS if ranks_per_host < size else SHARED] == 2
        return np.stack([first, again])

    expected = add_in_order(parts)
    for found in together(size, sums, seed, ranks_per_host=ranks_per_host):
        np.testing.assert_array_equal(found, np.stack([expected, add_in_order([expected] * size)]), strict=True)


def test_one_rank_of_each_host_sends_its_term_in_each_doubling() -> None:
    def sent(comm: DaskCommunicator) -> int:
        before = comm.bytes_sent
        comm.allreduce(np.ones(10))
        return comm.bytes_sent - before

    assert together(32, sent, ranks_per_host=8) == [160, *[0] * 7] * 4


def test_many_sums_over_several_hosts_follow_each_other_at_any_pace() -> None:
    def sums(comm: DaskCommunicator) -> None:
        pace = np.random.default_rng(comm.rank)
        for number in range(100):
            shape = (number % 7, 1 + number % 3)
            finish = comm.begin_allreduce(np.full(shape, comm.rank + number, "float32"))
            if pace.random() < 0.05:
                time.sleep(pace.random() / 100)
            np.testing.assert_array_equal(np.asarray(finish()), np.full(shape, 10 + 5 * number, "float32"), strict=True)

    together(5, sums, ranks_per_host=2)


@pytest.mark.parametrize("ranks_per_host", [2, 3])
def test_groups_and_places_over_several_hosts(ranks_per_host: int) -> None:
    def sums(comm: DaskCommunicator) -> tuple[float, ...]:
        group, place = divmod(comm.rank, 3)
        parts = [comm.of_ranks(range(3 * group, 3 * group + 3)), comm.of_ranks(range(place, 6, 3))]
        found = []
        for _ in range(20):
            found = [float(np.asarray(part.allreduce(np.array([10.0**comm.rank])))[0]) for part in (*parts, comm)]
        return tuple(found)

    rows = [(111.0, 1001.0), (111.0, 10010.0), (111.0, 100100.0), (111e3, 1001.0), (111e3, 10010.0), (111e3, 100100.0)]
    assert together(6, sums, ranks_per_host=ranks_per_host) == [(*row, 111111.0) for row in rows]


def test_ranks_of_a_host_that_do_not_follow_each_other_send_messages() -> None:
    assert HostRanks.of(["a", "b", "a"], 0) is None
    assert HostRanks.of(["a", "a", "b", "c", "c"], 3) == HostRanks((0, 2, 3, 5), 2)
    assert HostRanks.of(["a", "a", "b", "c", "c"], 2) == HostRanks((0, 2, 3, 5), 1)


def test_there_are_as_many_regions_as_communicators_of_a_fit() -> None:
    token = HostMemory.create()
    memory = HostMemory.open(token, 6)
    HostMemory.unlink(token)
    assert memory is not None
    assert all(memory.slots(region, [0, 2, 5]) for region in range(3))
    assert memory.slots(3, [0, 2, 5]) is None


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_a_rank_of_another_host_that_does_not_come_is_named(missing: int) -> None:
    def late(comm: DaskCommunicator) -> str:
        if comm.rank == missing:
            return ""
        with pytest.raises(CommunicatorClosedError, match=r"in 0\.2 s nothing came from rank \d at") as error:
            comm.allreduce(np.zeros(2))
        return str(error.value)

    reasons = together(4, late, timeout_s=0.2, ranks_per_host=2)
    assert any(f"rank {missing} at tcp://host{missing // 2}:{missing % 2 + 1}" in str(reason) for reason in reasons)


def test_other_shapes_are_refused() -> None:
    def sums(comm: DaskCommunicator) -> None:
        with pytest.raises(
            CommunicatorClosedError, match=r"with float64 \(\d,\) by rank \d and .* every rank must pass"
        ):
            comm.allreduce(np.zeros(2 + comm.rank))

    together(2, sums)


def test_a_collective_that_one_rank_left_out_is_told() -> None:
    def differ(comm: DaskCommunicator) -> None:
        if comm.rank == 0:
            comm.broadcast(np.zeros(2))  # its root waits for nobody
        with pytest.raises(CommunicatorClosedError, match=r"took part in other collectives before|must call the same"):
            comm.allreduce(np.zeros(2))

    together(2, differ)


def test_arrays_on_both_sides_of_the_limit_are_told_at_once() -> None:
    def differ(comm: DaskCommunicator) -> None:
        begun = time.monotonic()
        with pytest.raises(CommunicatorClosedError) as error:
            comm.allreduce(np.zeros(2 if comm.rank else MEMORY_BYTES // 8))
        comm.abort(str(error.value))
        assert time.monotonic() - begun < 10

    together(2, differ)


def test_another_collective_is_told() -> None:
    def differ(comm: DaskCommunicator) -> None:
        called = comm.barrier if comm.rank else partial(comm.allreduce, np.zeros(2))
        with pytest.raises(CommunicatorClosedError, match=r"must call the same collectives|was told"):
            called()
        comm.abort("the other rank was told")

    together(2, differ)


def test_a_rank_that_does_not_come_is_named_and_an_abort_is_heard() -> None:
    def late(comm: DaskCommunicator) -> None:
        if comm.rank == 0:
            with pytest.raises(CommunicatorClosedError, match=r"in 0\.2 s nothing came from rank 1 at tcp://host0:2"):
                comm.allreduce(np.zeros(2))

    together(2, late, timeout_s=0.2)

    def aborted(comm: DaskCommunicator) -> None:
        if comm.rank == 0:
            threading.Timer(0.1, comm.abort, ["enough"]).start()
            with pytest.raises(CommunicatorClosedError, match="enough"):
                comm.allreduce(np.zeros(2))

    together(2, aborted)


def test_all_send_messages_where_one_rank_does_not_see_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = HostMemory.open
    lock, seen = threading.Lock(), list[int]()

    def open_for_two(token: HostArray, size: int) -> HostMemory | None:
        with lock:
            seen.append(size)
            return opened(token, size) if len(seen) < 3 else None

    monkeypatch.setattr(HostMemory, "open", open_for_two)

    def ways(comm: DaskCommunicator) -> bool:
        assert float(np.asarray(comm.allreduce(np.ones(1)))[0]) == 3.0
        return SHARED in comm.ways

    assert together(3, ways) == [False] * 3
    assert seen == [3, 3, 3]


def test_there_is_no_memory_where_it_is_not_allowed_or_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    with dask.config.set({"daskkern.shared-memory": False}):
        assert not HostMemory.create().any()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not HostMemory.create().any()
    monkeypatch.undo()

    def full(*of: object) -> None:
        raise OSError("no space left on the device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert not HostMemory.create().any()


def test_files_of_others_are_not_opened() -> None:
    assert HostMemory.open(no_token(), 2) is None
    assert HostMemory.open(np.array([1, 2]), 2) is None
    token = HostMemory.create()
    assert isinstance(HostMemory.open(token, 2), HostMemory)
    (path,) = (file for file in files() if token.tobytes().hex() in file.name)
    assert path.stat().st_mode & 0o777 == 0o600
    os.truncate(path, 100)
    assert HostMemory.open(token, 2) is None
    HostMemory.unlink(token)


def test_files_of_ranks_that_were_killed_are_removed_by_a_later_fit() -> None:
    left, fresh = HostMemory.create(), HostMemory.create()
    (path,) = (file for file in files() if left.tobytes().hex() in file.name)
    os.utime(path, (0, 0))
    HostMemory.unlink(HostMemory.create())
    assert not path.exists()
    HostMemory.unlink(fresh)


@pytest.mark.cluster
def test_a_gang_of_processes_has_the_bits_of_messages(client3: Client) -> None:
    through_memory = run_gang(client3, sums_and_ways, 50, name="memory")
    with by_messages(client3):
        others = run_gang(client3, sums_and_ways, 50, name="messages")
    assert [ways.get(SHARED, 0) for _, ways in through_memory] == [50] * 3
    assert not any(SHARED in ways for _, ways in others)
    for (found, _), (expected, _) in zip(through_memory, others, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.long
@pytest.mark.cluster
def test_a_gang_on_two_hosts_has_the_bits_of_messages_also_after_a_rank_was_killed() -> None:
    with mixed_cluster([(1, 0)] * 4, ["127.0.0.1", "127.0.0.2", "127.0.0.1", "127.0.0.2"]) as client:
        through_memory = run_gang(client, sums_and_ways, 50, name="memory")
        with by_messages(client):
            others = run_gang(client, sums_and_ways, 50, name="messages")
        assert [ways for _, ways in through_memory] == [{LEVELS: 50}] * 4
        assert not any(LEVELS in ways for _, ways in others)
        for (found, _), (expected, _) in zip(through_memory, others, strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)
        for victim in (1, 2):  # one that waits for the first rank of its host, and the first of the other
            client.wait_for_workers(4, timeout=60)
            with pytest.raises(ClusterError, match=rf"\(rank {victim}\) left the cluster|supervised fit 'lost' left"):
                run_gang(client, ranks.dies, victim, name="lost", settings=GangSettings(retries=0))
        client.wait_for_workers(4, timeout=60)
        assert [ways for _, ways in run_gang(client, sums_and_ways, 5, name="again")] == [{LEVELS: 5}] * 4
