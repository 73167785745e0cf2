"""Preconditioned conjugate gradient for kernel ridge regression with all rows as centres: exact in the limit.

    (W^(1/2) K W^(1/2) + n alpha) z = W^(1/2) y ,   a = W^(1/2) z

Distributed by rows of K, which are its columns: a rank has the points of its own rows, passes over all rows and
computes its own ``K_rX v``. An iteration is one pass; it costs an allgather of (n, c) numbers, one allreduce of (s, c)
for the preconditioner, and one of (4, c) and of (3, c). n numbers for each output are held whole on every rank.

A recursion updates the residual; it is evaluated in every tenth pass, in the last, and in the one after it has
reached the tolerance: such a pass multiplies K with direction and solution at once, and sends twice as much.

References
----------
Avron, Clarkson and Woodruff, SIMAX 2017; Frangella, Tropp and Udell, SIMAX 2023. See
:mod:`daskkern.preconditioners.low_rank`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import multiply_transposed
from daskkern.errors import DataError, SpecError
from daskkern.losses import Loss, Squared
from daskkern.solvers.base import Solver, is_whole, ratio
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.kernel_ridge.pcg_costs import SketchCosts
from daskkern.solvers.kernel_ridge.pcg_setup import PCGSetup, pcg_setup
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Shard, Snapshot

_EVALUATE = 10
_RESTART = 0.1
_NOISE = 0.5
_NUMBERS = ("steps", "residual", "checked", "floored")
PRECONDITIONERS = ("nystrom", "random_features", "none")


@dataclass(frozen=True)
class PCGRun:
    """The state of a run; arrays (n_r, c) are float64, by column.

    Attributes
    ----------
    x, r, d : (n_r, c) arrays
        Solution so far, its residual, next direction.
    norm : (c,) array
        ``|W^(1/2) y|``.
    sums : (n_r, k) array or None
        Sums of the pass for the rank's own rows; None between passes.
    whole : (n, k) array or None
        W^(1/2) d of all rows, k = c; in a pass that evaluates the residual W^(1/2) x, too, and k = 2 c.
    steps : int
        Finished iterations.
    residual : float
        ``|r| / |W^(1/2) y|`` of the worst output.
    checked, floored : bool
        The last pass evaluated the residual; it was mostly rounding.
    """

    x: Array
    r: Array
    d: Array
    norm: Array
    sums: Array | None = None
    whole: Array | None = None
    steps: int = 0
    residual: float = 1.0
    checked: bool = False
    floored: bool = False


@dataclass(frozen=True)
class PCG(Solver[PCGRun]):
    """Preconditioned conjugate gradient on all rows, for the squared loss. An epoch is an iteration.

    Parameters
    ----------
    preconditioner : {"nystrom", "random_features", "none"}
        "none" is plain kernel conjugate gradient: many more iterations; stopping early gives a smoother model.
    rank : int or "auto"
        s: landmarks, or random features, of the preconditioner; "auto" is 1,000, or a quarter of the rows if fewer.
    tol : float
        The fit ends when the evaluated residual is at most `tol` times the targets for every output, or when rounding
        keeps it from falling further. With 0 it ends for the latter reason only.
    """

    name: ClassVar[str] = "pcg"
    preparation: ClassVar[str] = "nothing"
    descends: ClassVar[bool] = False
    bases: ClassVar[tuple[str, ...]] = ("all rows",)
    ability: ClassVar[tuple[type[Squared], str] | None] = (Squared, "linear normal equations")

    preconditioner: str = "nystrom"
    rank: int | str = "auto"
    tol: float = 1e-7

    def __post_init__(self) -> None:
        if self.preconditioner not in PRECONDITIONERS:
            known = ", ".join(PRECONDITIONERS)
            raise SpecError(f"got preconditioner={self.preconditioner!r} for PCG; choose one of {known}")
        if self.rank != "auto" and not is_whole(self.rank, least=2):
            raise SpecError(f"got rank={self.rank!r} for PCG; give 2 or more, or 'auto'")
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for PCG; give a number of 0 or more")

    def size(self, n_rows: int) -> int:
        """Return s, even, for `n_rows` rows; 0 without a preconditioner."""
        if self.preconditioner == "none":
            return 0
        s = min(1000, n_rows // 4) if self.rank == "auto" else min(int(self.rank), n_rows)
        return max(2, s // 2 * 2)

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return SketchCosts(sketch=max(1, self.size(n_rows)))

    def rank_setup(self, inputs: RankInputs) -> PCGSetup:
        return pcg_setup(inputs, self.preconditioner, self.size(inputs.basis.n_columns))

    def init(self, problem: Problem[PCGSetup], comm: Communicator) -> PCGRun:
        setup: PCGSetup = problem.extra
        b = setup.root * setup.y
        xp = namespace_of(b)
        norm = xp.sqrt(comm.allreduce((b * b).sum(axis=0)))
        return PCGRun(xp.zeros_like(b), b, setup.part.solve(b, comm), norm)

    def step(self, problem: Problem[PCGSetup], state: PCGRun, batch: Batch, comm: Communicator) -> tuple[PCGRun, float]:
        setup: PCGSetup = problem.extra
        xp = namespace_of(state.d)
        if state.sums is None or state.whole is None:
            last = state.steps + 1 == problem.max_epochs
            evaluate = last or state.steps % _EVALUATE == _EVALUATE - 1 or state.residual <= self.tol
            v = xp.concatenate([state.d, state.x], axis=1) if evaluate else state.d
            whole = _everywhere(setup, setup.root * v, comm).astype(problem.dtype)
            state = replace(state, whole=whole, sums=xp.zeros_like(v))
        assert state.whole is not None
        v = state.whole[xp.asarray(batch.positions)]
        pulled = problem.part.pullback(batch.X, v) if batch.phi is None else multiply_transposed(batch.phi, v, xp)
        state = replace(state, sums=state.sums + pulled)
        if not batch.last:
            return state, 0.0
        return _iterate(problem, setup, state, comm)

    def finish(self, problem: Problem[PCGSetup], state: PCGRun, comm: Communicator) -> Array:
        del comm
        return (problem.extra.root * state.x).astype(problem.dtype)

    def certificate(self, problem: Problem[PCGSetup], state: PCGRun) -> Certificate | None:
        note = f"the rounding of {problem.dtype} lets it fall no further" if state.floored else ""
        return Certificate("relative residual", state.residual, self.tol, note)

    def done(self, problem: Problem[PCGSetup], state: PCGRun) -> bool:
        return state.floored or (state.checked and super().done(problem, state))

    def snapshot(self, problem: Problem[PCGSetup], state: PCGRun) -> Snapshot | None:
        if state.sums is not None:
            return None
        ids = problem.part.columns.ids
        shards = {name: Shard(ids, getattr(state, name)) for name in ("x", "r", "d")}
        return Snapshot(shards, {"norm": state.norm}, {name: float(getattr(state, name)) for name in _NUMBERS})

    def restore(self, problem: Problem[PCGSetup], saved: Snapshot) -> PCGRun:
        if "norm" not in saved.whole or "residual" not in saved.numbers:
            raise DataError("a saved state is that of an older PCG, without a true residual; start the fit again")
        ids, xp, numbers = problem.part.columns.ids, namespace_of(problem.extra.y), saved.numbers
        x, r, d = (xp.asarray(saved.rows(name, ids)) for name in ("x", "r", "d"))
        run = PCGRun(x, r, d, xp.asarray(saved.whole["norm"]), steps=int(numbers["steps"]))
        checked, floored = (bool(numbers[name]) for name in ("checked", "floored"))
        return replace(run, residual=numbers["residual"], checked=checked, floored=floored)


def _everywhere(setup: PCGSetup, own: Array, comm: Communicator) -> Array:
    """Return the rows of all ranks (n, c) in the order of the columns."""
    parts = comm.allgather_of(own, [len(ids) for ids in setup.ids])
    xp = namespace_of(own)
    whole = xp.empty((setup.n_rows, own.shape[1]), own.dtype)
    for ids, part in zip(setup.ids, parts, strict=True):
        whole[xp.asarray(ids)] = part
    return whole


def _iterate(problem: Problem[PCGSetup], setup: PCGSetup, state: PCGRun, comm: Communicator) -> tuple[PCGRun, float]:
    """End a pass: one iteration, and the summed training loss after it.

    The next direction is conjugate to the last; it is the preconditioned residual alone where evaluating the residual
    has changed it by a tenth. Where the change is most of the residual, the solution stays as it was evaluated.
    """
    xp, c = namespace_of(state.d), state.d.shape[1]
    assert state.sums is not None
    ridge = setup.n_rows * problem.alpha
    Hd = setup.root * state.sums[:, :c] + ridge * state.d
    checked, r = state.sums.shape[1] > c, state.r
    if checked:
        r = setup.root * (setup.y - state.sums[:, c:]) - ridge * state.x
    products = (state.d * Hd, state.d * r, r * r, (r - state.r) ** 2)
    curvature, slope, size, gap = comm.allreduce(xp.stack([product.sum(axis=0) for product in products]))
    floored = checked and float(gap.sum()) > _NOISE**2 * float(size.sum())
    length = 0 * slope if floored else ratio(slope, curvature)
    x, r = state.x + length * state.d, r - length * Hd
    z = setup.part.solve(r, comm)
    after = (z * Hd, r * r, (r + ridge * x) ** 2)  # the last of W^(1/2) (y - f)
    turn, size_left, errors = comm.allreduce(xp.stack([product.sum(axis=0) for product in after]))
    turn = xp.where(gap > _RESTART**2 * size, 0, -ratio(turn, curvature))
    residual = float(ratio(xp.sqrt(xp.maximum(size_left, gap)), state.norm).max())
    run = PCGRun(
        x, r, z + turn * state.d, state.norm,
        steps=state.steps + 1, residual=residual, checked=checked, floored=floored,
    )  # fmt: skip
    return run, 0.5 * float(errors.sum())
