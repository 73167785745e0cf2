"""The order in which the terms of ranks are added: a balanced binary tree over them, in rank order.

Floating-point sums depend on their order. All collectives add along the same tree, wherever a sum is taken and in
whatever order terms arrive, and so have the same bits on all ranks and by every algorithm. Among n terms, the first
``2 (n - P)`` are added in pairs, where P is the largest power of two with P <= n; the P terms that this leaves are
the leaves of a complete binary tree. This is the tree of recursive doubling (Thakur, Rabenseifner and Gropp 2005,
section 4.3): each of its nodes can be added by a rank that holds one of its terms.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of

Node: TypeAlias = tuple[int, int]
"""The first of the consecutive terms below a node of the tree, and the one after the last."""


def n_pairs(size: int) -> int:
    """Return how many pairs of the first terms are added before the complete tree."""
    return size - (1 << (size.bit_length() - 1))


def add_in_order(terms: Sequence[Array]) -> Array:
    """Return the sum of terms of the same shape and dtype along the tree: a new array. The terms are not modified."""
    return node_sum((0, len(terms)), len(terms), {(i, i + 1): term for i, term in enumerate(terms)})


def add_stacked(terms: Array) -> Array:
    """Return the sum of `terms` (n, ...) over the first axis along the tree, with the bits of :func:`add_in_order`.

    A level of the tree is one operation on all its pairs, so that a GPU is given ``ceil(log2 n)`` of them, and one more
    unless n is a power of two. A new array; the terms are not modified.
    """
    size = len(terms)
    if size == 1:
        return terms[0, ...].copy()
    pairs, level = n_pairs(size), terms
    if pairs:
        added = terms[0 : 2 * pairs : 2] + terms[1 : 2 * pairs : 2]
        level = namespace_of(terms).concatenate([added, terms[2 * pairs :]])
    while len(level) > 1:
        level = level[0::2] + level[1::2]
    return level[0, ...]


def node_sum(node: Node, size: int, parts: Mapping[Node, Array]) -> Array:
    """Return the sum of a node of the tree over `size` terms from `parts`, the sums of nodes below it: a new array.

    Raises
    ------
    KeyError
        When a term is in none of the parts.
    """
    total, is_new = _node_sum(node, size, parts)
    return total if is_new else total.copy()


def nodes_of(low: int, high: int, size: int) -> list[Node]:
    """Return the largest nodes of the tree over `size` terms that together have the terms `low` to `high` - 1.

    They are in order, and at most ``2 log2 size`` + 2.
    """
    found: list[Node] = []

    def visit(start: int, stop: int) -> None:
        if stop <= low or high <= start:
            return
        if low <= start and stop <= high:
            found.append((start, stop))
            return
        middle = _middle(start, stop, size)
        visit(start, middle)
        visit(middle, stop)

    visit(0, size)
    return found


def _node_sum(node: Node, size: int, parts: Mapping[Node, Array]) -> tuple[Array, bool]:
    """Return the sum of a node, and whether its array is new."""
    if node in parts:
        return parts[node], False
    start, stop = node
    if stop - start < 2:
        raise KeyError(f"term {start} is in none of the parts")
    middle = _middle(start, stop, size)
    left, is_new = _node_sum((start, middle), size, parts)
    right, _ = _node_sum((middle, stop), size, parts)
    if not is_new:
        left = left.copy()
    left += right
    return left, True


def _middle(start: int, stop: int, size: int) -> int:
    """Return where the terms of a node with two or more of them are divided."""
    pairs = n_pairs(size)
    first, last = (term // 2 if term < 2 * pairs else term - pairs for term in (start, stop - 1))
    if first == last:
        return start + 1
    half = (first + last + 1) // 2
    return 2 * half if half < pairs else half + pairs
