"""Partition trees grown on a sample of rows: nodes are split at the median of their leading principal direction."""

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator
from daskkern.kernels import PartitionTree

MOST_SAMPLED = 1 << 27
"""Numbers of the sample."""
_SAMPLED_EACH, _LEAST_SAMPLE = 64, 20_000
_DIRECTION_ROWS, _STEPS = 512, 12
_DIRECTIONS = 4  # that are tried until one tells the rows apart
_BALANCE = 0.1  # least share of the rows on either side
_STREAM = 92


def sample_size(n_rows: int, leaf_rows: int) -> int:
    """Return the rows that a tree for `n_rows` rows is made from: 64 a leaf, and 20,000 at least."""
    return min(n_rows, max(_LEAST_SAMPLE, _SAMPLED_EACH * -(-n_rows // leaf_rows)))


def partition_tree(rows: HostArray, leaf_rows: float, seed: int, number: int = 0) -> PartitionTree:
    """Return the tree whose leaves have at most `leaf_rows` of the rows (m, d), dense or CSR.

    Rows that no direction tells apart stay together, however many they are: repeated ones. Tree number 0 is cut along
    leading directions. Others are cut along random ones, drawn from the normal distribution whose covariance matrix is
    the square of that of the rows: mostly among the leading directions, and differently in each tree.
    """
    cuts: list[tuple[FloatArray, float]] = []
    children: list[list[int]] = []
    n_leaves, waiting = 0, [(np.arange(rows.shape[0]), -1, 0)]
    while waiting:
        at, parent, side = waiting.pop(0)
        rng, steps = generator(seed, _STREAM, len(cuts), number), _STEPS if number == 0 else 1
        found = _cut(rows, at, rng, steps) if at.size > leaf_rows else None
        if found is None:
            child, n_leaves = -1 - n_leaves, n_leaves + 1
        else:
            child = len(cuts)
            direction, threshold, below = found
            cuts.append((direction, threshold))
            children.append([0, 0])
            waiting += [(at[below], child, 0), (at[~below], child, 1)]
        if parent >= 0:
            children[parent][side] = child
    directions = np.array([v for v, _ in cuts], np.float32).reshape(len(cuts), rows.shape[1])
    return PartitionTree(directions, np.array([c for _, c in cuts]), np.array(children, np.int64).reshape(-1, 2))


def _cut(
    rows: HostArray, at: IntArray, rng: np.random.Generator, steps: int
) -> tuple[FloatArray, float, HostArray] | None:
    """Return direction, threshold, and which rows are below it; None where no direction separates the rows."""
    some = rows[np.sort(rng.permutation(at)[:_DIRECTION_ROWS])]
    dense = np.asarray(some.toarray() if is_sparse(some) else some, np.float64)
    centred = dense - dense.mean(axis=0)
    for _ in range(_DIRECTIONS):
        start: FloatArray = np.asarray(rng.standard_normal(dense.shape[1]))
        v = _leading(centred, start, steps).astype(np.float32)
        if not v.any():
            return None
        projected = np.asarray(rows[at] @ v)
        threshold = _middle(projected)
        if threshold is not None:
            return v, threshold, projected <= threshold
        centred = centred - np.outer(centred @ v, v)
    return None


def _leading(centred: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """Return the leading right singular vector (d,) of rows (m, d) by power iteration, up to its sign; 0 for zeros."""
    v = start
    for _ in range(steps):
        v = centred.T @ (centred @ v)
        size = float(np.linalg.norm(v))
        if not size > 0:
            return np.zeros_like(v)
        v = v / size
    return v * np.sign(v[np.argmax(np.abs(v))])


def _middle(values: FloatArray) -> float | None:
    """Return the middle of the gap between values that is next to their median; None where it is far from it."""
    ordered = np.sort(values).astype(np.float64)
    n = len(ordered)
    gaps = np.flatnonzero(np.diff(ordered) > 0)  # a cut after position g leaves g + 1 values below
    if not gaps.size:
        return None
    g = int(gaps[np.argmin(np.abs(gaps + 1 - n / 2))])
    if min(g + 1, n - g - 1) < max(1, _BALANCE * n):
        return None
    return float((ordered[g] + ordered[g + 1]) / 2)
