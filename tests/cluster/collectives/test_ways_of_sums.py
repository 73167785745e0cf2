"""Every way to take a sum gives the same bits, for any number of them and any order of arrival."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.allreduce import WAYS, Way
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.host_tree import children, parent
from daskkern.cluster.collectives.sum_costs import cost_of_sum, memory_seconds, way_of_sum
from daskkern.errors import CommunicatorClosedError
from tests.support.collectives.reordering import reordering_transports

MANY: list[Way] = ["direct", "star", "doubling", "reduce_scatter", "halving"]


def together(size: int, work: Callable[[int], HostArray]) -> list[HostArray]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(2, 17),
    way=st.sampled_from(MANY),
    shape=st.sampled_from([(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (40, 3)]),
    seed=st.integers(0, 1000),
)
def test_all_ways_give_the_bits_of_the_tree(size: int, way: Way, shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [np.asarray(10.0 ** rng.integers(-6, 6) * rng.standard_normal(shape), "float32") for _ in range(size)]
    transports = reordering_transports(size, seed=seed)

    def twice(rank: int) -> HostArray:
        first = WAYS[way](transports[rank], parts[rank])()
        assert first.flags.writeable
        return np.stack([first, WAYS[way](transports[rank], first)()])

    expected = add_in_order(parts)
    again = add_in_order([expected] * size)
    for found in together(size, twice):
        np.testing.assert_array_equal(found, np.stack([expected, again]), strict=True)


@pytest.mark.parametrize("size", range(1, 40))
def test_below_a_rank_of_the_tree_are_those_that_follow_it(size: int) -> None:
    def below(rank: int) -> list[int]:
        assert all(parent(child) == rank for child in children(rank, size))
        return [rank, *(other for child in children(rank, size) for other in below(child))]

    for rank in range(size):
        assert below(rank) == list(range(rank, min(rank + (rank & -rank or size), size)))


@pytest.mark.parametrize("size", [5, 8])
@pytest.mark.parametrize("root", [0, 3])
def test_a_broadcast_reaches_all_with_few_messages_of_the_root(size: int, root: int) -> None:
    transports = reordering_transports(size)

    def receive(rank: int) -> HostArray:
        comm = DaskCommunicator(transports[rank])
        return np.asarray(comm.broadcast(np.full(3, float(rank)), root))

    for found in together(size, receive):
        np.testing.assert_array_equal(found, np.full(3, float(root)))
    assert transports[root].messages == 3  # log2 of the ranks, and not all of them
    assert sum(transport.messages for transport in transports) == size - 1


@pytest.mark.parametrize("way", ["star", "doubling", "reduce_scatter", "halving"])
@pytest.mark.parametrize("size", [3, 4, 8, 11, 16])
def test_the_busiest_rank_sends_what_the_cost_says(size: int, way: Way) -> None:
    transports = reordering_transports(size)
    together(size, lambda rank: WAYS[way](transports[rank], np.ones(240 * size))())
    cost = cost_of_sum(way, size, 240 * size * 8)
    sent = max(transport.messages for transport in transports)
    assert sent <= cost.messages <= 2 * sent + 2
    assert sum(transport.messages for transport in transports) == cost.all_messages
    assert sum(transport.bytes_sent for transport in transports) == cost.all_bytes
    n_bytes = max(transport.bytes_sent for transport in transports)
    assert n_bytes == pytest.approx(cost.n_bytes, rel=0.3)


def test_with_many_ranks_nobody_talks_to_more_than_twice_the_logarithm() -> None:
    transports = reordering_transports(48)
    together(48, lambda rank: WAYS["doubling"](transports[rank], np.ones(4))())
    assert max(transport.messages for transport in transports) == 6
    assert sum(transport.messages for transport in transports) == 32 * 5 + 2 * 16


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [3, 8, 11, 33])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 3), (2, 0, 3)])
def test_all_gather_all(size: int, shape: tuple[int, ...]) -> None:
    transports = reordering_transports(size)

    def gathered(rank: int) -> list[HostArray]:
        mine = np.full((shape[0] * (rank % 3), *shape[1:]) if shape else (), float(rank))
        comm = DaskCommunicator(transports[rank])
        comm.barrier()
        return [np.asarray(part) for part in comm.allgather(mine)]

    for found in together(size, gathered):  # type: ignore[arg-type]
        for rank, part in enumerate(found):
            expected = np.full((shape[0] * (rank % 3), *shape[1:]) if shape else (), float(rank))
            np.testing.assert_array_equal(part, expected, strict=True)
            assert part.flags.writeable
    assert size < 8 or max(transport.messages for transport in transports) <= 3 * np.ceil(np.log2(size))


@pytest.mark.parametrize("holders", [(0,), (0, 2, 4), (1, 3, 6)])
def test_holders_gather_all_and_others_nothing(holders: tuple[int, ...]) -> None:
    transports = reordering_transports(7)

    def gathered(rank: int) -> list[HostArray] | None:
        comm = DaskCommunicator(transports[rank])
        parts = comm.gather_to(np.full((rank % 3, 2), float(rank)), holders)
        comm.barrier()
        return None if parts is None else [np.asarray(part) for part in parts]

    for rank, found in enumerate(together(7, gathered)):  # type: ignore[arg-type]
        assert (found is not None) == (rank in holders)
        for source, part in enumerate(found if found is not None else ()):
            np.testing.assert_array_equal(part, np.full((source % 3, 2), float(source)), strict=True)
    assert sum(transport.messages for transport in transports) == 6 * len(holders) + 7 * 3


@pytest.mark.long
@pytest.mark.one_in(4)
@pytest.mark.parametrize("way", MANY)
def test_a_rank_that_does_not_come_is_named_by_all(way: Way) -> None:
    size, missing = 8, 7
    transports, said = reordering_transports(size, timeout_s=3.0), []
    together_at = threading.Barrier(size - 1, timeout=60)

    def work(rank: int) -> None:
        if rank == missing:
            return
        together_at.wait()  # a machine that is busy starts threads late
        try:
            WAYS[way](transports[rank], np.ones(4))()
        except CommunicatorClosedError as error:
            said.append(str(error))
            transports[rank].abort(f"rank {rank} failed: {error}")

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert time.monotonic() - begun < 3.0 * (size - 1), "they wait at the same time, not in turn"
    assert len(said) == size - 1
    assert all("nothing came from rank 7 at tcp://host7:1" in sentence for sentence in said)


@pytest.mark.parametrize("way", MANY)
@pytest.mark.parametrize("other", [np.ones(5), np.ones(4, "float32"), np.ones((2, 2))])
def test_ranks_that_pass_different_arrays_are_told(way: Way, other: HostArray) -> None:
    transports, said = reordering_transports(6), []

    def work(rank: int) -> None:
        try:
            WAYS[way](transports[rank], other if rank == 5 else np.ones(4))()
        except CommunicatorClosedError as error:
            said.append(str(error))
            transports[rank].abort(str(error))

    together(6, work)  # type: ignore[arg-type]
    assert len(said) == 6
    assert any("every rank must" in sentence for sentence in said)


def test_the_choice_depends_on_ranks_hosts_cores_and_bytes_alone() -> None:
    small, large = 80_000, 8_000_000
    assert [way_of_sum(n, small, 1, n) for n in (1, 2, 3, 8, 16)] == ["alone", "direct", "star", "doubling", "doubling"]
    assert [way_of_sum(n, large, n, n) for n in (1, 2, 3, 16, 64)] == [
        "alone",
        "direct",
        "reduce_scatter",
        "halving",
        "halving",
    ]
    assert [way_of_sum(3, 1_000_000, hosts, 3) for hosts in (1, 2)] == ["star", "reduce_scatter"]
    # Between hosts rank 0 of a star has every byte twice on its link, in before out.
    assert [way_of_sum(5, 200_000, hosts, 5) for hosts in (1, 5)] == ["star", "doubling"]
    assert cost_of_sum("star", 5, 1000).line_bytes == 8000
    for nbytes, alone in ((small, "doubling"), (1_000_000, "doubling"), (large, "halving")):
        # Ranks that share cores copy through them all: the fewest messages win.
        assert [way_of_sum(8, nbytes, 1, cores) for cores in (2, 8)] == ["star", alone]


def test_memory_of_hosts_takes_less_than_messages_within_them() -> None:
    for nbytes in (1_000, 100_000):
        within = cost_of_sum(way_of_sum(16, nbytes, 1, 16), 16, nbytes).seconds(1, 16)
        assert memory_seconds(16, nbytes, 1) < memory_seconds(16, nbytes, 1) + 1e-4 < within
        between = cost_of_sum("doubling", 4, nbytes).seconds(4, 4)
        assert memory_seconds(32, nbytes, 4) + between < cost_of_sum("doubling", 32, nbytes).seconds(4, 32)
    assert memory_seconds(8, 0, 2) == 2 * memory_seconds(8, 0, 1)
