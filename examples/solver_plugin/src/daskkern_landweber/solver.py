"""Landweber iteration on landmarks, where the number of iterations is the regularisation.

With ``K_ZZ = L L^T`` and u = L^T a the model's norm is |u|, and an iteration over all rows is

    u <- u - eta (L^-1 K_ZX W loss'(K_XZ L^-T u) / n + alpha u) .

Distributed by rows: every rank has all landmarks and L, and an iteration is one pass over its own rows and one
allreduce of (p + 1, c) numbers. A step that raises the objective is halved, and all later ones with it.

References
----------
Landweber, American Journal of Mathematics 1951; Yao, Rosasco and Caponnetto, "On early stopping in gradient descent
learning", Constructive Approximation 2007.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import DataError, SpecError
from daskkern.losses import Loss, Smooth
from daskkern.solvers import Batch, Problem, RankInputs, Snapshot, Solver
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.rows import gradient_of_rows, reported_loss
from daskkern_landweber.costs import LandweberCosts
from daskkern_landweber.setup import LandweberSetup, landweber_setup

_ROUNDING = 1e-6
_SAFETY = 1.25
"""By how much the largest eigenvalue among the rows may exceed that among the landmarks before a step is halved."""
_ARRAYS = ("u", "best", "slope")
_NUMBERS = ("eta", "objective", "halved", "loss", "reported", "seen")


@dataclass(frozen=True)
class LandweberRun:
    """The state of a run; arrays (p, c) float64 are the same on every rank, and in host memory.

    Attributes
    ----------
    u : (p, c) array
        L^T a of the model whose gradient the current pass computes.
    eta : float
        The step.
    best, slope : (p, c) arrays
        The last u whose objective did not rise, and its gradient.
    objective : float
        The objective of `best`; infinite before the first pass.
    halved : bool
        The last u was rejected, and the current one is not known to be better than `best`.
    sums : (p + 1, c) array or None
        Sums over the rank's rows so far in this pass; None between passes.
    coef : (p, c) array or None
        L^-T u during a pass.
    loss : float
        Last known mean training loss.
    reported, seen : float, int
        The sum of losses that was reported in this epoch, and its rows.
    """

    u: FloatArray
    eta: float
    best: FloatArray
    slope: FloatArray
    objective: float = np.inf
    halved: bool = False
    sums: Array | None = None
    coef: Array | None = None
    loss: float = 0.0
    reported: float = 0.0
    seen: int = 0


@dataclass(frozen=True)
class Landweber(Solver[LandweberRun]):
    """Gradient descent on landmarks in the norm of the model, for every smooth loss. An epoch is an iteration.

    Parameters
    ----------
    step_scale : float
        Multiplies the step ``1 / (L l + alpha)``, below 2: L is the smoothness of the loss and l the largest eigenvalue
        of the landmarks' ``K_ZZ / p``, with a margin.
    """

    name: ClassVar[str] = "landweber"
    parallelism: ClassVar[str] = "rows"
    preparation: ClassVar[str] = "nothing"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)
    ability: ClassVar[tuple[type[Smooth], str] | None] = (Smooth, "a smooth gradient")

    step_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.step_scale < 2:
            raise SpecError(f"got step_scale={self.step_scale!r} for Landweber; give a number above 0 and below 2")

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return LandweberCosts()

    def rank_setup(self, inputs: RankInputs) -> LandweberSetup:
        return landweber_setup(inputs)

    def init(self, problem: Problem[LandweberSetup], comm: Communicator) -> LandweberRun:
        setup = problem.extra
        zero = np.zeros((len(setup.factor), problem.n_outputs))
        steepest = smoothness_of(problem.loss) * _SAFETY * setup.top
        return LandweberRun(zero, self.step_scale / (steepest + problem.alpha), zero, zero)

    def step(
        self, problem: Problem[LandweberSetup], state: LandweberRun, batch: Batch, comm: Communicator
    ) -> tuple[LandweberRun, float]:
        setup, xp = problem.extra, namespace_of(batch.y)
        if state.sums is None:
            sums = xp.zeros((state.u.shape[0] + 1, state.u.shape[1]))
            state = replace(state, sums=sums, coef=xp.asarray(_solve_transposed(setup, state.u)))
        assert state.sums is not None
        pulled, loss, _ = gradient_of_rows(problem, setup.whole, batch, state.coef)
        state = replace(state, sums=xp.concatenate([state.sums[:-1] + pulled, state.sums[-1:] + loss]))
        if batch.last:
            state = _descend(problem, state, comm)
        reported, seen, amount = reported_loss(state.loss, state.reported, state.seen, batch, ended=state.sums is None)
        return replace(state, reported=reported, seen=seen), amount

    def finish(self, problem: Problem[LandweberSetup], state: LandweberRun, comm: Communicator) -> Array:
        a = _solve_transposed(problem.extra, state.best if state.halved else state.u)
        return problem.part.namespace.asarray(a[problem.part.columns.ids].astype(problem.dtype))

    def snapshot(self, problem: Problem[LandweberSetup], state: LandweberRun) -> Snapshot | None:
        if state.sums is not None:
            return None
        numbers = {name: float(getattr(state, name)) for name in _NUMBERS}
        return Snapshot({}, {name: getattr(state, name) for name in _ARRAYS}, numbers)

    def restore(self, problem: Problem[LandweberSetup], saved: Snapshot) -> LandweberRun:
        shape = (len(problem.extra.factor), problem.n_outputs)
        if any(name not in saved.whole or saved.whole[name].shape != shape for name in _ARRAYS):
            raise DataError("a saved state does not fit this Landweber: its coefficients have another shape")
        u, best, slope = (np.asarray(to_host(saved.whole[name])) for name in _ARRAYS)
        numbers = saved.numbers
        return LandweberRun(
            u,
            numbers["eta"],
            best,
            slope,
            numbers["objective"],
            bool(numbers["halved"]),
            loss=numbers["loss"],
            reported=numbers["reported"],
            seen=int(numbers["seen"]),
        )


def _descend(problem: Problem[LandweberSetup], state: LandweberRun, comm: Communicator) -> LandweberRun:
    """End a pass: take an iteration from u, or half of the last one where u is not better."""
    setup, total = problem.extra, to_host(comm.allreduce(state.sums))
    loss = float(total[-1, 0]) / setup.n_rows
    objective = loss + problem.alpha / 2 * float((state.u * state.u).sum())
    state = replace(state, sums=None, coef=None)
    if state.objective < np.inf and not objective <= state.objective * (1 + _ROUNDING):
        eta = state.eta / 2
        return replace(state, eta=eta, u=state.best - eta * state.slope, halved=True)
    pulled = scipy.linalg.solve_triangular(setup.factor, total[:-1], lower=True)
    slope = pulled / setup.n_rows + problem.alpha * state.u
    u = state.u - state.eta * slope
    return replace(state, u=u, best=state.u, slope=slope, objective=objective, loss=loss, halved=False)


def _solve_transposed(setup: LandweberSetup, u: FloatArray) -> FloatArray:
    """Return ``L^-T u``."""
    solved: FloatArray = scipy.linalg.solve_triangular(setup.factor, u, lower=True, trans=1)
    return solved
