"""Falkon: conjugate gradient on the normal equations of the landmarks, preconditioned; Newton's method around it.

Squared loss: ``(K_ZX W K_XZ / n + alpha K_ZZ) a = K_ZX W y / n``, in the coordinates u = T a and preconditioned by
``(A^T A)^-1`` (T, A: see :mod:`daskkern.preconditioners.falkon`). The product with K_ZX W K_XZ is one pass over the
rows, which evaluates loss and residual of the model, too (:mod:`.squared`). Other losses: each Newton step is such a
system, W times the curvature of the loss at the scores in place of W (:mod:`.newton`).

Distributed by rows: every rank has all landmarks and both factors, passes over its own rows, and a pass ends with one
allreduce of (p + 2, 2 c) numbers at most. An epoch is a CG iteration (squared loss; the first one has a pass for the
right side, too) or a Newton step of `newton_passes` for its system and one for loss and gradient after it (the first
one has a pass for the gradient at 0, too).

References
----------
Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel method", NeurIPS 2017; Marteau-Ferey, Bach and
Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant losses", NeurIPS 2019;
Meanti et al., "Kernel methods through the roof: handling billions of points efficiently", NeurIPS 2020.

Where we differ: every smooth loss here has a curvature, so all are supported, with several outputs, too (one A for all
of them, from their mean curvature); a Newton step that raises the objective is halved; T, once computed, and all
vectors are float64, and only products with K_XZ and with A are taken in the dtype of the fit; the residual is evaluated
(with many outputs in every tenth pass), and ends the fit.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.losses import Curved, Loss, Squared
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.falkon import newton, squared
from daskkern.solvers.falkon.costs import FactorCosts
from daskkern.solvers.falkon.newton import NewtonRun
from daskkern.solvers.falkon.setup import FalkonSetup, factor_setup
from daskkern.solvers.falkon.squared import SquaredRun
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.rows import reported_loss
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Snapshot

FalkonRun = SquaredRun | NewtonRun


@dataclass(frozen=True)
class Falkon(Solver[FalkonRun]):
    """Falkon, for every loss that has a curvature.

    Parameters
    ----------
    newton_passes : int
        CG iterations of a Newton step; not used with the squared loss, whose epochs are CG iterations.
    path_start : float
        Penalty of the first Newton step, if it is larger than alpha; it falls by a factor of 10 each step.
    tol : float
        With the squared loss the fit ends when the evaluated residual, in the norm of the preconditioner, is at most
        `tol` times that of the zero model for every output, or when rounding keeps it from falling further. With 0 it
        ends for the latter reason only.
    """

    name: ClassVar[str] = "falkon"
    preparation: ClassVar[str] = "nothing"
    parallelism: ClassVar[str] = "rows"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)
    ability: ClassVar[tuple[type[Curved], str] | None] = (Curved, "a second derivative")

    newton_passes: int = 6
    path_start: float = 1e-2
    tol: float = 1e-7

    def __post_init__(self) -> None:
        if not is_whole(self.newton_passes, least=1):
            raise SpecError(f"got newton_passes={self.newton_passes!r} for Falkon; give 1 or more")
        if not self.path_start >= 0:
            raise SpecError(f"got path_start={self.path_start!r} for Falkon; give a penalty of 0 or more")
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for Falkon; give a number of 0 or more")

    def sweeps(self, epoch: int, loss: Loss) -> int:
        each = 1 if isinstance(loss, Squared) else 1 + self.newton_passes
        return each + (epoch == 1)

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return FactorCosts(newton=not isinstance(loss, Squared))

    def rank_setup(self, inputs: RankInputs) -> FalkonSetup:
        return factor_setup(inputs, once=isinstance(inputs.loss, Squared), says_what_is_left_out=True)

    def init(self, problem: Problem[FalkonSetup], comm: Communicator) -> FalkonRun:
        del comm
        return SquaredRun.begin(problem) if isinstance(problem.loss, Squared) else NewtonRun.begin(problem)

    def step(
        self, problem: Problem[FalkonSetup], state: FalkonRun, batch: Batch, comm: Communicator
    ) -> tuple[FalkonRun, float]:
        if isinstance(state, SquaredRun):
            state = squared.add_batch(problem, state, batch, self.tol)
            if batch.last:
                state = squared.end_pass(problem, state, comm)
        else:
            state = newton.add_batch(problem, state, batch, comm, self.path_start)
            if batch.last:
                sweeps = self.sweeps(state.epoch + 1, problem.loss)
                state = newton.end_pass(problem, state, comm, self.path_start, sweeps)
        ended = state.between_epochs
        reported, seen, amount = reported_loss(state.loss, state.reported, state.seen, batch, ended=ended)
        return replace(state, reported=reported, seen=seen), amount

    def finish(self, problem: Problem[FalkonSetup], state: FalkonRun, comm: Communicator) -> Array:
        del comm
        setup: FalkonSetup = problem.extra
        u = state.u
        if isinstance(state, NewtonRun) and state.before is not None:
            u = state.before[0]
        own = namespace_of(u).asarray(problem.part.columns.ids)
        return setup.part.lower.solve_transposed(u)[own].astype(problem.dtype)

    def certificate(self, problem: Problem[FalkonSetup], state: FalkonRun) -> Certificate | None:
        if isinstance(state, NewtonRun):
            return None
        note = f"the rounding of {problem.dtype} lets it fall no further" if state.floored else ""
        return Certificate("relative residual", state.residual, self.tol, note)

    def done(self, problem: Problem[FalkonSetup], state: FalkonRun) -> bool:
        return isinstance(state, SquaredRun) and (state.floored or (state.checked and super().done(problem, state)))

    def snapshot(self, problem: Problem[FalkonSetup], state: FalkonRun) -> Snapshot | None:
        del problem
        return squared.snapshot(state) if isinstance(state, SquaredRun) else newton.snapshot(state)

    def restore(self, problem: Problem[FalkonSetup], saved: Snapshot) -> FalkonRun:
        whole = squared if isinstance(problem.loss, Squared) else newton
        return whole.restore(problem, saved)
