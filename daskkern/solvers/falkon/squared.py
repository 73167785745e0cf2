"""Conjugate gradient on the normal equations of the landmarks, for the squared loss.

In the coordinates u = T a the objective is ``q(u) = sum w |K_XZ T^-1 u - y|^2 / (2 n) + alpha |u|^2 / 2``, and the
preconditioner ``M = (A^T A)^-1``. A pass multiplies ``K_XZ`` with the model and with the direction d at once, so that
it gives ``H d``, and the gradient and the loss of the model itself: no recursion updates them, and the loss
after a step of length t is ``q(u) + t q'(u) d + t^2 d^T H d / 2``, from the sums of the rows. With many outputs, where
this would take wider products, only every tenth pass, the last, and the one before the fit ends do so.

The difference between the true residual and the expected one measures the effect of rounding: CG restarts from the true
one where they differ by a tenth, and ends where the difference is as large as the residual itself, or where the
objective rises; the model is then the last one that was evaluated.

References
----------
Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel method", NeurIPS 2017; van der Vorst and Ye,
"Residual replacement strategies for Krylov subspace iterative methods", SIAM J. Sci. Comput. 2000.
"""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DataError
from daskkern.linalg import LowerFactor
from daskkern.solvers.base import ratio
from daskkern.solvers.falkon.setup import FalkonSetup
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.rows import double_product, gradient_of_rows
from daskkern.solvers.snapshot import Snapshot

_RESTART = 0.1
_NOISE = 0.5
_EVALUATE = 10
_LANES = 16
"""Columns of a product with kernel values that together take no longer than one."""
_ARRAYS = ("u", "d", "r", "z")
_NUMBERS = ("sweep", "steps", "residual", "loss", "seen")
_FALL = 1e-4
"""Least relative decrease of the objective in a pass for CG to continue with a residual that is mostly rounding."""
_ROUNDING = 1e-6
"""Largest relative rise of the objective that is ignored: float32 sums differ by as much between equal models."""


@dataclass(frozen=True)
class SquaredRun:
    """The state of a run; arrays (p, c) float64 are the same on every rank.

    Attributes
    ----------
    u, d : (p, c) arrays
        T a of the model, and the next direction.
    r, z : (p, c) arrays
        The residual ``-q'(u)`` as expected after the last step, and ``M r``.
    norm : (c,) array
        ``(b^T M b)^(1/2)`` of the right side b; zeros before the first pass.
    before : (u, objective, loss) or None
        The last model that was evaluated.
    sums : (p + 2, k) array or None
        Sums over the rank's rows so far in this pass, k = c or 2 c; None between passes.
    v : (p, k) array or None
        The factor of this pass: T^-1 d, and before it T^-1 u unless that is 0. None in the first pass.
    sweep : int
        1 between the pass for the right side and the other of the first epoch; else 0.
    steps : int
        Finished iterations.
    residual : float
        ``|r|_M / |b|_M`` of the worst output.
    checked, noisy, floored : bool
        The last pass evaluated the model; the last evaluated residual was mostly rounding; more passes would not
        improve the model.
    loss, reported, seen : float, float, int
        Mean training loss of the model; the sum of losses that was reported in this epoch, and its rows.
    """

    u: Array
    d: Array
    r: Array
    z: Array
    norm: Array
    before: tuple[Array, float, float] | None = None
    sums: Array | None = None
    v: Array | None = None
    sweep: int = 0
    steps: int = 0
    residual: float = 1.0
    checked: bool = False
    noisy: bool = False
    floored: bool = False
    loss: float = 0.0
    reported: float = 0.0
    seen: int = 0

    @classmethod
    def begin(cls, problem: Problem[FalkonSetup]) -> "SquaredRun":
        """Return the state before the first pass."""
        setup: FalkonSetup = problem.extra
        zero = namespace_of(setup.part.weights).zeros((setup.part.layout.p, problem.n_outputs))
        return cls(zero, zero, zero, zero, zero[0])

    @property
    def between_epochs(self) -> bool:
        """Whether an epoch has just ended."""
        return self.sums is None and self.sweep == 0


