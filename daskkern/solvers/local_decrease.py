"""The decrease of an objective within reach of a model: a small convex problem in float64, on the host.

With directions h_j, coefficients b and h = sum_j b_j h_j, the objective near the model f is

    J(b) = sum_i w_i loss(f(x_i) + h(x_i), y_i) + alpha (<f, h> + |h|^2 / 2) ,

but for a constant. It falls along few conjugate directions, preconditioned with the curvature of the squared loss, for
which the first step is the solution; whatever the loss, what is found never lies above J(0).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from daskkern.arrays import FloatArray, HostArray
from daskkern.linalg.symmetric import symmetric_eigen
from daskkern.losses import Loss
from daskkern.solvers.base import smoothness_of

_RANK = 1e-13  # directions with a smaller share of the largest eigenvalue are rounding
_JITTER = 1e-12
_ITERATIONS = 12
_HALVINGS, _LONGEST = 12, 64.0
_ENOUGH = 1e-3


@dataclass(frozen=True, eq=False)
class Nearby:
    """Directions that are orthonormal in the norm of the penalty.

    Attributes
    ----------
    values : (k, m) array
        The directions at the rows.
    inner : (m, c) array
        Their inner products with f.
    """

    values: FloatArray
    inner: FloatArray

    @classmethod
    def of_kernels(cls, values: FloatArray, f: FloatArray, gram: FloatArray) -> "Nearby":
        """Return the span of kernels at m points: `values` (k, m), f at the points (m, c), and their kernel (m, m)."""
        eigenvalues, vectors = symmetric_eigen((gram + gram.T) / 2)
        kept = eigenvalues > _RANK * max(float(eigenvalues[-1]), 0.0)
        basis = vectors[:, kept] / np.sqrt(eigenvalues[kept])
        return cls(values @ basis, basis.T @ f)


@dataclass(frozen=True, eq=False)
class Local:
    """The objective near a model.

    Attributes
    ----------
    loss : Loss
    alpha : float
    near : Nearby
    f : (k, c) array
        Scores of the model.
    y : (k, c) array
    weight : (k,) array
        Sums to 1.
    more : float
        Multiplies ``|h|^2 / 2`` in what :meth:`minimise` finds, in addition to alpha.
    """

    loss: Loss
    alpha: float
    near: Nearby
    f: FloatArray
    y: HostArray
    weight: FloatArray
    more: float = 0.0

    def losses(self, move: FloatArray) -> FloatArray:
        """Return the weighted loss of each row (k,) where scores are moved by `move` (k, c)."""
        found: FloatArray = self.weight * self.loss.value(self.f + move, self.y)
        return found

    def penalty(self, b: FloatArray) -> float:
        """Return by how much coefficients `b` (m, c) raise the penalty."""
        return self.alpha * float((b * (self.near.inner + b / 2)).sum())

    def minimise(self) -> FloatArray:
        """Return coefficients (m, c) with nearly the least objective."""
        factor = self._factor()
        b, move = np.zeros_like(self.near.inner), np.zeros_like(self.f)
        direction = slope = np.zeros_like(b)
        steep, least = 1.0, float(self.losses(move).sum())
        start = least
        for _ in range(_ITERATIONS):
            new = self._gradient(b, move)
            down = cho_solve(factor, new)
            turned = max(0.0, float((down * (new - slope)).sum()) / steep)  # Polak and Ribiere
            direction, slope, steep = turned * direction - down, new, float((down * new).sum())
            if not steep > 0:
                break
            change = self.near.values @ direction
            size, value = self._step(b, move, direction, change, least)
            b, move, before, least = b + size * direction, move + size * change, least, value
            if before - least <= _ENOUGH * (start - least):
                break
        return b

    def _factor(self) -> tuple[FloatArray, bool]:
        H = self.near.values
        curvature = smoothness_of(self.loss) * (H.T @ (self.weight[:, None] * H))
        index = np.arange(len(curvature))
        least = _JITTER * float(np.trace(curvature)) + np.finfo(float).tiny
        curvature[index, index] += max(self.alpha + self.more, least)
        factor: tuple[FloatArray, bool] = cho_factor(curvature, lower=True, overwrite_a=True)
        return factor

    def _gradient(self, b: FloatArray, move: FloatArray) -> FloatArray:
        g = self.weight[:, None] * self.loss.gradient(self.f + move, self.y)
        found: FloatArray = self.near.values.T @ g + self.alpha * (self.near.inner + b) + self.more * b
        return found

    def _step(
        self, b: FloatArray, move: FloatArray, direction: FloatArray, change: FloatArray, least: float
    ) -> tuple[float, float]:
        """Return how far to go in `direction`, 0 where nothing lowers the objective, and what that comes to."""

        def value(size: float) -> float:
            to = b + size * direction
            more = self.more / 2 * float((to * to).sum())
            return float(self.losses(move + size * change).sum()) + self.penalty(to) + more

        for size in 0.5 ** np.arange(_HALVINGS):
            found = value(size)
            if found < least:
                break
        else:
            return 0.0, least
        while size < _LONGEST and (longer := value(2 * size)) < found:
            size, found = 2 * size, longer
        return float(size), found
