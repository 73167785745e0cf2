"""Warped features: increasing maps that stretch a feature where a fitted function varies most.

Weights of features say how much a function changes with each of them, wherever that is. Where it is piecewise constant,
as for thresholds and signs, it changes in a few narrow places only. With ``E_j(u)`` the mean squared derivative of a
function by feature j where that has the value u, a feature is mapped to ``t_j(u)`` with ``t_j' = E_j(u)^(1/2)``: the
metric of average gradient outer products (:mod:`daskkern.feature_learning`), conditional on each feature's value. For a
constant ``E_j`` these are the learned weights. Fitted to the warped features, a function is steeper at the thresholds,
and the next warp finds them more exactly (for warps of inputs see Snoek, Swersky, Zemel and Adams, "Input warping for
Bayesian optimization of non-stationary functions", ICML 2014).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.learned_scaling import IGNORED
from daskkern.data.schema.rank_tables import RankTable

_ROWS_PER_CELL, _FEWEST_CELLS, _MOST_CELLS = 20, 8, 64
_MOST_NUMBERS = 1 << 15  # of all knots together: a model records them as JSON
_CHANCE = 2.0  # rows with the mean of the feature that each cell has besides its own
_LEAST_SQUARE = 0.02  # of a cell, in units of the feature's mean square
_LEAST_WEIGHT = 1e-3  # of the largest
_FLAT = 1e-9  # of the range of a feature: knots that are closer are one


@dataclass(frozen=True, eq=False)
class Warp:
    """A scaling with warped features, and weights of those that have no warp.

    Attributes
    ----------
    scaling : Scaling
    weights : (d,) array
        1 for features with a warp.
    """

    scaling: Scaling
    weights: FloatArray


def warp_of(
    squares: FloatArray,
    X: HostArray,
    weight: FloatArray | None,
    knots: FloatArray,
    base: Scaling,
    now: Scaling,
    codes: Sequence[int] = (),
) -> Warp:
    """Return the warp that follows from the derivatives of a function.

    Parameters
    ----------
    squares : (m, d) array
        Squared derivatives at some rows, by the features as `now` scales them.
    X : (m, d) array
        These rows, unscaled.
    weight : (m,) array or None
        Of the rows.
    knots : (k, d) array
        Values of each feature between which the map is linear, ascending; see :func:`knots_of`.
    base : Scaling
        What is warped.
    now : Scaling
        Of the rows that the function was fitted to: `base`, or that of the warp before.
    codes : sequence of int
        Columns of codes of categories, which have no order and no warp.
    """
    m, d = X.shape
    base = _with_numbers(base, d)
    counts = np.ones(m) if weight is None else weight * (m / weight.sum())
    at, before = base.apply(knots, np.float64), now.apply(knots, np.float64)
    plain = {*codes, *np.flatnonzero(np.asarray(base.scale) >= IGNORED).tolist()}
    found = {j: _KnotCells.of(knots[:, j], at[:, j], before[:, j]) for j in range(d) if j not in plain}
    cells = {j: one.measured(X[:, j], squares[:, j], counts) for j, one in found.items() if len(one.values) > 1}
    means = counts @ squares / m
    for j, one in cells.items():
        means[j] = one.mean
    size = float(means.mean())
    if not (size > 0 and np.isfinite(size)):
        return Warp(base, np.ones(d))
    least = _LEAST_WEIGHT * float(np.sqrt(means.max() / size))
    weights = np.maximum(np.sqrt(means / size), least)
    tables = tuple(one.table(j, size, least) for j, one in cells.items())
    weights[list(cells)] = 1.0
    return Warp(_with_tables(base, tables), weights)


def knots_of(X: HostArray) -> FloatArray:
    """Return values (k, d) of each feature of rows X (n, d) with about as many rows between any two of them."""
    n, d = X.shape
    most = max(_FEWEST_CELLS, min(_MOST_CELLS, _MOST_NUMBERS // max(1, d)))
    k = int(np.clip(n // _ROWS_PER_CELL, _FEWEST_CELLS, most))
    found: FloatArray = np.quantile(X, np.linspace(0, 1, k + 1), axis=0, method="closest_observation")
    return found


@dataclass(frozen=True, eq=False)
class _KnotCells:
    """The intervals between the knots of one feature, with the mean squares of the derivative in each.

    Attributes
    ----------
    values : (k,) array
        The knots, different ones.
    steps : (k - 1,) array
        Widths of the cells as the base scales them.
    ratios : (k - 1,) array
        The slope of the current scaling by that of the base.
    squares : (k - 1,) array
        Mean squared derivatives by the feature as the base scales it.
    mean : float
        Of all rows.
    """

    values: FloatArray
    steps: FloatArray
    ratios: FloatArray
    squares: FloatArray
    mean: float

    @classmethod
    def of(cls, values: FloatArray, at: FloatArray, before: FloatArray) -> "_KnotCells":
        """Return the cells of knots whose places are `at` with the base, and `before` with the current scaling."""
        kept = np.flatnonzero(np.diff(at, prepend=-np.inf) > _FLAT * (at[-1] - at[0]))
        values, at, before = values[kept], at[kept], before[kept]
        steps = np.diff(at)
        return cls(values, steps, np.diff(before) / steps, np.zeros_like(steps), 0.0)

    def measured(self, x: HostArray, squares: FloatArray, counts: FloatArray) -> "_KnotCells":
        """Return the cells with the squares (m,) of rows x (m,); a row at a knot belongs to the cells on both sides."""
        last = len(self.steps) - 1
        left, right = (np.clip(np.searchsorted(self.values, x, side) - 1, 0, last) for side in ("left", "right"))
        sides = [(left, 0.5 * counts), (right, 0.5 * counts)]
        total = sum(np.bincount(cell, share * squares, last + 1) for cell, share in sides) * self.ratios**2
        size = sum(np.bincount(cell, share, last + 1) for cell, share in sides)
        mean = float(total.sum() / counts.sum())
        return replace(self, squares=(total + _CHANCE * mean) / (size + _CHANCE), mean=mean)

    def table(self, column: int, size: float, least: float) -> RankTable:
        """Return the map, in which a mean square of `size` has the slope 1."""
        slopes = np.maximum(np.sqrt(np.maximum(self.squares, _LEAST_SQUARE * self.mean) / size), least)
        to = np.concatenate([[0.0], np.cumsum(slopes * self.steps)])
        return RankTable(column, tuple(map(float, self.values)), tuple(map(float, to - to.mean())))


def _with_numbers(scaling: Scaling, d: int) -> Scaling:
    """Return the same scaling with a shift and a scale of each of d features."""
    if scaling.kind != "none":
        return scaling
    return replace(scaling, kind="warped", shift=(0.0,) * d, scale=(1.0,) * d)


def _with_tables(base: Scaling, tables: tuple[RankTable, ...]) -> Scaling:
    """Return the scaling with these tables in place of what it does to their columns."""
    own = {table.column for table in tables}

    def others(values: tuple[float, ...], neutral: float) -> tuple[float, ...]:
        return tuple(neutral if j in own else value for j, value in enumerate(values))

    bend = others(base.bend, 0.0)
    return Scaling(
        "warped",
        others(base.shift, 0.0),
        others(base.scale, 1.0),
        bend if any(bend) else (),
        tuple(sorted((*tables, *(one for one in base.ranks if one.column not in own)), key=lambda one: one.column)),
    )
