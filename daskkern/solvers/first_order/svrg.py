"""Stochastic variance-reduced gradients.

    mu = (1/n) sum_i g_i(w~) x_i                                 a pass over the rows, with w~ the iterate
    w <- (1 - eta alpha) w - eta (mu + (1/m) Phi_B^T (g_B(w) - g_B(w~)))      for each batch

The noise of a step vanishes as w and w~ near the optimum, so that constant steps converge linearly.

References
----------
Johnson and Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NeurIPS 2013.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.first_order.variance_reduced import FullGradientRun, FullGradients
from daskkern.solvers.problem import Batch, ColumnProblem


@dataclass(frozen=True)
class SVRG(FullGradients):
    """Stochastic variance-reduced gradients, for smooth losses; linear convergence with ``alpha > 0``."""

    name: ClassVar[str] = "svrg"

    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> FullGradientRun:
        del problem, eta
        return replace(state, other=state.w)

    def moved(
        self, problem: ColumnProblem, state: FullGradientRun, batch: Batch, difference: Array, eta: float
    ) -> FullGradientRun:
        shrunk = state.w * (1 - eta * problem.alpha) - state.gradient * eta
        return replace(state, w=descend(problem, batch, shrunk, difference * -eta))
