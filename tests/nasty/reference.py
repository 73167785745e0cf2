"""What a fit should have come to: the minimum of the same objective in float64, by dense algebra without daskkern.

Smooth losses are minimised by L-BFGS in coordinates in which the squared loss would be solved in one step; the
hinge of two or more classes is smoothed to within 1e-2 for that. The squared loss is one least-squares problem.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh, lstsq, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from tests.nasty.data import Problem

_RANK = 1e-13
"""Eigenvalues of the kernel matrix below this share of the largest are rounding."""
_SMOOTHING = 1e-2


@dataclass(frozen=True)
class Kernel:
    """A kernel by its formula. `name` is "laplacian", "gaussian" or "polynomial" (of degree 2, plus 1)."""

    name: str
    length_scale: float = 1.0

    def __call__(self, X: Any, Z: Any) -> Any:
        """Return the values (n, m)."""
        if self.name == "polynomial":
            return (X @ Z.T / self.length_scale**2 + 1) ** 2
        r = cdist(X, Z) / self.length_scale
        return np.exp(-r) if self.name == "laplacian" else np.exp(-(r**2) / 2)


def median_distance(X: Any) -> float:
    """Return the median distance of two of the first rows, 1 where that is 0."""
    some = X[np.linspace(0, len(X) - 1, min(len(X), 400)).astype(int)]
    found = float(np.median(cdist(some, some)[np.triu_indices(len(some), 1)]))
    return found if found > 0 else 1.0


def solve(problem: Problem, kernel: Kernel, alpha: float, loss: str, points: Any) -> Any:
    """Return predictions (n_test,) or (n_test, t), targets or labels, of the minimum over kernels at `points`."""
    weight = _weights(problem)
    features, features_test = _coordinates(kernel, problem, points)
    if problem.task == "regression":
        y = problem.y.reshape(len(problem.y), -1)
        centre = np.average(y, axis=0, weights=weight)
        spread = np.sqrt(np.average((y - centre) ** 2, axis=0, weights=weight))
        spread = np.where(spread > 0, spread, 1.0)
        w = _least_squares(features, (y - centre) / spread, weight, alpha)
        return (centre + spread * (features_test @ w)).reshape(problem.y_test.shape)
    classes, codes = np.unique(problem.y, return_inverse=True)
    scores = features_test @ _classify(features, codes, len(classes), weight, alpha, loss)
    found = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return classes[found]


def standardised(problem: Problem) -> Problem:
    """Return the problem with features of mean 0 and variance 1, and without those that are constant."""
    mean, spread = problem.X.mean(axis=0), problem.X.std(axis=0)
    kept = spread > 1e-12 * np.abs(problem.X).max(axis=0)
    X, X_test = (((A - mean) / np.where(kept, spread, 1))[:, kept] for A in (problem.X, problem.X_test))
    return Problem(problem.task, X, problem.y, X_test, problem.y_test, problem.weight, problem.balanced)


def best_alpha(problem: Problem, kernel: Kernel, points: Any) -> float:
    """Return the penalty, of seven, whose squared error by leaving one row out is least."""
    features, _ = _coordinates(kernel, problem, points)
    y = problem.y.reshape(len(problem.y), -1)
    if problem.task == "classification":
        y = (np.unique(problem.y) == y) * 2.0 - 1
    root = np.sqrt(_weights(problem))[:, None]
    U, s, _ = np.linalg.svd(root * features, full_matrices=False)
    y = root * (y - np.average(y, axis=0, weights=root[:, 0] ** 2))
    errors = []
    grid = 10.0 ** np.arange(-7, 0)
    for alpha in grid:
        kept = s**2 / (s**2 + len(y) * alpha)
        left_out = (y - U @ (kept[:, None] * (U.T @ y))) / np.maximum(1 - (U**2) @ kept, 1e-9)[:, None]
        errors.append((left_out**2).sum())
    return float(grid[int(np.argmin(errors))])


def _weights(problem: Problem) -> Any:
    weight = np.ones(len(problem.X)) if problem.weight is None else np.asarray(problem.weight, np.float64)
    if problem.balanced:
        _, codes, counts = np.unique(problem.y, return_inverse=True, return_counts=True)
        weight = weight * (len(codes) / (len(counts) * counts))[codes]
    return weight / weight.mean()


def _coordinates(kernel: Kernel, problem: Problem, points: Any) -> tuple[Any, Any]:
    """Return orthonormal coordinates of training and test rows in the span of the kernel at `points`."""
    values, vectors = eigh(kernel(points, points))
    kept = values > _RANK * values[-1]
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return kernel(problem.X, points) @ basis, kernel(problem.X_test, points) @ basis


def _least_squares(features: Any, y: Any, weight: Any, alpha: float) -> Any:
    root = np.sqrt(weight / len(y))[:, None]
    if not alpha:
        return lstsq(root * features, root * y, cond=1e-12)[0]
    above = np.vstack([root * features, np.sqrt(alpha) * np.eye(features.shape[1])])
    return lstsq(above, np.vstack([root * y, np.zeros((features.shape[1], y.shape[1]))]), lapack_driver="gelsy")[0]


def _classify(features: Any, codes: Any, n_classes: int, weight: Any, alpha: float, loss: str) -> Any:
    hot = (codes[:, None] == np.arange(n_classes)) * 1.0
    signs = 2 * hot - 1 if n_classes > 2 else 2 * hot[:, 1:] - 1
    if loss == "squared":
        return _least_squares(features, signs, weight, alpha)
    measure, y, curvature = {
        "squared_hinge": (_squared_hinge, signs, 2.0),
        "hinge": (_hinge, signs, 25.0),
        "multiclass_hinge": (_multiclass_hinge, hot, 1.0),
    }[loss]
    n, (r, c) = len(features), (features.shape[1], y.shape[1])
    w8 = weight[:, None] / n
    bound = features.T @ (curvature * w8 * features)
    factor = cholesky(bound + max(alpha, 1e-12 * np.trace(bound)) * np.eye(r), lower=True)

    def objective(v: Any) -> tuple[float, Any]:
        w = solve_triangular(factor, v.reshape(r, c), lower=True, trans="T")
        value, slope = measure(features @ w, y)
        gradient = features.T @ (w8 * slope) + alpha * w
        total = float((w8 * value).sum() + alpha / 2 * (w**2).sum())
        return total, solve_triangular(factor, gradient, lower=True).ravel()

    w = cho_solve((factor, True), features.T @ (curvature * w8 * (2 * hot - 1 if c > 1 else signs)))
    options = {"maxiter": 3000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-9}
    found = minimize(objective, (factor.T @ w).ravel(), jac=True, method="L-BFGS-B", options=options)
    return solve_triangular(factor, found.x.reshape(r, c), lower=True, trans="T")


def _squared_hinge(f: Any, y: Any) -> tuple[Any, Any]:
    gap = np.maximum(0, 1 - y * f)
    return (gap**2).sum(axis=1, keepdims=True), -2 * y * gap


def _hinge(f: Any, y: Any) -> tuple[Any, Any]:
    """Return the logarithm of 1 + exp in place of the larger of 0 and the margin."""
    margin = (1 - y * f) / _SMOOTHING
    value = _SMOOTHING * np.logaddexp(0, margin).sum(axis=1, keepdims=True)
    return value, -y * (0.5 + 0.5 * np.tanh(margin / 2))


def _multiclass_hinge(f: Any, y: Any) -> tuple[Any, Any]:
    """Return the log-sum-exp in place of the largest margin."""
    margin = (1 - y + f - (f * y).sum(axis=1, keepdims=True)) / _SMOOTHING
    top = margin.max(axis=1, keepdims=True)
    share = np.exp(margin - top)
    total = share.sum(axis=1, keepdims=True)
    return _SMOOTHING * (top + np.log(total)), share / total - y
