"""The hyperplane of a one-class SVM: exact on few rows; by working sets, or by Newton's method on a smoothed loss.

    min  1/2 |w|^2 - rho + 1/nu  sum_i c_i h(rho - w^T phi_i) ,      h(t) = max(0, t) ,  sum_i c_i = 1

The sum of the coefficients is 1, as in the paper; scikit-learn's solution is this one times nu n. Between -e/2 and e/2
the loss is ``(t + e/2)^2 / (2 e)``. At the end rho is the nu-quantile of ``w^T phi`` over all rows, at which the
objective is least for this w.

References
----------
Schoelkopf, Platt, Shawe-Taylor, Smola and Williamson, "Estimating the support of a high-dimensional distribution",
Neural Computation 2001, equation 3.4 and proposition 3. Chapelle, "Training a support vector machine in the primal",
Neural Computation 2007, section 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.random import generator
from daskkern.data.rows.rows import Rows
from daskkern.training.feeding.row_source import RowSource
from daskkern.unsupervised.feature_map import FeatureMap
from daskkern.unsupervised.passes import RowPasses, Totals
from daskkern.unsupervised.working_sets import (
    Hyperplane,
    by_working_sets,
    features_of,
    solve_exactly,
    some_rows,
    sorted_quantile,
)

SAMPLE = 4000
"""Rows up to which all of them are the sample."""
_WIDTHS = (0.3, 0.05)  # of the smoothed part of the loss, in standard deviations of the scores
_HALVINGS = 4
_BINS = 1 << 16
_DRAW = 92


@dataclass(frozen=True, eq=False)
class _SampleSolution:
    """The hyperplane of a sample, and the spread, least and largest of its scores."""

    plane: Hyperplane
    spread: float
    low: float
    high: float


def hyperplane(passes: RowPasses, features: FeatureMap, nu: float, max_iter: int, tol: float, seed: int) -> Hyperplane:
    """Return the hyperplane of all rows.

    Where the rows below it are at most half of SAMPLE, it is found by working sets, until the duality gap is at most
    `tol` of ``|w|^2``; otherwise Newton's method ends when the objective is within `tol` of its minimum, relatively,
    by the Newton decrement.
    """
    found = passes.once(partial(_of_sample, features=features, dtype=passes.dtype, nu=nu, seed=seed))
    plane = found.plane
    if passes.source.info.n_rows <= SAMPLE:
        return plane
    few = by_working_sets(passes, features, plane.w, nu, SAMPLE, max_iter, tol)
    if few is not None:
        return few
    done = 0
    for width in _WIDTHS:
        value = partial(_newton, passes, features, nu, max(width * found.spread, 1e-12 * (abs(plane.rho) + 1)))
        plane, used = _minimised(value, plane, max_iter - done, tol)
        done += used
    rho = _quantile(passes, features, plane.w, nu, found.low, found.high)
    return Hyperplane(plane.w, rho, done)


def _of_sample(source: RowSource, features: FeatureMap, dtype: str, nu: float, seed: int) -> _SampleSolution:
    rows = source.open(dtype)
    if rows.n_rows > SAMPLE:
        drawn = np.sort(generator(seed, _DRAW).choice(rows.n_rows, SAMPLE, replace=False))
        rows = some_rows(source, drawn, dtype)
    phi, weight = features_of(rows, features)
    found = solve_exactly(phi, weight, nu)
    scores = phi[weight > 0] @ found.w
    plane = Hyperplane(found.w, sorted_quantile(scores, weight[weight > 0], nu), found.n_iter)
    return _SampleSolution(plane, float(scores.std()), float(scores.min()), float(scores.max()))


@dataclass(frozen=True, eq=False)
class _Newton:
    """The objective at a point (w, rho), the Newton step from there, and its decrement."""

    value: float
    step: FloatArray
    decrement: float


def _minimised(
    at: Callable[[FloatArray], _Newton], start: Hyperplane, max_iter: int, tol: float
) -> tuple[Hyperplane, int]:
    """Return the minimum by Newton's method with halved steps, and the number of passes."""
    best = np.append(start.w, start.rho)
    here, length, used = at(best), 1.0, 1
    while used < max_iter and here.decrement > tol * float(best[:-1] @ best[:-1]):
        point = best + length * here.step
        there = at(point)
        used += 1
        if there.value <= here.value:
            best, here, length = point, there, 1.0
        elif length <= 2.0**-_HALVINGS:
            break
        else:
            length /= 2
    return Hyperplane(best[:-1], float(best[-1]), 0), used