def add_batch(problem: Problem[FalkonSetup], state: SquaredRun, batch: Batch, tol: float) -> SquaredRun:
    """Add the rank's rows of a batch to the sums of the pass."""
    setup: FalkonSetup = problem.extra
    state = _begin_pass(problem, state, tol) if state.sums is None else state
    xp, c = namespace_of(state.u), state.u.shape[1]
    assert state.sums is not None
    if state.v is None:
        pulled, loss, _ = gradient_of_rows(problem, setup.whole, batch, None)
        numbers = xp.zeros((2, c))
        numbers[0, 0] = loss
        return replace(state, sums=state.sums + xp.concatenate([pulled, numbers]))
    weight = 1.0 if batch.weight is None else batch.weight
    seen = xp.zeros((batch.y.shape[0], state.v.shape[1]), problem.dtype)

    def between(scores: Array, rows: slice) -> Array:
        seen[rows] = scores
        if scores.shape[1] > c:
            seen[rows, :c] -= batch.y[rows]
        return seen[rows] if batch.weight is None else seen[rows] * batch.weight[rows]

    pulled = double_product(setup.whole, batch, state.v, between)
    g, numbers = seen[:, -c:].astype(np.float64), xp.zeros((2, state.v.shape[1]))
    numbers[1, :c] = (weight * g * g).sum(axis=0)
    if seen.shape[1] > c:
        e = seen[:, :c].astype(np.float64)
        numbers[0, :c], numbers[0, c:] = (weight * e * g).sum(axis=0), (weight * e * e).sum(axis=0)
    return replace(state, sums=state.sums + xp.concatenate([pulled, numbers]))


def end_pass(problem: Problem[FalkonSetup], state: SquaredRun, comm: Communicator) -> SquaredRun:
    """End a pass: the first gives the right side, every later one an iteration of CG."""
    setup: FalkonSetup = problem.extra
    total = comm.allreduce(state.sums)
    pulled = setup.part.lower.solve(total[:-2]) / setup.n_rows
    numbers, c = total[-2:] / setup.n_rows, state.u.shape[1]
    first, evaluated = state.v is None, pulled.shape[1] > c
    checked = evaluated or not bool(state.u.any())  # everything is known of the zero model
    state = replace(state, sums=None, v=None, sweep=int(first), checked=checked)
    if first:
        return _begin(setup, state, -pulled, float(numbers[0, 0]))
    if not evaluated:
        numbers[0] = -(state.d * (state.r + problem.alpha * state.u)).sum(axis=0)
        return _iterate(problem, setup, state, state.r, pulled, numbers, state.loss)
    loss = 0.5 * float(numbers[0, c:].sum())
    r = -(pulled[:, :c] + problem.alpha * state.u)
    return _iterate(problem, setup, state, r, pulled[:, c:], numbers[:, :c], loss)


def _begin_pass(problem: Problem[FalkonSetup], state: SquaredRun, tol: float) -> SquaredRun:
    """Choose the factor of the pass: none, the direction, or the model and the direction."""
    setup: FalkonSetup = problem.extra
    xp, (p, c) = namespace_of(state.u), state.u.shape
    if state.before is None:
        return replace(state, sums=xp.zeros((p + 2, c)))
    due = 2 * c <= _LANES or state.steps % _EVALUATE == _EVALUATE - 1 or state.steps + 1 == problem.max_epochs
    evaluate = (due or state.residual <= tol) and bool(state.u.any())
    v = setup.part.lower.solve_transposed(xp.concatenate([state.u, state.d], axis=1) if evaluate else state.d)
    return replace(state, sums=xp.zeros((p + 2, v.shape[1])), v=v)


def _begin(setup: FalkonSetup, state: SquaredRun, b: Array, loss: float) -> SquaredRun:
    """Begin CG from the zero model, for the known right side."""
    z = _precondition(setup, b)
    norm = namespace_of(b).sqrt((b * z).sum(axis=0))
    return replace(state, d=z, r=b, z=z, norm=norm, before=(state.u, loss, loss), loss=loss)


