"""Stochastic variance-reduced gradients.

    mu = (1/n) sum_i g_i(w~) x_i                                 a pass over the rows, with w~ the iterate
    w <- (1 - eta alpha) w - eta (mu + (1/m) Phi_B^T (g_B(w) - g_B(w~)))      for each batch

and the next w~ is the last iterate, or one drawn from all of them: of S2GD number t of T with probability proportional
to ``(1 - nu eta)^(T - t)``.

The noise of a step vanishes as w and w~ near the optimum, so that constant steps converge linearly.

References
----------
Johnson and Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", NeurIPS 2013 (its
options I and II).
Konecny and Richtarik, "Semi-stochastic gradient descent methods", 2013, algorithm 1.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar

from daskkern.backend.random import generator
from daskkern.errors import SpecError
from daskkern.solvers.first_order.column_products import descend
from daskkern.solvers.problem import ColumnProblem
from daskkern.solvers.setup import ColumnSetup
from daskkern.solvers.stored_settings import SINCE_LATER
from daskkern.solvers.variance_reduced.full_gradients import FullGradientRun, FullGradients, InnerStep

_STREAM = 77


class DrawnSteps(FullGradients):
    """The base of SVRG and S2GD: epochs of which a number of steps, drawn when they begin, moves the model."""

    @abstractmethod
    def n_moving(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> int:
        """Return how many steps of the epoch that begins move the model; -1 for all."""

    def begun(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> FullGradientRun:
        return replace(state, other=state.w, begun=state.begun + 1, left=self.n_moving(problem, state, eta))

    def moved(self, problem: ColumnProblem, state: FullGradientRun, step: InnerStep) -> FullGradientRun:
        if not state.left:
            return state
        shrunk = state.w * (1 - step.eta * problem.alpha) - state.gradient * step.eta
        return replace(
            state, w=descend(problem, step.batch, shrunk, step.difference * -step.eta), left=max(state.left - 1, -1)
        )


@dataclass(frozen=True)
class SVRG(DrawnSteps):
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

    def n_moving(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> int:
        del eta
        if self.restart == "last":
            return -1
        setup: ColumnSetup = problem.extra
        steps = self.inner * problem.batches_per_epoch
        return int(generator(setup.seed, _STREAM, state.begun).integers(steps + 1))


@dataclass(frozen=True)
class S2GD(DrawnSteps):
    """Semi-stochastic gradient descent: SVRG with a drawn number of steps in each epoch, for smooth losses.

    t of at most T steps are made, with probability proportional to ``(1 - nu eta)^(T - t)``, where eta is the step.
    The other batches of the epoch are read and move nothing.

    Parameters
    ----------
    nu : float or None
        A lower bound on the strong convexity of the objective. None is ``alpha``. 0 makes every number of steps from 1
        to T equally probable; from ``1 / eta`` on, all T are made.

    Raises
    ------
    SpecError
        For a negative `nu`.
    """

    name: ClassVar[str] = "s2gd"

    nu: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu is not None and not self.nu >= 0:
            raise SpecError(f"got nu={self.nu!r} for {self.name}; give None, for alpha, or a number of 0 or more")

    def n_moving(self, problem: ColumnProblem, state: FullGradientRun, eta: float) -> int:
        setup: ColumnSetup = problem.extra
        steps = self.inner * problem.batches_per_epoch
        decay = 1 - (problem.alpha if self.nu is None else self.nu) * eta
        return drawn_steps(steps, decay, float(generator(setup.seed, _STREAM, state.begun).random()))


def drawn_steps(steps: int, decay: float, uniform: float) -> int:
    """Return t of 1 to `steps`, with probability proportional to ``decay^(steps - t)``, from a number in [0, 1)."""
    if decay <= 0:
        return steps
    if decay >= 1:
        return 1 + int(uniform * steps)
    forgotten = math.log1p(-uniform * -math.expm1(steps * math.log(decay))) / math.log(decay)
    return steps - min(int(forgotten), steps - 1)
