"""EigenPro, for every loss: with all rows as centres, with p centres and projections, and over explicit features.

All rows: the gradient of a batch lies in the span of its own columns, and a step changes the coefficients of the
batch and of the subsample S. p centres: the gradient must be projected onto the centres. A *window* collects T
batches as temporary centres and projects once; T = 1 is EigenPro 3, T > 1 is EigenPro 4. Explicit features, linear
ones among them, are preconditioned by their covariance; see :mod:`daskkern.solvers.feature_eigenpro`.

References
----------
Ma and Belkin, "Diving into the shallows", NeurIPS 2017 (algorithm 1); Abedsoltan, Belkin and Pandit, "Toward large
kernel models", ICML 2023 (algorithm 2); Abedsoltan et al., "Fast training of large kernel models with delayed
projections", NeurIPS 2025 (algorithm 1).

Where we differ: any loss enters through its gradient (as Nystrom-SGD does); S is drawn from the centres, so that the
preconditioner maps their span into itself and K_BS is a slice of K_BZ; the ridge penalty is preconditioned too; the
returned model is the mean of the last iterates.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import multiply_blocks, multiply_transposed
from daskkern.errors import SpecError
from daskkern.kernels import Points
from daskkern.preconditioners import EigenProPart, EigenProState
from daskkern.solvers.base import (
    Batch,
    Problem,
    Solver,
    TailAverage,
    decay,
    is_whole,
    loss_and_gradient,
    smoothness_of,
)
from daskkern.solvers.feature_eigenpro import FeatureSetup, feature_direction
from daskkern.solvers.snapshot import Shard, Snapshot

_STRIPES = 12  # pieces of a batch over which sums are taken, the same for 1, 2, 3, 4, 6 and 12 ranks


class Projector(Protocol):
    """Solves ``K_ZZ t = h`` over columns sharded like the model."""

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution from its part of `h`."""
        ...


@dataclass(frozen=True)
class EigenProSetup:
    """What a rank needs beside its columns.

    Attributes
    ----------
    state : EigenProState
    part : EigenProPart
        Its rows of the preconditioner.
    damped : (p_r, q) array, or (s_r, q) with all rows as centres
        ``K(Z_r, S) V D``; with all rows as centres only the rows of S are needed.
    projector : Projector or None
        None when all rows are centres.
    window : int
        Batches T between projections.
    head_blocks : tuple of slices
        The blocks of the rank's members of S; see :class:`daskkern.basis.Columns`.
    local, rows : (p_r,) arrays of int or None
        With all rows as centres: the rank's columns in the order of their rows, and those rows, ascending.
    """

    state: EigenProState
    part: EigenProPart
    damped: Array
    projector: Projector | None
    window: int
    head_blocks: tuple[slice, ...]
    local: HostArray | None = None
    rows: HostArray | None = None


@dataclass(frozen=True)
class Temporary:
    """One stripe of each of the window's batches as temporary centres, with their coefficients."""

    points: Points
    coefficients: Array

    def join(self, later: "Temporary") -> "Temporary":
        """Return these centres followed by later ones of the same window."""
        xp = namespace_of(self.coefficients)
        joined = self.points.join(later.points)
        return Temporary(joined, xp.concatenate([self.coefficients, later.coefficients]))


@dataclass(frozen=True)
class EigenProRun:
    """The state of a run on one rank.

    `a` (p_r, c) as of the last projection and `scale`, by which the ridge penalty shrank it since; `working` is that a
    plus what S gained since (both by column); `pending` h (p_r, c); `at_S` the model's values at the rank's members
    of S (s_r, c), kept for the ridge penalty; `temporary` the window's own centres. All rows as centres: only
    `working` and `at_S` are used; explicit features: only `working`, which is w.
    """

    a: Array
    scale: float
    working: Array
    pending: Array
    at_S: Array
    temporary: tuple[Temporary, ...]
    in_window: int
    step: int
    average: TailAverage


