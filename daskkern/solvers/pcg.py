"""Preconditioned conjugate gradient for kernel ridge regression with all rows as centres: exact in the limit.

    (W^(1/2) K W^(1/2) + n alpha) z = W^(1/2) y ,   a = W^(1/2) z

Distributed by rows of K, which are its columns: a rank has the points of its own rows, passes over all rows and keeps
``K_rX v`` of its own. An iteration is one pass; it costs an allgather of (n, c) numbers, one allreduce of (s, c) for
the preconditioner and two of (c,). n numbers for each output are held whole on every rank.

References
----------
Avron, Clarkson and Woodruff, SIMAX 2017; Frangella, Tropp and Udell, SIMAX 2023. See
:mod:`daskkern.preconditioners.low_rank`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import multiply_transposed
from daskkern.errors import SpecError
from daskkern.losses import Squared
from daskkern.preconditioners import LowRankPart, Unconditioned
from daskkern.solvers.base import Batch, Problem, Solver, is_whole
from daskkern.solvers.snapshot import Shard, Snapshot

PRECONDITIONERS = ("nystrom", "random_features", "none")


@dataclass(frozen=True)
class PCGSetup:
    """What a rank needs: the preconditioner, its own rows' targets and weights, and who has which row.

    Attributes
    ----------
    part : LowRankPart or Unconditioned
    y, root : (n_r, c) and (n_r, 1) float64
        Encoded targets and W^(1/2) of the rank's own columns.
    ids : tuple of (n_k,) int64
        The columns of each rank, in their order.
    """

    part: LowRankPart | Unconditioned
    y: Array
    root: Array
    ids: tuple[IntArray, ...]

    @property
    def n_rows(self) -> int:
        """n."""
        return sum(ids.size for ids in self.ids)


@dataclass(frozen=True)
class PCGRun:
    """The state of a run: x, r, d (n_r, c) float64 by column, ``r^T P^-1 r`` (c,), and the pass under way.

    `whole` is W^(1/2) d of all rows (n, c), `sums` what the pass has added up for the rank's own rows (n_r, c).
    """

    x: Array
    r: Array
    d: Array
    square: Array
    sums: Array | None = None
    whole: Array | None = None


@dataclass(frozen=True)
class PCG(Solver[PCGRun]):
    """Preconditioned conjugate gradient on all rows, for the squared loss. An epoch is an iteration.

    Parameters
    ----------
    preconditioner : {"nystrom", "random_features", "none"}
        "none" is kernel conjugate gradient: many more iterations, which end early for a smoother model.
    rank : int or "auto"
        s: landmarks, or random features, of the preconditioner; "auto" is 1,000, or a quarter of the rows if fewer.
    """

    name: ClassVar[str] = "pcg"
    descends: ClassVar[bool] = False
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")

    preconditioner: str = "nystrom"
    rank: int | str = "auto"

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            known = ", ".join(PRECONDITIONERS)
            raise SpecError(f"preconditioner={self.preconditioner!r} was asked of PCG; choose one of {known}")
        if self.rank != "auto" and not is_whole(self.rank, least=2):
            raise SpecError(f"rank={self.rank!r} was asked of PCG; give 2 or more, or 'auto'")

    def size(self, n_rows: int) -> int:
        """Return s, even, for `n_rows` rows; 0 without a preconditioner."""
        if self.preconditioner == "none":
            return 0
        s = min(1000, n_rows // 4) if self.rank == "auto" else min(int(self.rank), n_rows)
        return max(2, s // 2 * 2)

    def init(self, problem: Problem, comm: Communicator) -> PCGRun:
        setup: PCGSetup = problem.extra
        b = setup.root * setup.y
        d = setup.part.solve(b, comm)
        return PCGRun(namespace_of(b).zeros_like(b), b, d, comm.allreduce((b * d).sum(axis=0)))

    def step(self, problem: Problem, state: PCGRun, batch: Batch, comm: Communicator) -> tuple[PCGRun, float]:
        setup: PCGSetup = problem.extra
        xp = namespace_of(state.d)
        if state.sums is None or state.whole is None:
            whole = _everywhere(setup, setup.root * state.d, comm).astype(problem.dtype)
            state = replace(state, whole=whole, sums=xp.zeros_like(state.d))
        assert state.whole is not None
        v = state.whole[xp.asarray(batch.positions)]
        pulled = problem.part.pullback(batch.X, v) if batch.phi is None else multiply_transposed(batch.phi, v, xp)
        state = replace(state, sums=state.sums + pulled)
        if not batch.last:
            return state, 0.0
        return _iterate(problem, setup, state, comm)

    def finish(self, problem: Problem, state: PCGRun, comm: Communicator) -> Array:
        del comm
        return (problem.extra.root * state.x).astype(problem.dtype)

    def snapshot(self, problem: Problem, state: PCGRun) -> Snapshot | None:
        if state.sums is not None:
            return None
        ids = problem.part.columns.ids
        return Snapshot({name: Shard(ids, getattr(state, name)) for name in ("x", "r", "d")}, {"square": state.square})

    def restore(self, problem: Problem, saved: Snapshot) -> PCGRun:
        ids, xp = problem.part.columns.ids, namespace_of(problem.extra.y)
        x, r, d = (xp.asarray(saved.rows(name, ids)) for name in ("x", "r", "d"))
        return PCGRun(x, r, d, xp.asarray(saved.whole["square"]))


def _everywhere(setup: PCGSetup, own: Array, comm: Communicator) -> Array:
    """Return the rows of all ranks (n, c) in the order of the columns."""
    parts = comm.allgather(own)
    xp = namespace_of(own)
    whole = xp.empty((setup.n_rows, own.shape[1]), own.dtype)
    for ids, part in zip(setup.ids, parts, strict=True):
        whole[xp.asarray(ids)] = part
    return whole


def _iterate(problem: Problem, setup: PCGSetup, state: PCGRun, comm: Communicator) -> tuple[PCGRun, float]:
    """End a pass: one iteration, and the summed training loss after it."""
    xp = namespace_of(state.d)
    ridge = setup.n_rows * problem.alpha

    def ratio(a: Array, b: Array) -> Array:
        return xp.where(b > 0, a / xp.where(b > 0, b, 1), 0)

    Hd = setup.root * state.sums + ridge * state.d
    length = ratio(state.square, comm.allreduce((state.d * Hd).sum(axis=0)))
    x, r = state.x + length * state.d, state.r - length * Hd
    z = setup.part.solve(r, comm)
    errors = r + ridge * x  # W^(1/2) (y - f)
    both = comm.allreduce(xp.stack([(r * z).sum(axis=0), (errors**2).sum(axis=0)]))
    run = PCGRun(x, r, z + ratio(both[0], state.square) * state.d, both[0])
    return run, 0.5 * float(both[1].sum())
