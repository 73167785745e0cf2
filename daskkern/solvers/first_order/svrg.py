"""Stochastic variance-reduced gradients.

    mu = (1/n) sum_i g_i(w~) x_i                                 a pass over the rows, with w~ the iterate
    w <- (1 - eta alpha) w - eta (mu + (1/m) Phi_B^T (g_B(w) - g_B(w~)))      for each batch

and the next w~ is the last iterate, or one drawn from all of them.

The noise of a step vanishes as w and w~ near the optimum, so that constant steps converge linearly.

References
----------
Johnson and Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NeurIPS 2013 (its
options I and II).
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.first_order.variance_reduced import FullGradientRun, FullGradients
from daskkern.solvers.problem import Batch, ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.stored_settings import SINCE_LATER

_STREAM = 77


@dataclass(frozen=True)
class SVRG(FullGradients):
    """Stochastic variance-reduced gradients, for smooth losses; linear convergence with ``alpha > 0``.

    Parameters
    ----------
    restart : {"last", "random"}
        Where the next full gradient is taken: at the last of the m + 1 iterates of an epoch, the first among them, or
        at one of these that is drawn with equal probability. The proof of the linear rate draws; the last one has made
        all steps of the epoch. Steps after the drawn iterate would be forgotten, so they do not move the model.
    """

    name: ClassVar[str] = "svrg"

    restart: str = field(default="last", metadata=SINCE_LATER)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restart not in ("last", "random"):
            raise SpecError(f"got restart={self.restart!r} for SVRG; expected 'last' or 'random'")

    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> FullGradientRun:
        del eta
        left = -1
        if self.restart == "random":
            setup: ColumnSetup = problem.extra
            left = int(generator(setup.seed, _STREAM, state.begun).integers(self.inner * problem.batches_per_epoch + 1))
        return replace(state, other=state.w, begun=state.begun + 1, left=left)

    def moved(
        self, problem: ColumnProblem, state: FullGradientRun, batch: Batch, difference: Array, eta: float
    ) -> FullGradientRun:
        if not state.left:
            return state
        shrunk = state.w * (1 - eta * problem.alpha) - state.gradient * eta
        return replace(state, w=descend(problem, batch, shrunk, difference * -eta), left=max(state.left - 1, -1))
