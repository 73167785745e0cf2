"""Falkon: conjugate gradient on the normal equations of the landmarks, preconditioned; Newton's method around it.

Squared loss: ``(K_ZX W K_XZ / n + alpha K_ZZ) a = K_ZX W y / n``, with a = T^-1 A^-1 beta (T, A: see
:mod:`daskkern.preconditioners.falkon`). The product with K_ZX W K_XZ is one pass over the rows. Other losses: each
Newton step is such a system, W times the curvature of the loss at the scores in place of W, its penalty falling from
`path_start` to alpha by a factor of 10 a step.

Distributed by rows: every rank has all landmarks and both factors, passes over its own rows, and a pass ends with one
allreduce of (p + 1, c) numbers. An epoch is a CG iteration (squared loss; the first one has a pass for the right side,
too) or a Newton step of one pass for the gradient and `newton_passes` for its system.

References
----------
Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel method", NeurIPS 2017; Marteau-Ferey, Bach and
Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant losses", NeurIPS 2019;
Meanti et al., "Kernel methods through the roof: handling billions of points efficiently", NeurIPS 2020.

Where we differ: every smooth loss here has a curvature, so each can be met, several outputs included (one A for all
of them, from their mean curvature); a Newton step that raises the objective is halved; vectors are float64.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.basis import KernelPart
from daskkern.errors import DataError, SpecError
from daskkern.linalg import LowerFactor
from daskkern.losses import Curved, Loss, Squared
from daskkern.preconditioners import FalkonPart
from daskkern.solvers.base import Batch, Problem, Solver, is_whole, smoothness_of
from daskkern.solvers.cg import System
from daskkern.solvers.rows import double_product, gradient_of_rows, told_loss
from daskkern.solvers.snapshot import Snapshot


@dataclass(frozen=True)
class FalkonSetup:
    """What a rank needs: all columns, the rows of all ranks together, and the preconditioner.

    `inner` is A^T for the squared loss, whose curvature is known beforehand; None for other losses.
    """

    whole: KernelPart
    n_rows: int
    part: FalkonPart
    inner: LowerFactor | None


@dataclass(frozen=True)
class Newton:
    """One Newton step under way: A^T, the penalty mu, and the system for its direction, in the coordinates of A."""

    inner: LowerFactor
    mu: float
    system: System


@dataclass(frozen=True)
class FalkonRun:
    """The state of a run; arrays (p, c) float64 are the same on every rank.

    Attributes
    ----------
    u : (p, c) array
        T a of the model before the step under way.
    step : Newton or None
        None while the gradient at u is being gathered.
    before : (u, loss) or None
        What the last step began with.
    sums : (p + 1, c) array or None
        Of the rank's rows so far in this pass; None between passes.
    v, w : (p, c) arrays or None
        What this pass multiplies, and the same in the coordinates of u.
    scores : tuple of (k, c) arrays
        The model's values at the rank's rows, batch by batch; none for the squared loss.
    at, sweep, epoch : int
        Batches of the pass, passes of the epoch, and epochs that are done.
    loss : float
        Mean training loss as last known.
    told, seen : float, int
        The sum of losses that was reported in this epoch, and its rows.
    """

    u: Array
    step: Newton | None = None
    before: tuple[Array, float] | None = None
    sums: Array | None = None
    v: Array | None = None
    w: Array | None = None
    scores: tuple[Array, ...] = ()
    at: int = 0
    sweep: int = 0
    epoch: int = 0
    loss: float = 0.0
    told: float = 0.0
    seen: int = 0


@dataclass(frozen=True)
class Falkon(Solver[FalkonRun]):
    """Falkon, for every loss that has a curvature.

    Parameters
    ----------
    newton_passes : int
        CG iterations of a Newton step; not used with the squared loss, whose epochs are CG iterations.
    path_start : float
        Penalty of the first Newton step, if that is more than alpha; it falls by a factor of 10 each step.
    """

    name: ClassVar[str] = "falkon"
    deals: ClassVar[str] = "rows"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)
    ability: ClassVar[tuple[type[Curved], str] | None] = (Curved, "a second derivative")

    newton_passes: int = 6
    path_start: float = 1e-2

    def __post_init__(self) -> None:
        if not is_whole(self.newton_passes, least=1):
            raise SpecError(f"newton_passes={self.newton_passes!r} was asked of Falkon; give 1 or more")
        if not self.path_start >= 0:
            raise SpecError(f"path_start={self.path_start!r} was asked of Falkon; give a penalty of 0 or more")

    def sweeps(self, epoch: int, loss: Loss) -> int:
        if isinstance(loss, Squared):
            return 2 if epoch == 1 else 1
        return 1 + self.newton_passes

    def init(self, problem: Problem, comm: Communicator) -> FalkonRun:
        del comm
        setup: FalkonSetup = problem.extra
        xp = namespace_of(setup.part.weights)
        return FalkonRun(xp.zeros((setup.part.deal.p, problem.n_outputs)))

    def step(self, problem: Problem, state: FalkonRun, batch: Batch, comm: Communicator) -> tuple[FalkonRun, float]:
        setup: FalkonSetup = problem.extra
        if state.sums is None:
            state = _begin_sweep(setup, state)
        state = _gradient(problem, setup, state, batch) if state.step is None else _product(problem, state, batch)
        if batch.last:
            state = self._end_sweep(problem, setup, state, comm)
        return _tell(state, batch)

    def finish(self, problem: Problem, state: FalkonRun, comm: Communicator) -> Array:
        del comm
        setup: FalkonSetup = problem.extra
        u = state.u if state.step is None else state.u + _direction(state.step)
        own = namespace_of(u).asarray(problem.part.columns.ids)
        return setup.part.lower.solve_transposed(u)[own].astype(problem.dtype)

    def snapshot(self, problem: Problem, state: FalkonRun) -> Snapshot | None:
        quadratic = problem.extra.inner is not None
        if state.sums is not None or (state.step is not None and not quadratic):
            return None
        numbers = {name: float(getattr(state, name)) for name in ("sweep", "epoch", "loss", "told", "seen")}
        whole = {"u": state.u}
        if state.before is not None:
            whole |= {"before": state.before[0]}
            numbers |= {"before": state.before[1]}
        if state.step is not None:
            whole |= state.step.system.arrays()
        return Snapshot({}, whole, numbers)

    def restore(self, problem: Problem, saved: Snapshot) -> FalkonRun:
        setup: FalkonSetup = problem.extra
        xp, whole, numbers = namespace_of(setup.part.weights), saved.whole, saved.numbers
        shape = (setup.part.deal.p, problem.n_outputs)
        if "u" not in whole or whole["u"].shape != shape:
            raise DataError("a saved state does not fit this Falkon: its coefficients have another shape")
        run = FalkonRun(
            xp.asarray(whole["u"]),
            sweep=int(numbers["sweep"]),
            epoch=int(numbers["epoch"]),
            loss=numbers["loss"],
            told=numbers["told"],
            seen=int(numbers["seen"]),
        )
        if "before" in whole:
            run = replace(run, before=(xp.asarray(whole["before"]), numbers["before"]))
        if setup.inner is not None and System.is_in(whole):
            run = replace(run, step=Newton(setup.inner, problem.alpha, System.of(whole, xp)))
        return run

    def _end_sweep(self, problem: Problem, setup: FalkonSetup, state: FalkonRun, comm: Communicator) -> FalkonRun:
        total = comm.allreduce(state.sums)
        pulled = setup.part.lower.solve(total[:-1]) / setup.n_rows  # T^-T K_ZX (...) / n
        state = replace(state, sums=None, at=0, sweep=state.sweep + 1)
        if state.step is None:
            mu = problem.alpha if setup.inner is not None else max(problem.alpha, self.path_start * 0.1**state.epoch)
            state = _begin_step(problem, setup, state, pulled, float(total[-1, 0]) / setup.n_rows, mu, comm)
        else:
            state = _iterate(problem, setup, state, pulled)
        if state.sweep < self.sweeps(state.epoch + 1, problem.loss):
            return state
        state = replace(state, sweep=0, epoch=state.epoch + 1)
        if setup.inner is None and state.step is not None:
            state = replace(state, u=state.u + _direction(state.step), step=None, scores=())
        return state


def _direction(step: Newton) -> Array:
    return step.inner.solve_transposed(step.system.x)


def _begin_sweep(setup: FalkonSetup, state: FalkonRun) -> FalkonRun:
    xp = namespace_of(state.u)
    w = state.u if state.step is None else state.step.inner.solve_transposed(state.step.system.d)
    sums = xp.zeros((w.shape[0] + 1, w.shape[1]))
    scores = () if state.step is None else state.scores
    return replace(state, sums=sums, w=w, v=setup.part.lower.solve_transposed(w), scores=scores)


def _gradient(problem: Problem, setup: FalkonSetup, state: FalkonRun, batch: Batch) -> FalkonRun:
    """Add the gradient and the loss of the rank's rows at u."""
    assert state.sums is not None
    is_zero = state.epoch == 0 and state.before is None
    pulled, loss, f = gradient_of_rows(problem, setup.whole, batch, None if is_zero else state.v)
    sums = namespace_of(state.u).concatenate([state.sums[:-1] + pulled, state.sums[-1:] + loss])
    scores = () if setup.inner is not None else (*state.scores, f)
    return replace(state, sums=sums, scores=scores, at=state.at + 1)


