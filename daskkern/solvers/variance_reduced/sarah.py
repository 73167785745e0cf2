"""Stochastic recursive gradients.

    v <- (1/n) sum_i g_i(w) x_i + alpha w,   w_1 = w - eta v                     a pass over the rows
    v <- v + (1/m) Phi_B^T (g_B(w_t) - g_B(w_{t-1})) + alpha (w_t - w_{t-1}),   w_{t+1} = w_t - eta v   each batch

Unlike SVRG's, the estimate v itself goes to 0 within an epoch. It is biased.

References
----------
Nguyen, Liu, Scheinberg and Takac, "SARAH: a novel method for machine learning problems using stochastic recursive
gradient", ICML 2017.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.problem import ColumnProblem
from daskkern.solvers.variance_reduced.full_gradients import FullGradientRun, FullGradients, InnerStep


@dataclass(frozen=True)
class SARAH(FullGradients):
    """Stochastic recursive gradients, for smooth losses; linear convergence with ``alpha > 0``."""

    name: ClassVar[str] = "sarah"

    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> FullGradientRun:
        gradient = state.gradient + state.w * problem.alpha
        return replace(state, w=state.w - gradient * eta, other=state.w, gradient=gradient)

    def moved(self, problem: ColumnProblem, state: FullGradientRun, step: InnerStep) -> FullGradientRun:
        drifted = state.gradient + (state.w - state.other) * problem.alpha
        gradient = descend(problem, step.batch, drifted, step.difference)
        return replace(state, w=state.w - gradient * step.eta, other=state.w, gradient=gradient)
