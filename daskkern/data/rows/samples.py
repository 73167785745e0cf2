"""Random samples of row numbers that depend on the seed alone."""

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.rows import Fields, Rows, take

_MOST = 2000
_STREAM = 54


def some_positions(n_rows: int, seed: int) -> IntArray:
    """Return the numbers, ascending, of at most 2,000 of `n_rows` rows."""
    k = min(_MOST, n_rows)
    return np.sort(generator(seed, _STREAM).choice(n_rows, size=k, replace=False))


def features_at(rows: Rows, positions: IntArray) -> HostArray:
    """Return the features (m, d) of the rows with these numbers."""
    block = take(rows, positions, Fields.X)
    assert block.X is not None
    return block.X


def sampled_rows(rows: Rows, seed: int) -> HostArray:
    """Return the features of the rows of :func:`some_positions` that count."""
    block = take(rows, some_positions(rows.n_rows, seed), Fields.X | Fields.weight)
    assert block.X is not None
    return counted(block.X, block.weight)


def counted(X: HostArray, weight: HostArray | None) -> HostArray:
    """Return rows (m, d) without those of weight 0, which carry no information on the rows that a model is for.

    None stands for weights of 1; where all are 0, all rows are returned.
    """
    if weight is None or weight.all() or not weight.any():
        return X
    return X[weight > 0]
