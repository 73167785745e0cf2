"""The exact one-class SVM hyperplane: directly for few rows, by working sets for many.

    min  1/2 |w|^2 - rho + 1/nu  sum_i c_i max(0, rho - w^T phi_i) ,      sum_i c_i = 1

Only rows that score at most rho have coefficients in ``w = sum_i a_i phi_i``, ``0 <= a_i <= c_i / nu``. A round solves
the problem of a working set, with coefficients of 0 for all other rows, scores all rows in a pass, and keeps the
support vectors with the rows of the least scores. ``-|w|^2 / 2`` is the dual objective of a round, which rises from one
to the next; the difference from the objective above, the duality gap, ends the rounds.

References
----------
Osuna, Freund and Girosi, "An improved training algorithm for support vector machines", NNSP 1997, section 3.
Schoelkopf, Platt, Shawe-Taylor, Smola and Williamson, "Estimating the support of a high-dimensional distribution",
Neural Computation 2001, equations 3.4 and 3.11.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import OneClassSVM

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.training.feeding.row_source import RowSource
from daskkern.unsupervised.feature_map import FeatureMap
from daskkern.unsupervised.passes import RowPasses

_ROOM = 500  # rows of a working set, in addition to those that must have coefficients


@dataclass(frozen=True, eq=False)
class Hyperplane:
    """``w`` (r,), ``rho``, and the number of iterations on the sample, or passes over all rows."""

    w: FloatArray
    rho: float
    n_iter: int


@dataclass(frozen=True, eq=False)
class Solution:
    """``w`` (r,) of some rows, the places of those with coefficients above 0, and the number of iterations."""

    w: FloatArray
    support: IntArray
    n_iter: int


def features_of(rows: Rows, features: FeatureMap) -> tuple[FloatArray, FloatArray]:
    """Return the features (m, r) and weights (m,) of all rows, float64, in host memory."""
    parts = list(features.blocks(rows, slice(0, rows.n_rows)))
    phi: FloatArray = np.concatenate([to_host(part[0]).astype(np.float64) for part in parts])
    weight: FloatArray = np.concatenate([_weight(part[0], part[2]) for part in parts])
    return phi, weight


def some_rows(source: RowSource, positions: IntArray, dtype: str) -> Rows:
    """Return the rows at ascending `positions`, in memory."""
    block = take(source.open(dtype), positions, Fields.X | Fields.weight)
    assert block.X is not None
    return ArrayRows(block.X, weight=block.weight, dtype=dtype)


def solve_exactly(phi: FloatArray, weight: FloatArray, nu: float, score_tol: float | None = None) -> Solution:
    """Return the solution for rows of features `phi` (m, r) and weights (m,), by scikit-learn's solver.

    Scores are exact up to `score_tol`; None is 1e-5 divided by ``nu m``, in units of scikit-learn's scores.

    Raises
    ------
    DataError
        When the weights add up to 0.
    """
    if not weight.sum() > 0:
        raise DataError("the sample weights add up to 0; give some rows a positive weight")
    counted = np.flatnonzero(weight > 0)
    phi, weight = phi[counted], weight[counted]
    tol = 1e-5 if score_tol is None else score_tol * nu * len(phi)
    model: Any = OneClassSVM(kernel="precomputed", nu=nu, tol=max(tol, 1e-10))
    model.fit(phi @ phi.T, sample_weight=weight / weight.mean())
    dual = model.dual_coef_[0]
    w: FloatArray = phi[model.support_].T @ dual / dual.sum()
    return Solution(w, counted[model.support_], max(1, int(np.sum(model.n_iter_))))


def sorted_quantile(scores: FloatArray, weight: FloatArray, nu: float) -> float:
    """Return a number between two scores, below which is as much as possible of the weight, and at most `nu` of it."""
    order = np.argsort(scores)
    ordered, share = scores[order], np.cumsum(weight[order]) / weight.sum()
    below = int(np.searchsorted(share, nu * (1 + 1e-12), side="right"))
    if below == 0 or below == ordered.size:
        edge = ordered[0] if below == 0 else ordered[-1]
        return float(edge - 1e-9 * abs(edge)) if below == 0 else float(edge + 1e-9 * abs(edge))
    return float(ordered[below - 1] / 2 + ordered[below] / 2)


def by_working_sets(
    passes: RowPasses, features: FeatureMap, w: FloatArray, nu: float, most: int, max_iter: int, tol: float
) -> Hyperplane | None:
    """Return the hyperplane of all rows, or None where half of `most` rows are fewer than the outliers, nu n.

    Parameters
    ----------
    w : (r,) array
        Where the first pass begins.
    most : int
        Rows of a working set.
    max_iter : int
        Most passes over all rows. Memory: a score and a weight for each row, in addition to those of a working set.
    tol : float
        Rounds end when the duality gap is at most this share of ``|w|^2``.
    """
    if nu * passes.source.info.n_rows > most // 2:
        return None
    best, least = Hyperplane(w, 0.0, 0), np.inf
    support: IntArray = np.empty(0, np.int64)
    before = np.inf  # |w|^2 of the round before
    for done in range(1, max_iter + 1):
        scores, weight = passes.values(_Scored(features, w)).T
        rho = sorted_quantile(scores, weight, nu)
        square = float(w @ w)
        value = 0.5 * square - rho + float(weight @ np.maximum(rho - scores, 0)) / (nu * float(weight.sum()))
        if value < least:
            best, least = Hyperplane(w, rho, done), value
        if support.size and (value + 0.5 * square <= tol * square or before - square <= 1e-3 * tol * square):
            break
        before = square if support.size else np.inf
        chosen = _working_set(scores, weight, support, nu, most)
        if chosen is None:
            return None
        inner = min(1.0, nu * float(weight.sum() / weight[chosen].sum()))
        score_tol = 0.1 * tol * rho if rho > 0 else None
        solve = partial(_solved, positions=chosen, features=features, dtype=passes.dtype, nu=inner, score_tol=score_tol)
        found = passes.once(solve)
        w, support = found.w, chosen[found.support]
    return Hyperplane(best.w, best.rho, done)


def _working_set(scores: FloatArray, weight: FloatArray, support: IntArray, nu: float, most: int) -> IntArray | None:
    """Return the rows of the next round, ascending, or None where they would be too many."""
    order = np.argsort(scores)
    heavy = int(np.searchsorted(np.cumsum(weight[order]), nu * float(weight.sum()))) + 1
    size = max(2 * (heavy + _ROOM), support.size + _ROOM)
    if heavy > most // 2 or support.size > most - most // 8:
        return None
    others = order[~np.isin(order, support) & (weight[order] > 0)]
    chosen: IntArray = np.sort(np.concatenate([support, others[: min(size, most) - support.size]]))
    return chosen if weight[chosen].sum() >= nu * weight.sum() else None


def _solved(
    source: RowSource, positions: IntArray, features: FeatureMap, dtype: str, nu: float, score_tol: float | None
) -> Solution:
    return solve_exactly(*features_of(some_rows(source, positions, dtype), features), nu, score_tol)


def _weight(phi: Any, weight: HostArray | None) -> HostArray:
    return np.ones(phi.shape[0]) if weight is None else weight


@dataclass(frozen=True, eq=False)
class _Scored:
    """The scores ``phi(x)^T w`` and the weights of rows, (m, 2) float64."""

    features: FeatureMap
    w: FloatArray

    def __call__(self, rows: Rows, part: slice) -> HostArray:
        found = []
        for phi, _, weight in self.features.blocks(rows, part):
            scores = to_host(phi.astype(np.float64, copy=False) @ namespace_of(phi).asarray(self.w))
            found.append(np.stack([scores, _weight(phi, weight)], axis=1))
        return np.concatenate(found)
