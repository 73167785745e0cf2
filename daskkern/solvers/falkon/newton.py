"""Newton's method on landmarks for losses other than the squared one, with Falkon for the linear systems.

An epoch is a Newton step: passes for the products of its system, whose weights are the curvature of the loss at the
scores, and one for the gradient and the loss at the model after the step (in the first epoch one at the model 0, too).
The scores are those of the first of the products' passes, which multiplies model and direction at once.

A step that raises the objective is halved; until half of it has been evaluated the model is the one before it. The
penalty falls from `path_start` to alpha, by a factor of 10 at each step.

References
----------
Marteau-Ferey, Bach and Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant
losses", NeurIPS 2019.
"""

from dataclasses import dataclass, replace

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DataError
from daskkern.linalg import LowerFactor
from daskkern.losses import Curved
from daskkern.solvers.base import smoothness_of
from daskkern.solvers.falkon.setup import FalkonSetup
from daskkern.solvers.kernel_ridge.cg import LinearSystem
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.rows import double_product, gradient_of_rows
from daskkern.solvers.snapshot import Snapshot

_ROUNDING = 1e-6
_NUMBERS = ("sweep", "epoch", "loss", "seen")


@dataclass(frozen=True)
class Newton:
    """One Newton step in progress: A^T, the penalty mu, and the system for its direction, in the coordinates of A."""

    inner: LowerFactor
    mu: float
    system: LinearSystem

    @property
    def direction(self) -> Array:
        """The step as far as it is known, in the coordinates of u."""
        return self.inner.solve_transposed(self.system.x)


@dataclass(frozen=True)
class NewtonRun:
    """The state of a run; arrays (p, c) float64 are the same on every rank.

    Attributes
    ----------
    u : (p, c) array
        T a of the model from which the next step starts, or whose gradient is being accumulated.
    before : (u, loss) or None
        The last model that was evaluated and accepted.
    gradient : (p, c) array or None
        Gradient of the mean loss at u; None where it is not known.
    step : Newton or None
    sums : (p + 1, k) array or None
        Sums over the rank's rows so far in this pass, k = c or 2 c; None between passes.
    v, w : (p, k) and (p, c) arrays or None
        The factor that this pass multiplies by, and its direction in the coordinates of u.
    scores : tuple of (k, c) arrays
        The values of u at the rank's rows, batch by batch, from the first of the products' passes on.
    at, sweep, epoch : int
        Finished batches of the pass, passes of the epoch, and epochs.
    loss : float
        Mean training loss of the model in `before`.
    reported, seen : float, int
        The sum of losses that was reported in this epoch, and its rows.
    """

    u: Array
    before: tuple[Array, float] | None = None
    gradient: Array | None = None
    step: Newton | None = None
    sums: Array | None = None
    v: Array | None = None
    w: Array | None = None
    scores: tuple[Array, ...] = ()
    at: int = 0
    sweep: int = 0
    epoch: int = 0
    loss: float = 0.0
    reported: float = 0.0
    seen: int = 0

    @classmethod
    def begin(cls, problem: Problem[FalkonSetup]) -> "NewtonRun":
        """Return the state before the first pass."""
        setup: FalkonSetup = problem.extra
        return cls(namespace_of(setup.part.weights).zeros((setup.part.layout.p, problem.n_outputs)))

    @property
    def between_epochs(self) -> bool:
        """Whether an epoch has just ended."""
        return self.sums is None and self.sweep == 0


def add_batch(
    problem: Problem[FalkonSetup], state: NewtonRun, batch: Batch, comm: Communicator, path_start: float
) -> NewtonRun:
    """Add the rank's rows of a batch to the sums of the pass."""
    if state.sums is None:
        state = _begin_pass(problem, state, comm, path_start)
    loss, sums = 0.0, state.sums
    if state.step is None:
        pulled, loss, _ = gradient_of_rows(problem, problem.extra.whole, batch, state.v)
    else:
        state, pulled = _product(problem, state, batch)
    assert sums is not None
    sums = namespace_of(pulled).concatenate([sums[:-1] + pulled, sums[-1:] + loss])
    return replace(state, sums=sums, at=state.at + 1)


def end_pass(
    problem: Problem[FalkonSetup], state: NewtonRun, comm: Communicator, path_start: float, sweeps: int
) -> NewtonRun:
    """End a pass: the one before the last of `sweeps` ends a Newton step, the last one ends the epoch."""
    setup: FalkonSetup = problem.extra
    assert state.sums is not None
    own = state.sums[:, -state.u.shape[1] :]
    total = comm.allreduce(namespace_of(own).ascontiguousarray(own))
    pulled = setup.part.lower.solve(total[:-1]) / setup.n_rows  # T^-T K_ZX (...) / n
    state = replace(state, sums=None, at=0, sweep=state.sweep + 1)
    if state.step is None:
        mu = _penalty(problem, state, path_start)
        state = _evaluated(state, pulled, float(total[-1, 0]) / setup.n_rows, mu)
    else:
        assert state.w is not None
        step = state.step
        system = step.system.iterate(step.inner.solve(pulled + step.mu * state.w), joint=problem.loss.joint)
        state = replace(state, step=replace(step, system=system))
    if state.step is not None and state.sweep >= sweeps - 1:
        state = replace(state, u=state.u + state.step.direction, step=None, gradient=None, scores=())
    if state.sweep < sweeps:
        return state
    return replace(state, sweep=0, epoch=state.epoch + 1)


