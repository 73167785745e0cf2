"""Detection of rows ordered by their targets, in which a batch of neighbours is not a representative sample.

The measure is the correlation ratio: the share of the variance of the target that lies between blocks of
consecutive rows. Class codes count as indicators, quantities as their ranks, so it does not matter whether the
target rises or falls, or how its values are spread; with more classes than blocks, the share is relative to the
largest possible one. In a random order the share is (blocks - 1) / (rows - 1) on average; in sorted rows it is close
to 1. Blocks are chunks of the store, because whole chunks are assigned to the windows from which batches are drawn:
an order within a chunk does no harm, so a store of one chunk is not sorted.

References
----------
K. Pearson, "On the general theory of skew correlation and non-linear regression", 1905 (the correlation ratio).
W. L. Hays, "Statistics for psychologists", 1963 (epsilon squared, its correction for the number of blocks).
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.batch_plan import DEFAULT_WINDOW_BYTES, BatchPlan
from daskkern.data.rows.rows import Fields, Rows

SORTED_SHARE = 0.1
"""Rows are called sorted when this share of a target's variance, corrected for chance, lies between chunks."""

_STREAM = 0xDA7A_0007
_LEAST_BLOCKS, _BLOCKS, _VALUES = 8, 256, 4 << 20  # maximum numbers of blocks and target values to examine
_DEVIATIONS = 6  # due to chance, in few rows


@dataclass(frozen=True)
class TargetOrder:
    """How far the most sorted target follows the order of the rows: `share` from about 0 (random) to 1 (sorted)."""

    share: float
    is_sorted: bool


def target_order(rows: Rows) -> TargetOrder:
    """Measure how far the targets of `rows` are sorted; reads targets of at most 256 chunks."""
    if rows.task is None or rows.n_rows <= rows.chunk_rows:
        return TargetOrder(0.0, is_sorted=False)
    values, blocks = _sample(rows)
    if rows.classes is not None:
        return _between(_indicator_sums(values, blocks, len(rows.classes)), blocks)
    columns = [_ranks(column)[:, None] for column in values.reshape(len(values), -1).T]
    return max((_between(_rank_sums(column, blocks), blocks) for column in columns), key=lambda order: order.share)


def _ranks(values: HostArray) -> FloatArray:
    """Return the rank of each value, from 1; equal values have their mean rank."""
    order = np.argsort(values)
    ordered = values[order]
    if (ordered[1:] != ordered[:-1]).all():
        places: FloatArray = np.empty(len(values))
        places[order] = np.arange(1.0, len(values) + 1)
        return places
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def order_note(rows: Rows) -> str | None:
    """Return one sentence when the rows are sorted over longer ranges than the windows of a fit span, else None."""
    if BatchPlan.for_rows(rows, batch_size=1, window_bytes=DEFAULT_WINDOW_BYTES).n_windows == 1:
        return None
    order = target_order(rows)
    if not order.is_sorted:
        return None
    return (
        f"the target is sorted: {order.share:.0%} of its variance lies between chunks of rows, so batches are not "
        "representative; shuffle the store once with 'daskkern shuffle STORE --out STORE'"
    )


@dataclass(frozen=True)
class _Sums:
    """Sums of squared deviations from the overall mean, between blocks and in total; and the number of indicators."""

    between: float
    total: float
    n_indicators: int = 1


def _sample(rows: Rows) -> tuple[HostArray, IntArray]:
    """Return targets of evenly likely blocks of rows, in order, and the number (m,) of the block of each."""
    n, size = rows.n_rows, rows.chunk_rows
    n_blocks = -(-n // size)
    most = max(_LEAST_BLOCKS, min(_BLOCKS, _VALUES // (size * rows.n_targets)))
    chosen = np.arange(n_blocks)
    if n_blocks > most:
        keys = generator(0, _STREAM).bit_generator.random_raw(n_blocks)
        chosen = np.sort(np.argsort(keys, kind="stable")[:most])
    parts = [rows.read(int(b) * size, min((int(b) + 1) * size, n), Fields.y).y for b in chosen]
    values = [part for part in parts if part is not None]
    return np.concatenate(values), np.repeat(np.arange(len(values)), [len(part) for part in values])


def _indicator_sums(codes: IntArray, blocks: IntArray, n_classes: int) -> _Sums:
    """Return the sums for the indicators of all classes, from counts alone."""
    n = len(codes)
    sizes = np.bincount(blocks)
    pairs, counts = np.unique(blocks * n_classes + codes, return_counts=True)
    expected = float((np.bincount(codes, minlength=n_classes) ** 2.0).sum()) / n
    between = float((counts**2.0 / sizes[pairs // n_classes]).sum()) - expected
    return _Sums(between, n - expected, len(np.unique(codes)))


def _rank_sums(values: FloatArray, blocks: IntArray) -> _Sums:
    deviations = values[:, 0] - values.mean()
    sums = np.bincount(blocks, deviations)
    return _Sums(float((sums**2 / np.bincount(blocks)).sum()), float(deviations @ deviations))


def _between(sums: _Sums, blocks: IntArray) -> TargetOrder:
    n, n_blocks = len(blocks), int(blocks[-1]) + 1
    if sums.total <= 0 or n_blocks < 2 or n <= n_blocks:
        return TargetOrder(0.0, is_sorted=False)
    share = sums.between / sums.total
    chance = (n_blocks - 1) / (n - 1)
    spread = np.sqrt(2 * (n_blocks - 1)) / n  # of the share in a random order, approximated by a chi-squared variable
    corrected = max(0.0, 1 - (1 - share) * (n - 1) / (n - n_blocks))
    if sums.n_indicators > n_blocks:  # more classes than this leave little variance between even disjoint blocks
        corrected *= (sums.n_indicators - 1) / (n_blocks - 1)
    surprising = share > chance + _DEVIATIONS * spread
    return TargetOrder(corrected, is_sorted=bool(corrected > SORTED_SHARE and surprising))
