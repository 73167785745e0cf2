"""Scalings that make a model independent of the units of its features, learned from moments and a sample.

A feature is divided by the spread of its informative values. For most features that is the standard deviation.
Four kinds of feature need another number, which scales with the unit of the feature like the first:

- Where nearly all rows share one value, the standard deviation shrinks with the share q of the other rows,
  and these would outweigh all else. Below a q of 1/20, it is divided by the root of 20 q: other values then lie about
  as far from the common one as with a q of 1/20. Where most features are of this kind (pixels, word counts), the
  other values of a row add up, and every feature's standard deviation is divided by the root of q.
- Two values, as categories have, are 2 apart: as far as if both were equally frequent.
- Where the tails are too heavy for the standard deviation to describe the bulk, the width of the bulk is used.
- A constant feature is uninformative: it is divided by a number so large that it never counts.
- Features of many values are bent: linear in the bulk, logarithmic in the tails, ``b arcsinh((x - c) / w)``. c is the
  median and w the width of the bulk; where more than half of the rows have one value, c is this value and w the median
  distance of the others from it. b gives the spread that a feature without a bend has. The
  information in amounts, counts and lengths is in ratios; a few of them would otherwise dominate most distances.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.tiles import slices
from daskkern.data.rows.csr import FeatureRows, is_sparse
from daskkern.data.schema.column_scaling import Scaling, ScalingKind
from daskkern.data.schema.column_statistics import ColumnStatistics
from daskkern.data.schema.rank_tables import rank_tables

LEARNED_KINDS: tuple[ScalingKind, ...] = ("auto", "robust")
IGNORED = 1e30
"""The scale of constant features: finite, and beyond all values that may occur later."""
_HALF, _RARE = 0.5, 0.05  # shares of rows that differ from the common value
_HEAVY = 100.0  # standard deviations of a feature to widths of its bulk: 1 of normal values, 1.4 of exponential ones
_LEVELS = ((0.25, 1.349), (0.1, 2.563), (0.05, 3.290), (0.02, 4.107))  # widths of a standard normal variable
_LEAST_SHARE = _LEVELS[-1][0] / 2  # of sampled rows that differ from the common value; with fewer, these have no width
_ROUNDING = 4 * float(np.finfo(np.float64).eps)
_TWO_VALUED = 1e-6
_COLUMNS = 512


@dataclass(frozen=True)
class _Sampled:
    """Estimates for each column (d,) from a sample of rows.

    Attributes
    ----------
    median, width : array
        Centre and width of the bulk.
    off_mode : array
        Share of rows that differ from the most common value, where that is more than half of them; else 1.
    common : array
        The most common value, where more than half of the rows have it; else the median.
    reach : array
        The median distance from `common` of the values that differ from it; where nothing is common, the width.
    bent : array
        The standard deviation of ``arcsinh((x - common) / reach)``; 0 where it cannot be estimated.
    """

    median: FloatArray
    width: FloatArray
    off_mode: FloatArray
    common: FloatArray
    reach: FloatArray
    bent: FloatArray


def learned_scaling(
    kind: str, statistics: ColumnStatistics, sample: FeatureRows, *, centre: bool = True, bend: bool = True
) -> Scaling:
    """Return the scaling of features with these statistics.

    Parameters
    ----------
    kind : "auto" or "robust"
        "robust" uses the median and the width of the bulk for every feature: the interquartile range divided by
        1.349, its value for a normal variable; where that is 0 that of 10 to 90, 5 to 95 or 2 to 98 hundredths.
    statistics : ColumnStatistics
        Of all rows, or of a large number of them.
    sample : (m, d) array or CSR rows
        Some of the rows, unscaled.
    centre : bool
        Subtract the mean (of bent features and heavy tails the median or the common value); without it zeros stay
        zeros, as sparse rows need, and only features whose common value is 0 are bent.
    bend : bool
        Bend features of many values, with the kind "auto".
    """
    mean, std, low, high = _finite(statistics.table())
    found = _sampled(sample)
    far = np.maximum(high - mean, mean - low)
    # No row is farther from the mean than `far`, so that at least this share of rows differs from the common value.
    least = np.divide(std, far, out=np.ones_like(std), where=far > 0) ** 2
    unit = np.where(std > 0, std, 1.0)
    two_valued = np.abs(((high - mean) / unit) * ((mean - low) / unit) - 1) <= _TWO_VALUED
    off_mode = np.maximum(found.off_mode, least)
    many_valued = (std > 0) & ~two_valued
    most_are = 2 * (many_valued & (off_mode < _HALF)).sum() > many_valued.sum()
    share = np.clip(off_mode / (1.0 if most_are else _RARE), 0, 1)
    scale = np.divide(std, np.sqrt(share), out=np.zeros_like(std), where=share > 0)
    scale = np.where(two_valued, (high - low) / 2, scale)
    heavy = (found.width > 0) & (off_mode >= _HALF)  # where most values are equal, the others are not a tail
    heavy &= ~two_valued if kind == "robust" else std > _HEAVY * found.width
    scale, shift = np.where(heavy, found.width, scale), np.where(heavy, found.median, mean)
    uninformative = ~(std > _ROUNDING * np.maximum(np.abs(low), np.abs(high)))
    bends = np.zeros_like(std)
    if kind == "auto" and bend:
        bends = _bends(found, many_valued & ~uninformative & (centre | (found.common == 0)), share)
        scale = np.divide(found.reach, bends, out=scale, where=bends > 0)
        shift = np.where(bends > 0, found.common, shift)
    scale = np.where(uninformative | ~np.isfinite(scale) | ~(scale > 0), IGNORED, scale)
    shift = shift if centre else np.zeros_like(shift)
    known = next(name for name in LEARNED_KINDS if name == kind)
    bent = tuple(map(float, bends)) if bends.any() else ()
    return Scaling(known, tuple(map(float, shift)), tuple(map(float, scale)), bent)


def ranked_scaling(plain: Scaling, sample: HostArray) -> Scaling:
    """Return the scaling `plain` (without bends) with ranks (:mod:`daskkern.data.schema.rank_tables`) for the features
    of many values in the dense rows `sample` (m, d)."""
    counted = np.flatnonzero(np.asarray(plain.scale) < IGNORED)
    tables = rank_tables(np.asarray(sample, np.float64), counted.tolist())
    own = {table.column for table in tables}
    shift = tuple(0.0 if j in own else value for j, value in enumerate(plain.shift))
    scale = tuple(1.0 if j in own else value for j, value in enumerate(plain.scale))
    return replace(plain, kind="ranks", shift=shift, scale=scale, ranks=tables)


def _bends(found: _Sampled, many_valued: HostArray, share: FloatArray) -> FloatArray:
    """Return the bend b of each feature: ``b arcsinh((x - common) / reach)`` has the spread that a scaled one has."""
    bends = np.divide(np.sqrt(share), found.bent, out=np.zeros_like(share), where=found.bent > 0)
    scale = np.divide(found.reach, bends, out=np.zeros_like(share), where=bends > 0)
    usable = many_valued & np.isfinite(scale) & (scale > 0)
    return np.where(usable, bends, 0.0)


def _finite(table: FloatArray) -> FloatArray:
    """Return mean, std, low and high; where squares left the range of float64, mean and std follow from the range."""
    mean, std, low, high = table
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    usable = np.isfinite(std) & np.isfinite(mean) & ((std > 0) | (half == 0))
    return np.array([np.where(usable, mean, middle), np.where(usable, std, half), low, high])


def _sampled(sample: FeatureRows) -> _Sampled:
    """Return the estimates for the columns of `sample`.

    For sparse rows, only columns with entries in more rows than the tails hold are examined; elsewhere 0 is common.
    """
    if not is_sparse(sample):
        return _of_columns(np.asarray(sample, np.float64))
    rows: Any = sample
    m, d = rows.shape
    stored = np.bincount(rows.indices[rows.data != 0], minlength=d) / max(1, m)
    nothing = np.zeros(d)
    found = _Sampled(nothing, nothing.copy(), stored, nothing.copy(), nothing.copy(), nothing.copy())
    dense = np.flatnonzero(stored >= _LEAST_SHARE)
    columns = rows.tocsc()
    for part in slices(dense.size, _COLUMNS):
        own = dense[part]
        here = _of_columns(columns[:, own].toarray().astype(np.float64))
        for name in (each.name for each in fields(found)):
            getattr(found, name)[own] = getattr(here, name)
    return found


def _of_columns(table: FloatArray) -> _Sampled:
    ordered = np.sort(table, axis=0)
    m = len(ordered)
    width = np.zeros(ordered.shape[1])
    for level, normal in _LEVELS:
        first, last = int(level * (m - 1)), m - 1 - int(level * (m - 1))
        width = np.where(width > 0, width, (ordered[last] - ordered[first]) / normal)
    median = ordered[(m - 1) // 2] / 2 + ordered[m // 2] / 2
    # A value that more than half of the rows have is the median.
    runs = (ordered == ordered[m // 2]).sum(axis=0)
    is_common = 2 * runs > m
    common = np.where(is_common, ordered[m // 2], median)
    off_mode = np.where(is_common, 1 - runs / m, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        away = table - common
        distances = np.sort(np.abs(away), axis=0)
        middle = np.minimum(runs + (m - runs) // 2, m - 1)
        reach = np.where(is_common, np.take_along_axis(distances, middle[None], axis=0)[0], width)
        usable = (off_mode >= _LEAST_SHARE) & (reach > 0) & np.isfinite(distances[-1])
        away = np.where(usable, away / np.where(usable, reach, 1.0), 0.0)
        return _Sampled(median, width, off_mode, common, reach, np.where(usable, np.arcsinh(away).std(axis=0), 0.0))