def _newton(passes: RowPasses, features: FeatureMap, nu: float, width: float, point: FloatArray) -> _Newton:
    w, rho = point[:-1], float(point[-1])
    numbers, slope, bend, square = passes.totals(_LossSums(features, w, rho, width))
    total, loss, slopes, bends = numbers
    scale = 1 / (nu * total)
    gradient = np.append(w - scale * slope, scale * slopes - 1)
    hessian = np.zeros((point.size, point.size))
    hessian[:-1, :-1] = scale * square
    hessian[np.arange(w.size), np.arange(w.size)] += 1
    hessian[-1, :-1] = hessian[:-1, -1] = -scale * bend
    hessian[-1, -1] = scale * bends + 1e-8 * max(scale * bends, 1.0)
    step = -scipy.linalg.solve(hessian, gradient, assume_a="pos")
    return _Newton(0.5 * float(w @ w) - rho + scale * loss, step, float(-gradient @ step))


@dataclass(frozen=True, eq=False)
class _LossSums:
    """Sums over rows: of weights, loss, first and second derivatives; of these times phi; and of ``h'' phi phi^T``."""

    features: FeatureMap
    w: FloatArray
    rho: float
    width: float

    def __call__(self, rows: Rows, part: slice) -> Totals:
        r = self.features.n_features
        numbers, slope, bend, square = np.zeros(4), np.zeros(r), np.zeros(r), np.zeros((r, r))
        for phi, _, weight in self.features.blocks(rows, part):
            xp = namespace_of(phi)
            c = xp.ones(phi.shape[0]) if weight is None else xp.asarray(weight)
            t = self.rho - phi @ xp.asarray(self.w)
            inside = xp.abs(t) < self.width / 2
            past = xp.maximum(t + self.width / 2, 0)
            loss = xp.where(inside, past**2 / (2 * self.width), xp.maximum(t, 0))
            first, second = c * xp.minimum(past / self.width, 1), c * inside / self.width
            numbers += np.array([float(each.sum()) for each in (c, c * loss, first, second)])
            slope += to_host(first @ phi)
            bend += to_host(second @ phi)
            near = phi[inside].astype(np.float64)
            square += to_host((near * second[inside][:, None]).T @ near)
        return numbers, slope, bend, square


def _quantile(passes: RowPasses, features: FeatureMap, w: FloatArray, nu: float, low: float, high: float) -> float:
    """Return a number below which the scores of at most `nu` of the weight are, nearly that much, from a histogram."""
    while True:
        (counts,) = passes.totals(_Histogram(features, w, low, high))
        share = np.cumsum(counts) / counts.sum()
        if share[0] <= nu:
            edges = np.linspace(low, high, _BINS + 1)
            below = int(np.searchsorted(share, nu * (1 + 1e-12), side="right")) - 1
            return float(edges[min(below, _BINS)])
        low -= 4 * (high - low) + abs(low)


@dataclass(frozen=True, eq=False)
class _Histogram:
    """Weights of the scores of rows below `low`, in bins up to `high`, and above."""

    features: FeatureMap
    w: FloatArray
    low: float
    high: float

    def __call__(self, rows: Rows, part: slice) -> Totals:
        counts: HostArray = np.zeros(_BINS + 2)
        edges = np.linspace(self.low, self.high, _BINS + 1)
        for phi, _, weight in self.features.blocks(rows, part):
            scores = to_host(phi @ namespace_of(phi).asarray(self.w))
            places = np.searchsorted(edges, scores, side="right")
            counts += np.bincount(places, weight, minlength=_BINS + 2)
        return (counts,)