def _begin_pass(problem: Problem[FalkonSetup], state: NewtonRun, comm: Communicator, path_start: float) -> NewtonRun:
    setup: FalkonSetup = problem.extra
    xp, (p, c), lower = namespace_of(state.u), state.u.shape, setup.part.lower
    if state.gradient is None:
        v = lower.solve_transposed(state.u) if state.before is not None else None  # else u is 0
        return replace(state, sums=xp.zeros((p + 1, c)), v=v)
    if state.step is None:
        mu = _penalty(problem, state, path_start)
        inner = setup.part.inner(_curvature(problem, setup, state.u), mu, comm)
        system = LinearSystem.begin(-inner.solve(state.gradient + mu * state.u))
        state = replace(state, step=Newton(inner, mu, system), scores=())
    assert state.step is not None
    w = state.step.inner.solve_transposed(state.step.system.d)
    together = w if state.scores else xp.concatenate([state.u, w], axis=1)
    v = lower.solve_transposed(together)
    return replace(state, sums=xp.zeros((p + 1, v.shape[1])), w=w, v=v)


def _product(problem: Problem[FalkonSetup], state: NewtonRun, batch: Batch) -> tuple[NewtonRun, Array]:
    """Return the rank's rows' part of ``K_ZX W (curvature) K_XZ v``, and the state with their scores.

    Where these are not known the first half of the columns is the model: its part of the sum stays 0.
    """
    setup: FalkonSetup = problem.extra
    assert isinstance(problem.loss, Curved)
    xp, curved, c = namespace_of(state.u), problem.loss.curved, state.u.shape[1]
    known = state.at < len(state.scores)
    f = state.scores[state.at] if known else xp.zeros(batch.y.shape, problem.dtype)

    def bend(scores: Array, rows: slice) -> Array:
        if not known:
            f[rows] = scores[:, :c]
        bent = curved(f[rows], batch.y[rows], scores[:, -c:])
        bent = bent if batch.weight is None else bent * batch.weight[rows]
        return bent if known else xp.concatenate([xp.zeros_like(bent), bent], axis=1)

    pulled = double_product(setup.whole, batch, state.v, bend)
    return (state if known else replace(state, scores=(*state.scores, f))), pulled


def _evaluated(state: NewtonRun, gradient: Array, loss: float, mu: float) -> NewtonRun:
    """Accept u, whose gradient and loss are known, or go back half of the last step."""
    if state.before is not None and not _objective(state.u, loss, mu) <= _objective(*state.before, mu) * (
        1 + _ROUNDING
    ):
        return replace(state, u=(state.u + state.before[0]) / 2)
    return replace(state, before=(state.u, loss), gradient=gradient, loss=loss)


def _penalty(problem: Problem[FalkonSetup], state: NewtonRun, path_start: float) -> float:
    return max(problem.alpha, path_start * 0.1**state.epoch)


def _objective(u: Array, loss: float, mu: float) -> float:
    return loss + mu / 2 * float((u * u).sum())


def _curvature(problem: Problem[FalkonSetup], setup: FalkonSetup, u: Array) -> Array | float:
    """Return the mean curvature of the outputs at the landmarks, (p, 1)."""
    y = setup.part.targets
    if y is None:
        return smoothness_of(problem.loss)
    assert isinstance(problem.loss, Curved)
    f = setup.part.lower.times(u).astype(problem.dtype)
    return problem.loss.curvature(f, y).mean(axis=1, keepdims=True)


def snapshot(state: NewtonRun) -> Snapshot | None:
    """Return the state between steps; None within one."""
    if state.sums is not None or state.step is not None:
        return None
    numbers = {name: float(getattr(state, name)) for name in _NUMBERS} | {"told": float(state.reported)}
    whole = {"u": state.u}
    if state.gradient is not None:
        whole["gradient"] = state.gradient
    if state.before is not None:
        whole["before"] = state.before[0]
        numbers["loss_before"] = state.before[1]
    return Snapshot({}, whole, numbers)


def restore(problem: Problem[FalkonSetup], saved: Snapshot) -> NewtonRun:
    """Return the state of a snapshot. Raises DataError when it does not fit."""
    setup: FalkonSetup = problem.extra
    xp, whole, numbers = namespace_of(setup.part.weights), saved.whole, saved.numbers
    if "u" not in whole or whole["u"].shape != (setup.part.layout.p, problem.n_outputs):
        raise DataError("a saved state does not fit this Falkon: its coefficients have another shape")
    if "before" in whole and "loss_before" not in numbers:
        raise DataError("a saved state is that of an older Falkon, without the loss of its model; start the fit again")
    return NewtonRun(
        xp.asarray(whole["u"]),
        (xp.asarray(whole["before"]), numbers["loss_before"]) if "before" in whole else None,
        xp.asarray(whole["gradient"]) if "gradient" in whole else None,
        sweep=int(numbers["sweep"]),
        epoch=int(numbers["epoch"]),
        loss=numbers["loss"],
        reported=numbers["told"],
        seen=int(numbers["seen"]),
    )
