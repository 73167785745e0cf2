"""The solution of normal equations in pieces, between which a run can be stopped, and the loss of what it gives.

The part of a Cholesky factor that is known first solves the first equations in as many unknowns. That is the exact
solution for the first landmarks or features, and for all rows as centres that of the first rows with the same
``n alpha``: what a stopped run returns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.linalg import DenseSolution

Loss = Callable[[FloatArray, float], float]
"""The mean training loss, of a solution (p, c) and the shift of the diagonal."""


@dataclass(frozen=True, eq=False)
class DirectSolution:
    """Equations that are being solved, in place.

    Attributes
    ----------
    equations : DenseSolution
    factors : (p, 1) float64 array or None
        By which solutions are multiplied to become coefficients; None for 1.
    loss : callable
    p : int
    rows : array or None
        Some rows, by which to say why the equations cannot be solved.
    """

    equations: DenseSolution
    factors: FloatArray | None
    loss: Loss
    p: int
    rows: Array | None

    def found(self) -> tuple[FloatArray, float]:
        """Return the coefficients (p, c) and the mean loss, once all equations are solved."""
        return self._model(*self.equations.found())

    def so_far(self) -> tuple[FloatArray, float]:
        """Return the coefficients and the mean loss of the first equations; others are 0."""
        leading, shift = self.equations.leading()
        x = np.zeros((self.p, leading.shape[1]))
        x[: len(leading)] = leading
        return self._model(x, shift, len(leading))

    def _model(self, x: FloatArray, shift: float, known: int | None = None) -> tuple[FloatArray, float]:
        loss = self.loss(x if known is None else x[:known], shift)
        return x if self.factors is None else self.factors * x, max(0.0, loss)


def loss_of_rows(K: FloatArray, right: FloatArray, n: int) -> Loss:
    """Return the loss, where all rows are centres, of equations for the first k of them.

    `K` (p, p) has the kernel matrix with weights in its upper half; residuals of these k rows are the shift times z.
    """

    def loss(z: FloatArray, shift: float) -> float:
        k = len(z)
        rest = right[k:] - K[:k, k:].T @ z
        return 0.5 / n * (shift**2 * float((z * z).sum()) + float((rest * rest).sum()))

    return loss


def loss_of_columns(right: FloatArray, square: float, penalty: Callable[[FloatArray], float]) -> Loss:
    """Return the loss of normal equations for the first k columns.

    `square` is the mean of ``w y^2``, and `penalty` ``alpha |f|^2`` of coefficients (k, c).
    """

    def loss(x: FloatArray, shift: float) -> float:
        penalised = penalty(x) + shift * float((x * x).sum())
        return 0.5 * (square - float((x * right[: len(x)]).sum()) - penalised)

    return loss
