"""Rows that a fit need not read: exact duplicates, and rows of weight zero.

A row that is held out does not test a model that was trained on a copy of it. Copies are distinguished from rows that
are equal by chance, or that were measured again:

- a feature has about as many values as there are different rows, as continuous ones have, and
- rows with equal features have equal targets, or targets are continuous, too, and occur again with the features.

Rows of weight 0 change no objective, but as members of batches and centres they slow its descent.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator, permutation
from daskkern.backend.tiles import slices
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows, take

_SAMPLED, _MOST_ROWS = 20_000, 1_000_000  # rows that are looked at first, and up to which they say something
_LOOKED_AT = 2000  # rows whose values of each feature are counted
_LEAST_ROWS = 10  # that differ: of fewer, values say nothing
_LEAST_SHARE = 0.05  # of all rows: fewer copies change little
_CONTINUOUS = 0.5  # different values, as a share of the different rows
_BLOCK_NUMBERS = 1 << 22
_STREAM = 94
_SHIFT, _FACTOR = np.uint64(32), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, eq=False)
class Copies:
    """The copies among rows, and rows of weight 0.

    Attributes
    ----------
    excluded : (k,) int64
        Numbers of the rows that are copies of earlier ones, or weigh 0, ascending.
    weight : (n - k,) float64 or None
        What each of the other rows counts, with its copies; None where all count the same.
    """

    excluded: IntArray
    weight: FloatArray | None
    n_weightless: int = 0


def find_copies(rows: Rows) -> Copies | None:
    """Return the copies among rows with targets, and the rows of weight 0, each if they are a twentieth or more.

    Of more than 20,000 rows, as many are looked at first; only where these have copies, all rows are read. More than a
    million are not looked at: a model of far fewer columns cannot learn each of them by heart.
    """
    if rows.task is None or not 2 <= rows.n_rows <= _MOST_ROWS:
        return None
    copies = _among(rows)
    return _without_weightless(rows, copies) if rows.has_weight else copies


def _without_weightless(rows: Rows, copies: Copies | None) -> Copies | None:
    """Return what is left out with the rows of weight 0, if they are a twentieth of all or more."""
    n = rows.n_rows
    if copies is None or copies.weight is None:
        excluded, weight = np.empty(0, np.int64), np.concatenate([_weight(rows, part) for part in slices(n, _SAMPLED)])
    else:
        excluded, weight = copies.excluded, copies.weight
    kept, is_nothing = np.delete(np.arange(n), excluded), weight == 0
    if is_nothing.sum() < _LEAST_SHARE * n or (~is_nothing).sum() < _LEAST_ROWS:
        return copies
    left_out = np.sort(np.concatenate([excluded, kept[is_nothing]]))
    return Copies(left_out, weight[~is_nothing], int(is_nothing.sum()))


def _weight(rows: Rows, part: slice) -> FloatArray:
    weight = rows.read(part.start, part.stop, Fields.weight).weight
    assert weight is not None
    return weight


def _among(rows: Rows) -> Copies | None:
    n = rows.n_rows
    if n > _SAMPLED and rows.decodes_chunks:
        return None
    some = np.arange(n) if n <= _SAMPLED else np.sort(permutation(n, 0, _STREAM)[:_SAMPLED])
    step = max(1, _BLOCK_NUMBERS // rows.n_features)
    parts = slices(some.size, step)
    whole = np.concatenate([_hashes(take(rows, some[part], Fields.X | Fields.y))[2] for part in parts])
    first = np.sort(np.unique(whole, return_index=True)[1])
    if not _LEAST_ROWS <= first.size < some.size:
        return None
    different = take(rows, some[first[:_LOOKED_AT]], Fields.X)
    return _copies(rows, step) if _is_continuous(different.X) else None


def _copies(rows: Rows, step: int) -> Copies | None:
    n = rows.n_rows
    features, targets, whole = (np.empty(n, np.uint64) for _ in range(3))
    own = np.ones(n)
    for part in slices(n, step):
        block = rows.read(part.start, part.stop, ALL if rows.has_weight else Fields.X | Fields.y)
        features[part], targets[part], whole[part] = _hashes(block)
        if block.weight is not None:
            own[part] = block.weight
    _, first, group, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    if n - first.size < _LEAST_SHARE * n:
        return None
    agree = np.unique(features).size == first.size
    different = np.unique(targets[first]).size
    if not agree and (rows.task == "classification" or different < _CONTINUOUS * first.size):
        return None
    earlier = first[group]
    excluded = np.flatnonzero(earlier != np.arange(n))
    if not _are_equal(rows, excluded, earlier[excluded], step):
        return None
    kept = np.sort(first)
    weight: HostArray = np.bincount(group, own)[group[kept]]
    same = not rows.has_weight and (counts == counts[0]).all()
    return Copies(excluded, None if same else weight)


def _hashes(block: RowBlock) -> tuple[HostArray, HostArray, HostArray]:
    """Return numbers (m,) that are equal where rows have equal features, equal targets, and both."""
    assert block.X is not None
    features = _row_hashes(block.X)
    targets = _row_hashes(np.asarray(block.y).reshape(features.size, -1))
    return features, targets, _spread(features) + targets


def _row_hashes(rows: Any) -> HostArray:
    """Return a 64-bit number for each row, the same for equal rows, dense or sparse."""
    keys = generator(0, _STREAM, 1).bit_generator.random_raw(int(rows.shape[1])) | np.uint64(1)
    if not is_sparse(rows):
        return (_mixed(rows.astype(np.float64, copy=False)) * keys).sum(axis=1, dtype=np.uint64)
    values = _mixed(rows.data.astype(np.float64)) * keys[rows.indices]
    values[rows.data == 0] = 0  # entries that are stored and 0
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    found: HostArray = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    return found


def _mixed(values: HostArray) -> HostArray:
    """Return the bits of numbers, those of 0 and -0 alike, spread over 64 bits."""
    return _spread(np.ascontiguousarray(values + 0.0).view(np.uint64))


def _spread(bits: HostArray) -> HostArray:
    mixed = (bits ^ (bits >> _SHIFT)) * _FACTOR
    return mixed ^ (mixed >> _SHIFT)


def _is_continuous(X: Any) -> bool:
    """Return whether a feature has about as many values as there are rows, all of them different."""
    columns = (X.toarray() if is_sparse(X) else X)[:, : _BLOCK_NUMBERS // max(1, X.shape[0])]
    values = np.sort(columns, axis=0)
    most = 1 + int((values[1:] != values[:-1]).sum(axis=0).max(initial=0))
    return most >= _CONTINUOUS * len(values)


def _are_equal(rows: Rows, these: IntArray, those: IntArray, step: int) -> bool:
    """Return whether rows are equal, pair by pair: their numbers might be so by chance."""
    for part in slices(these.size, step):
        one, other = (take(rows, numbers[part], Fields.X | Fields.y) for numbers in (these, those))
        if not (_same(one.X, other.X) and _same(one.y, other.y)):
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    return (one != other).nnz == 0 if is_sparse(one) else np.array_equal(one, other)
