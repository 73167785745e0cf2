"""Kernel ridge regression on landmarks, for a sequence of penalties.

With C = K_mz the kernel of m rows and p landmarks and W the weights of the rows, which add up to 1, the minimiser of
``sum_i w_i (f(x_i) - y_i)^2 + alpha |f|^2`` over functions of the landmarks has the coefficients

    a = (C^T W C + alpha K_zz)^-1 C^T W y

(Rudi, Camoriano and Rosasco, "Less is more: Nystrom computational regularization", NIPS 2015, eq. 8).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel
from daskkern.kernels.rows import module_of

BLOCK_ROWS = 4096
"""Rows of a block of the kernel."""
_LEAST = 1e-8  # of k(x, x)
_JITTER = 1e-8  # of the mean of k(z, z), on the diagonal of K_zz: equal landmarks, and rounding
_ROUNDING = 8 * np.finfo(float).eps  # of the trace: equal landmarks of few different rows make both matrices singular
_STEP = 10**0.5
_MOST = 1.0  # of k(x, x), beyond which f is about 0


@dataclass(frozen=True, eq=False)
class Ridge:
    """The normal equations of one kernel.

    Attributes
    ----------
    kernel : Kernel
    landmarks : (p, d) array or CSR rows
    moments : (p, p) array
        ``C^T W C``.
    gram : (p, p) array
        K_zz.
    target : (p, c) array
        ``C^T W y``.
    least, most : float
        Bounds of the penalty.
    solution : (alpha, (p, c) array) or None
        The coefficients of a penalty, where the equations were given up; see :meth:`only`.
    """

    kernel: Kernel
    landmarks: Array
    moments: Array
    gram: Array
    target: Array
    least: float
    most: float
    solution: tuple[float, Array] | None = None

    @classmethod
    def of(cls, kernel: Kernel, Z: Array, X: Array, y: Array, weight: Array) -> "Ridge":
        """Return the equations for rows X (m, d), targets y (m, c) and weights (m,) with the sum 1, all float64."""
        xp = module_of(X)
        points = kernel.points(Z, kernel.placement_for(Z))
        p = Z.shape[0]
        moments, target = xp.zeros((p, p)), xp.zeros((p, y.shape[1]))
        for part in slices(X.shape[0], BLOCK_ROWS):
            C = kernel.block(X[part], points)
            weighted = C * weight[part, None]
            moments += C.T @ weighted
            target += weighted.T @ y[part]
        gram = kernel.block(Z, points)
        gram = (gram + gram.T) / 2
        size = float(gram.diagonal().mean())
        moments = (moments + moments.T) / 2
        gram[xp.arange(p), xp.arange(p)] += _JITTER * size
        moments[xp.arange(p), xp.arange(p)] += _ROUNDING * float(moments.diagonal().sum())
        return cls(kernel, Z, moments, gram, target, _LEAST * size, _MOST * size)

    def only(self, alpha: float) -> "Ridge":
        """Return the solution for one penalty, without the equations, which take most of the memory."""
        nothing = self.moments[:0, :0].copy()
        return replace(self, moments=nothing, gram=nothing, solution=(alpha, self.coefficients(alpha)))

    def coefficients(self, alpha: float) -> Array:
        """Return a (p, c) for a penalty, which is raised to the least one."""
        if self.solution is not None:
            if self.solution[0] != alpha:
                raise ValueError(f"got alpha={alpha!r}; expected {self.solution[0]!r}, of which the solution was kept")
            return self.solution[1]
        xp = module_of(self.target)
        solved: Array = xp.linalg.solve(self.moments + max(alpha, self.least) * self.gram, self.target)
        return solved

    def scores(self, alpha: float, X: Array) -> FloatArray:
        """Return the scores (k, c) of rows X with a penalty, on the host."""
        found: FloatArray = to_host(self.kernel.matvec(X, self.landmarks, self.coefficients(alpha)))
        return found

    def best(
        self, X: Array, losses: Callable[[FloatArray], FloatArray], weight: FloatArray, start: float
    ) -> tuple[float, FloatArray]:
        """Return the penalty of the least weighted mean loss on rows X, and the losses (k,) with it.

        `losses` are those of scores (k, c). Penalties are half a decade apart. From `start` it goes downhill, as a mean
        loss has one minimum in practice.
        """
        start = float(np.clip(start, self.least, self.most))
        best = start, losses(self.scores(start, X))
        for step in (1 / _STEP, _STEP):
            while self.least <= best[0] * step * (1 + 1e-9) and best[0] * step <= self.most:
                errors = losses(self.scores(best[0] * step, X))
                if not errors @ weight < best[1] @ weight:
                    break
                best = best[0] * step, errors
            if best[0] != start:
                break
        return best