def _product(problem: Problem, state: FalkonRun, batch: Batch) -> FalkonRun:
    """Add the rank's rows' part of ``K_ZX W (curvature) K_XZ v``."""
    setup: FalkonSetup = problem.extra
    assert state.sums is not None
    assert isinstance(problem.loss, Curved)
    curved = problem.loss.curved
    f = batch.y if setup.inner is not None else state.scores[state.at]

    def bend(scores: Array, rows: slice) -> Array:
        bent = curved(f[rows], batch.y[rows], scores)
        return bent if batch.weight is None else bent * batch.weight[rows]

    xp = namespace_of(state.u)
    pulled = double_product(setup.whole, batch, state.v, bend)
    return replace(state, sums=xp.concatenate([state.sums[:-1] + pulled, state.sums[-1:]]), at=state.at + 1)


def _begin_step(
    problem: Problem, setup: FalkonSetup, state: FalkonRun, pulled: Array, loss: float, mu: float, comm: Communicator
) -> FalkonRun:
    """With the gradient at u known, begin the system for the next direction; or go back half of the last step."""
    state = replace(state, loss=loss)
    if state.before is not None and _objective(state.u, loss, mu) > _objective(*state.before, mu) * (1 + 1e-6):
        return replace(state, u=(state.u + state.before[0]) / 2, scores=())
    inner = setup.inner
    if inner is None:
        inner = setup.part.inner(_curvature(problem, setup, state.u), mu, comm)
    system = System.begin(-inner.solve(pulled + mu * state.u))
    return replace(state, step=Newton(inner, mu, system), before=(state.u, loss))