def _iterate(
    problem: Problem[FalkonSetup],
    setup: FalkonSetup,
    state: SquaredRun,
    r: Array,
    pulled: Array,
    numbers: Array,
    loss: float,
) -> SquaredRun:
    """One iteration, from the true residual `r` and the true `loss` of the model.

    `pulled` is ``H d`` without the penalty's part; `numbers` (2, c) are ``w (f - y) g / n`` and ``w g g / n``, summed
    over the rows, for the scores f of the model and g of the direction.
    """
    xp, alpha = namespace_of(r), problem.alpha
    objective = loss + alpha / 2 * float((state.u**2).sum())
    if state.before is not None and not objective <= state.before[1] * (1 + _ROUNDING):
        u, _, loss = state.before
        return replace(state, u=u, loss=loss, floored=True)
    z = state.z if r is state.r else _precondition(setup, r)
    gap = _length((r - state.r, z - state.z))
    size = _length((r, z))
    Hd = pulled + alpha * state.d
    curvature = (state.d * Hd).sum(axis=0)
    step = ratio((r * state.d).sum(axis=0), curvature)
    left = r - step * Hd
    z_left = _precondition(setup, left)
    turn = ratio(-(z_left * Hd).sum(axis=0), curvature)
    turn = xp.where(gap > _RESTART * size, 0, turn)
    residual = float(ratio(xp.maximum(_length((left, z_left)), gap), state.norm).max())
    noisy, before = state.noisy, state.before
    falls = before is None or objective < before[1] * (1 - _FALL)
    if state.checked:
        noisy = float((gap**2).sum()) > _NOISE**2 * float((size**2).sum())
        before = (state.u, objective, loss)
    return replace(
        state,
        u=state.u + step * state.d,
        d=z_left + turn * state.d,
        r=left,
        z=z_left,
        before=before,
        steps=state.steps + 1,
        residual=residual,
        noisy=noisy,
        floored=state.checked and noisy and state.noisy and not falls,
        loss=max(0.0, loss + float((step * numbers[0] + 0.5 * step**2 * numbers[1]).sum())),
    )


def _precondition(setup: FalkonSetup, r: Array) -> Array:
    inner: LowerFactor | None = setup.inner
    assert inner is not None
    return inner.solve_transposed(inner.solve(r))


def _length(pair: tuple[Array, Array]) -> Array:
    """Return ``(r^T M r)^(1/2)`` (c,) of r and ``M r``."""
    xp = namespace_of(pair[0])
    return xp.sqrt(xp.maximum((pair[0] * pair[1]).sum(axis=0), 0))


def snapshot(state: SquaredRun) -> Snapshot | None:
    """Return the state between passes; None within one."""
    if state.sums is not None:
        return None
    whole = {name: getattr(state, name) for name in _ARRAYS} | {"norm": state.norm}
    numbers = {name: float(getattr(state, name)) for name in (*_NUMBERS, "checked", "noisy", "floored")}
    numbers["told"] = float(state.reported)
    if state.before is not None:
        whole["before"] = state.before[0]
        numbers |= {"objective": state.before[1], "loss_before": state.before[2]}
    return Snapshot({}, whole, numbers)


def restore(problem: Problem[FalkonSetup], saved: Snapshot) -> SquaredRun:
    """Return the state of a snapshot. Raises DataError when it does not fit."""
    setup: FalkonSetup = problem.extra
    xp, whole, numbers = namespace_of(setup.part.weights), saved.whole, saved.numbers
    shape = (setup.part.layout.p, problem.n_outputs)
    if "u" not in whole or whole["u"].shape != shape:
        raise DataError("a saved state does not fit this Falkon: its coefficients have another shape")
    if "residual" not in numbers or "steps" not in numbers:
        raise DataError("a saved state is that of an older Falkon, without a true residual; start the fit again")
    before = None
    if "before" in whole:
        before = (xp.asarray(whole["before"]), numbers["objective"], numbers["loss_before"])
    u, d, r, z, norm = (xp.asarray(whole[name]) for name in (*_ARRAYS, "norm"))
    return SquaredRun(
        u, d, r, z, norm, before,
        sweep=int(numbers["sweep"]),
        steps=int(numbers["steps"]),
        residual=numbers["residual"],
        checked=bool(numbers["checked"]),
        noisy=bool(numbers["noisy"]),
        floored=bool(numbers["floored"]),
        loss=numbers["loss"],
        reported=numbers["told"],
        seen=int(numbers["seen"]),
    )  # fmt: skip
