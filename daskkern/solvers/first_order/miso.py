"""MISO (minimisation by incremental surrogate optimisation), also known as Finito.

For every row a mean u_i of minus the slopes of its loss is stored, and the model follows from them,
``w = sum_i w_i u_i x_i / (alpha n)``. A step moves the mean of one row towards minus its slope,

    u_i <- u_i - delta_i (u_i + loss'(z_i)),   z_i = f(x_i),   delta_i = 1 / (1 + smoothness w_i |x_i|^2 / (alpha n))

Each row's part of the objective, the penalty included, is thus replaced by a parabola below it, and the sum of the
parabolas is minimised again after every row: w is its minimiser. For linear models the n points of the paper are
multiples of the rows, so that only one number a row and output is stored.

Distributed and exact as :mod:`daskkern.solvers.first_order.sdca`, of which this is the form for smooth losses: a step
needs their slope alone. Where the conjugate is known the duality gap is computed, too.

References
----------
Mairal, "Incremental majorization-minimization optimization with application to large-scale machine learning", SIAM J.
Optim. 2015, algorithm 4 (MISO-mu); Defazio, Domke and Caetano, "Finito", ICML 2014; Shalev-Shwartz, "SDCA without
duality, regularization, and individual convexity", ICML 2016 (the step, there called eta alpha n).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from daskkern.arrays import FloatArray
from daskkern.losses import Dual, Loss, Smooth
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.first_order.sdca import SDCA


@dataclass(frozen=True)
class MISO(SDCA):
    """MISO, for smooth losses; needs ``alpha > 0``, and has no step size. Linear convergence.

    Parameters
    ----------
    tol : float
        The fit ends with a duality gap of at most `tol` times the loss of the zero model, where the conjugate of the
        loss is known; 0 disables this.
    gap_every : int
        Epochs from one gap to the next. Each gap takes one more pass over the rows.
    averaging : float
        Share of the run, at its end, whose iterates are averaged; 0 returns the last.
    """

    name: ClassVar[str] = "miso"
    averaging: float | str = 0.0
    ability: ClassVar[tuple[type[Any], str] | None] = (Smooth, "a smooth gradient")

    def sweeps(self, epoch: int, loss: Loss) -> int:
        return super().sweeps(epoch, loss) if isinstance(loss, Dual) else 1

    def updated_dual(self, loss: Loss, z: FloatArray, u: FloatArray, y: FloatArray, Q: FloatArray) -> FloatArray:
        moved: FloatArray = u - (u + loss.gradient(z, y)) / (1 + smoothness_of(loss) * Q)
        return moved
