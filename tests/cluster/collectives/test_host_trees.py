"""The tree of rows: every rank receives once, every host once from another, whatever ranks the hosts have."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.cluster.collectives.channel import PeerChannel
from daskkern.cluster.collectives.host_tree import host_tree
from tests.support.collectives.reordering import reordering_transports

HOSTS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(hosts=HOSTS, root=st.integers(0, 1000))
def test_every_host_receives_once_and_sends_two_copies_at_most(hosts: list[str], root: int) -> None:
    root %= len(hosts)
    nodes = host_tree(hosts, root)
    edges = [(source, target) for source, node in enumerate(nodes) for target in node.below]
    assert sorted(target for _, target in edges) == [rank for rank in range(len(hosts)) if rank != root]
    assert nodes[root].above is None
    assert all(nodes[target].above == source for source, target in edges)
    assert all(nodes[target].depth == nodes[source].depth + 1 for source, target in edges)
    between = [(hosts[source], hosts[target]) for source, target in edges if hosts[source] != hosts[target]]
    assert len(between) == len(set(hosts)) - 1
    assert max(Counter(source for source, _ in between).values(), default=0) <= 2
    assert max(Counter(target for _, target in between).values(), default=0) <= 1
    within = [source for source, target in edges if hosts[source] == hosts[target]]
    assert max(Counter(within).values(), default=0) <= 2
    assert max(len(node.below) for node in nodes) <= 3
    most = max(Counter(hosts).values())
    assert max(node.depth for node in nodes) <= np.log2(len(set(hosts))) + np.log2(most) + 2


def test_ranks_of_a_host_take_turns_to_receive_for_it() -> None:
    hosts = ["a"] * 4 + ["b"] * 4
    received = {host_tree(hosts, root)[root].below[0] for root in range(4)}
    assert received == {4, 5, 6, 7}


def test_hosts_with_a_rank_each_and_one_host_have_the_binary_tree() -> None:
    for hosts in (["a"] * 7, list("abcdefg")):
        assert [node.below for node in host_tree(hosts, 0)] == [(1, 2), (3, 4), (5, 6), (), (), (), ()]


def test_a_message_crosses_between_hosts_as_often_as_there_are_other_hosts() -> None:
    """Twelve ranks on three hosts: the bytes between hosts are two messages, and not the eight of a tree of ranks."""
    size, each, data = 12, 4, np.arange(1000, dtype=np.uint8)
    transports = reordering_transports(size, ranks_per_host=each)

    def take_part(rank: int) -> int:
        mine = PeerChannel(transports[rank])
        if rank == 5:
            mine.send([data])
        else:
            np.testing.assert_array_equal(mine.receive(5), data)
        return sum(n for other, n in transports[rank].copies.items() if other // each != rank // each)

    with ThreadPoolExecutor(size) as pool:
        assert sum(pool.map(take_part, range(size))) == 2
    assert sum(sum(transport.copies.values()) for transport in transports) == size - 1