def _objective(u: Array, loss: float, mu: float) -> float:
    return loss + mu / 2 * float((u * u).sum())


def _curvature(problem: Problem, setup: FalkonSetup, u: Array) -> Array | float:
    """Return the mean curvature of the outputs at the landmarks, (p, 1)."""
    y = setup.part.targets
    if y is None:
        return smoothness_of(problem.loss)
    assert isinstance(problem.loss, Curved)
    f = setup.part.lower.times(u).astype(problem.dtype)
    return problem.loss.curvature(f, y).mean(axis=1, keepdims=True)


def _iterate(problem: Problem, setup: FalkonSetup, state: FalkonRun, pulled: Array) -> FalkonRun:
    """One iteration of CG."""
    assert state.step is not None
    assert state.w is not None
    step = state.step
    system = step.system.iterate(step.inner.solve(pulled + step.mu * state.w), joint=problem.loss.joint)
    step = replace(step, system=system)
    state = replace(state, step=step)
    if setup.inner is None:
        return state
    assert state.before is not None
    penalty = step.mu / 2 * float((_direction(step) ** 2).sum()) if step.mu else 0.0  # u is 0
    return replace(state, loss=max(0.0, state.before[1] + system.decrease() - penalty))


def _tell(state: FalkonRun, batch: Batch) -> tuple[FalkonRun, float]:
    """Return a sum of losses that makes the mean of the epoch so far the loss as last known."""
    ended = state.sums is None and state.sweep == 0
    told, seen, amount = told_loss(state.loss, state.told, state.seen, batch, ended=ended)
    return replace(state, told=told, seen=seen), amount