@dataclass(frozen=True)
class EigenPro(Solver[EigenProRun]):
    """EigenPro.

    Parameters
    ----------
    subsample : int or "auto"
        Rows s of the preconditioner's subsample S; "auto" is 2,000 or 4 in 5 of the centres, whichever is less, and
        for explicit features 4,800 or 4 in 5 of the rows.
    n_directions : int or "auto"
        Damped directions q; "auto" is at most 1,000, and 160 for explicit features.
    rho, tau : float
        Damping exponent and factor; see :class:`daskkern.preconditioners.SpectrumSettings`.
    projection : {"auto", "exact", "eigenpro"}
        How K_ZZ is solved for p centres: an inverted Cholesky factor, or two epochs of EigenPro on the centres
        themselves. "auto" is exact up to p = 20,000. Explicit features have none.
    window : int or "auto"
        Batches T between projections; "auto" balances the two costs. Explicit features have none.
    averaging : float
        Share of the run, at its end, whose iterates are averaged; 0 returns the last one.
    step_scale : float
        Multiplies the step, below 2: at twice the step ``m / (L (beta + (m - 1) l_P))`` the mean square of the iterates
        stops contracting (Ma, Bassily and Belkin, ICML 2018). ``solver="auto"`` takes 1.5, which reaches the same
        error in about two thirds of the epochs; averaging removes the noise that it adds.
    """

    name: ClassVar[str] = "eigenpro"
    bases: ClassVar[tuple[str, ...]] = ("all rows", "landmarks", "random features", "nystrom features", "linear")

    subsample: int | str = "auto"
    n_directions: int | str = "auto"
    rho: float = 0.95
    tau: float = 1.0
    projection: str = "auto"
    window: int | str = "auto"
    averaging: float = 1 / 3
    step_scale: float = 1.0

    def __post_init__(self) -> None:
        for field in ("subsample", "n_directions", "window"):
            value = getattr(self, field)
            if value != "auto" and not is_whole(value, least=0 if field == "n_directions" else 1):
                raise SpecError(f"{field}={value!r} was asked of EigenPro; give a positive whole number or 'auto'")
        if self.projection not in ("auto", "exact", "eigenpro"):
            raise SpecError(f"projection={self.projection!r} was asked; choose 'auto', 'exact' or 'eigenpro'")
        if not 0 < self.step_scale < 2:
            raise SpecError(f"step_scale={self.step_scale!r} was asked; give a number above 0 and below 2")
        if not 0 <= self.averaging <= 1:
            raise SpecError(f"averaging={self.averaging!r} was asked; give a share between 0 and 1")

    def init(self, problem: Problem, comm: Communicator) -> EigenProRun:
        del comm
        setup: EigenProSetup | FeatureSetup = problem.extra
        xp = namespace_of(setup.part.vectors)
        p, c = problem.part.columns.ids.size, problem.n_outputs
        zero = xp.zeros((p, c), problem.dtype)
        at_S = xp.zeros((problem.part.columns.n_head, c), problem.dtype)
        start = round(problem.n_steps * (1 - self.averaging))
        return EigenProRun(zero, 1.0, zero, zero, at_S, (), 0, 0, TailAverage(max(start, 1)))

    def step(self, problem: Problem, state: EigenProRun, batch: Batch, comm: Communicator) -> tuple[EigenProRun, float]:
        setup: EigenProSetup | FeatureSetup = problem.extra
        eta = setup.state.step_size(batch.size, smoothness_of(problem.loss), problem.alpha)
        eta *= self.step_scale * decay(problem.loss, state.step, problem.batches_per_epoch)
        if isinstance(setup, FeatureSetup):
            return _step_features(problem, state, batch, eta, comm)
        if setup.projector is None:
            return _step_all_rows(problem, setup, state, batch, eta, comm)
        state, loss = _step_window(problem, setup, state, batch, eta, comm)
        if batch.last or state.in_window >= setup.window:
            state = _project(setup.projector, state, comm)
        return state, loss

    def finish(self, problem: Problem, state: EigenProRun, comm: Communicator) -> Array:
        del comm
        # Within a window `working` lacks the temporary centres: an interrupted run falls back on the last projection.
        setup: EigenProSetup | FeatureSetup = problem.extra
        whole = state.working if isinstance(setup, FeatureSetup) or setup.projector is None else state.a
        return state.average.value(whole)

    def snapshot(self, problem: Problem, state: EigenProRun) -> Snapshot | None:
        if state.in_window:
            return None
        ids = problem.part.columns.ids
        head = ids[: problem.part.columns.n_head]
        shards = {"working": Shard(ids, state.working), "at_S": Shard(head, state.at_S), **state.average.shards(ids)}
        return Snapshot(
            shards, numbers={"step": state.step, "averaged": state.average.count, "averaged_from": state.average.start}
        )

    def restore(self, problem: Problem, saved: Snapshot) -> EigenProRun:
        fresh = self.init(problem, SerialCommunicator())
        xp, ids = namespace_of(fresh.working), problem.part.columns.ids
        working = xp.asarray(saved.rows("working", ids))
        return replace(
            fresh,
            a=working,
            working=working,
            at_S=xp.asarray(saved.rows("at_S", ids[: problem.part.columns.n_head])),
            step=int(saved.numbers["step"]),
            average=fresh.average.restored(saved, ids, xp),
        )


def _step_features(
    problem: Problem, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float]:
    direction, loss = feature_direction(problem, state.working, batch, comm)
    working = state.working - eta * direction
    step = state.step + 1
    return replace(state, working=working, step=step, average=state.average.add(step, working)), loss


