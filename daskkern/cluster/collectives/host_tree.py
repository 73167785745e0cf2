"""Trees down which one rank sends to all others: the binomial one, and that by which each host receives rows once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class TreeNode:
    """A rank's place in the tree of one root.

    Attributes
    ----------
    above : int or None
        The rank from which it receives; None for the root.
    below : tuple of int
        The ranks to which it passes on, those of other hosts first: their links take longest.
    depth : int
        Crossings from the root.
    """

    above: int | None
    below: tuple[int, ...]
    depth: int


def host_tree(hosts: Sequence[str], root: int) -> tuple[TreeNode, ...]:
    """Return the place of every rank in the tree that begins with `root`.

    One rank of each host receives for its host, and passes on to those of at most two other hosts, so that the link of
    a host carries one copy in and at most two out, however many ranks it has. Within a host that rank sends one copy,
    or two if it sends none to other hosts, and the others at most two. H hosts have H - 1 copies between them.

    With another root, another rank of each host receives for it, so that all of them take turns.

    Parameters
    ----------
    hosts : sequence of str
        The host of each rank.
    root : int
    """
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    names = _turned(list(ranks), list(ranks).index(hosts[root]))
    turn = ranks[hosts[root]].index(root)
    members = [_turned(ranks[name], turn) for name in names]
    above: dict[int, int] = {}
    below: dict[int, list[int]] = {rank: [] for rank in range(len(hosts))}
    for source, target in _edges([each[0] for each in members], 2):
        above[target] = source
        below[source].append(target)
    for each in members:
        for source, target in _edges(each, 1 if below[each[0]] else 2):
            above[target] = source
            below[source].append(target)
    depths = {root: 0}
    passed_on = [root]
    for rank in passed_on:  # grows: level after level
        for other in below[rank]:
            depths[other] = depths[rank] + 1
            passed_on.append(other)
    return tuple(TreeNode(above.get(rank), tuple(below[rank]), depths[rank]) for rank in range(len(hosts)))


def _edges(ranks: Sequence[int], of_first: int) -> Iterator[tuple[int, int]]:
    """Yield sender and receiver of each message in a binary tree whose first rank sends `of_first` copies, 1 or 2."""
    for place in range(1, len(ranks)):
        yield ranks[(place - 1) // 2 if of_first == 2 else place // 2], ranks[place]


def _turned(items: list[_Item], by: int) -> list[_Item]:
    by %= len(items)
    return items[by:] + items[:by]


def parent(rank: int) -> int:
    """Return the rank above `rank` in the binomial tree with rank 0 as its root."""
    return rank & (rank - 1)


def children(rank: int, size: int) -> list[int]:
    """Return the children of `rank` in that tree, nearest first.

    Below a child are the ranks from it up to the next child.
    """
    below, step, span = [], 1, rank & -rank or size
    while step < span and rank + step < size:
        below.append(rank + step)
        step *= 2
    return below