def _step_all_rows(
    problem: Problem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    if batch.phi is not None:
        head = batch.phi[:, :n_head]
        partial = multiply_blocks(batch.phi, state.working, problem.part.columns.blocks, xp)
    else:
        head = xp.empty((m, n_head), problem.dtype)
        partial = problem.part.scores(batch.X, state.working, head)
    loss, g = loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    residual = multiply_transposed(head, g, xp) * (1 / m) + problem.alpha * state.at_S  # u, own rows of S
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # r
    working = state.working * shrink if problem.alpha else state.working.copy()
    here, rows = _own_rows(setup, batch)
    working[here] -= (eta / m) * g[rows]  # the rows of a batch are distinct
    working[:n_head] += eta * setup.part.apply(projected)
    at_S = state.at_S - eta * (residual - setup.damped @ projected) if problem.alpha else state.at_S
    step = state.step + 1
    average = state.average.add(step, working)
    return replace(state, working=working, at_S=at_S, step=step, average=average), loss


def _own_rows(setup: EigenProSetup, batch: Batch) -> tuple[HostArray, HostArray]:
    """Return local columns and batch rows of the batch's rows that this rank holds as centres."""
    if setup.local is None or setup.rows is None:
        raise SpecError("all rows are centres, but the rank has no table of its rows")
    at = np.minimum(np.searchsorted(setup.rows, batch.positions), max(setup.rows.size - 1, 0))
    here = setup.rows[at] == batch.positions if setup.rows.size else np.zeros(batch.size, bool)
    found = here.nonzero()[0]
    return setup.local[at[found]], found


def _step_window(
    problem: Problem, setup: EigenProSetup, state: EigenProRun, batch: Batch, eta: float, comm: Communicator
) -> tuple[EigenProRun, float]:
    xp = namespace_of(state.working)
    m, n_head = batch.size, problem.part.columns.n_head
    rows = batch.X if batch.X is None else problem.part.kernel.left(batch.X, problem.part.points)
    phi = problem.part.block(rows) if batch.phi is None else batch.phi
    partial = multiply_blocks(phi, state.working, problem.part.columns.blocks, xp)
    for stripe in state.temporary:
        partial += problem.part.kernel.matvec(rows, stripe.points, stripe.coefficients)
    loss, g = loss_and_gradient(problem, comm.allreduce(partial).astype(problem.dtype), batch)
    shrink = 1 - eta * problem.alpha
    pulled = multiply_transposed(phi, g, xp) * (1 / m)  # K_ZB g / m
    residual = pulled[:n_head] + problem.alpha * state.at_S if problem.alpha else pulled[:n_head]
    projected = comm.allreduce(setup.part.project(residual, setup.head_blocks)).astype(problem.dtype)  # r
    working = state.working * shrink
    working[:n_head] += eta * setup.part.apply(projected)
    correction = setup.damped @ projected
    pending = state.pending * shrink + eta * (pulled - correction)
    at_S = state.at_S - eta * (residual - correction[:n_head]) if problem.alpha else state.at_S
    in_window = state.in_window + 1
    temporary = state.temporary
    if problem.alpha:
        temporary = tuple(Temporary(stripe.points, stripe.coefficients * shrink) for stripe in temporary)
    if not batch.last and in_window < setup.window:
        fresh = _stripes(problem, batch, g * (-eta / m), comm)
        temporary = tuple(a.join(b) for a, b in zip(temporary, fresh, strict=True)) if temporary else fresh
    run = EigenProRun(
        state.a, state.scale * shrink, working, pending, at_S, temporary, in_window, state.step + 1, state.average
    )
    return run, loss


def _stripes(problem: Problem, batch: Batch, coefficients: Array, comm: Communicator) -> tuple[Temporary, ...]:
    """Return this rank's stripes of the batch's rows as temporary centres: the same stripes for up to 12 ranks."""
    if batch.X is None:
        raise SpecError("a window of more than one batch needs the rows of its batches")
    count = max(_STRIPES, comm.size)
    edges = [batch.size * k // count for k in range(count + 1)]
    own = range(count * comm.rank // comm.size, count * (comm.rank + 1) // comm.size)
    parts = [slice(edges[k], edges[k + 1]) for k in own]
    like = problem.part.points
    fresh = (problem.part.kernel.points(batch.X[rows], like.shift, precision=like.precision) for rows in parts)
    return tuple(Temporary(points, coefficients[rows]) for points, rows in zip(fresh, parts, strict=True))


def _project(projector: Projector, state: EigenProRun, comm: Communicator) -> EigenProRun:
    """End the window: put its gradient on the centres and drop the temporary ones."""
    a = state.a * state.scale - projector.solve(state.pending, comm)
    average = state.average.add(state.step, a)
    return replace(
        state, a=a, scale=1.0, working=a, pending=state.pending * 0, temporary=(), in_window=0, average=average
    )
