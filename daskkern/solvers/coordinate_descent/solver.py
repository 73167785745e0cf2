"""Coordinate descent with an L1 penalty, for losses with a second derivative over explicit features.

It minimises ``F(w) = (1/n) sum w loss + (alpha/2) |w|^2 + l1 sum_j |w_j|``: the lasso and the elastic net for the
squared loss, sparse logistic regression. An epoch is a pass over the rows, which adds up loss, gradient g and the
curvature ``H = Phi_W^T diag(loss'') Phi_W / n`` of the *working* columns W. Coordinate descent then minimises

    g^T (v - w) + (v - w)^T H (v - w) / 2 + (alpha/2) |v|^2 + l1 |v|_1

over their coefficients v (:mod:`.quadratic`), without another look at the rows. For the squared loss this is F itself:
where all columns are working ones the first epoch finds the minimum, and the second one proves it. For other losses it
is a proximal Newton step; one that raises F is halved.

All columns are working ones where there are at most `working_set`. Else each epoch takes those whose coefficients
are not 0, and of the others those that violate the conditions of the optimum most; with more that are not 0, those that
violate them most. Its first pass then finds the gradient at 0 only.

Distributed by rows: every rank has all columns, and adds up its own rows; a pass ends with one allreduce of
(p + 1) c + k w^2 numbers, k matrices of w columns, and a broadcast of (p + 1) c.

References
----------
Friedman, Hastie and Tibshirani, "Regularization paths for generalized linear models via coordinate descent", Journal
of Statistical Software 2010 (covariance updates); Yuan, Ho and Lin, "An improved GLMNET for L1-regularized logistic
regression", JMLR 2012; Shalev-Shwartz and Tewari, "Stochastic methods for l1-regularized loss minimization", JMLR 2011,
whose algorithm 1 (SCD) moves a random coordinate by ``soft(w_j - g_j / beta, l1 / beta)``.

Where we differ: coordinates move in turn and by their own curvature, on a matrix in place of the rows, as a pass over
the rows for each coordinate is more than streamed data allow; steps are halved in place of Yuan's line search.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_host
from daskkern.errors import DataError, SpecError
from daskkern.losses import Curved, Loss, Squared
from daskkern.solvers.base import Solver, is_whole
from daskkern.solvers.coordinate_descent import passes
from daskkern.solvers.coordinate_descent.costs import CurvatureCosts
from daskkern.solvers.coordinate_descent.passes import DescentSetup, PassSums
from daskkern.solvers.coordinate_descent.quadratic import minimise, violation
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.problem import Batch, Certificate, Problem
from daskkern.solvers.rows import reported_loss
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Snapshot

_ROUNDING = 1e-6
_INNER = 1e-3  # how much finer than the largest violation a quadratic problem is solved
_FINEST = 1e-12
_NUMBERS = ("objective", "scale", "slope", "halved", "passes", "loss", "seen")


@dataclass(frozen=True, eq=False)
class DescentRun:
    """The state of a run; arrays are the same on every rank, those of coefficients (p, c) float64 in host memory.

    Attributes
    ----------
    w : (p, c) array
        The model whose loss and gradient the next pass finds.
    best : (p, c) array
        The last model whose objective did not rise.
    working : (w,) int64
        The columns whose curvature the pass adds up.
    objective : float
        That of `best`; infinite before the first pass.
    scale, slope : float
        The largest violation of the conditions of the optimum at the model 0, and at `best`.
    halved : bool
        The last model was rejected, and `w` is not known to be better than `best`.
    passes : int
        Finished ones.
    curvature : (k, w, w) array or None
        For the squared loss, whose curvature stays the same while the working columns do.
    sums : PassSums or None
        Those of the pass; None between passes.
    loss : float
        Mean training loss of `w` for the squared loss, of `best` for others.
    reported, seen : float, int
        The sum of losses that was reported in this epoch, and its rows.
    """

    w: FloatArray
    best: FloatArray
    working: IntArray
    objective: float = np.inf
    scale: float = 0.0
    slope: float = np.inf
    halved: bool = False
    passes: int = 0
    curvature: FloatArray | None = None
    sums: PassSums | None = None
    loss: float = 0.0
    reported: float = 0.0
    seen: int = 0


@dataclass(frozen=True)
class CoordinateDescent(Solver[DescentRun]):
    """Coordinate descent over explicit features, with an L1 penalty. An epoch is one pass over the rows.

    Parameters
    ----------
    l1 : float
        Penalty on the absolute values of all coefficients, that of a constant feature included: many become exactly 0,
        and the model leaves their columns out. scikit-learn's ``Lasso(alpha)`` is this one for centred targets of
        deviation 1 (in units of the deviation of others), ``LogisticRegression(C)`` for ``l1 = 1 / (C n)``.
    working_set : int
        Most columns whose curvature is in memory, ``8 working_set^2`` bytes for each output (for the squared loss one
        matrix for all) and twice as much while it is sent.
    tol : float
        The fit ends when no coordinate violates the conditions of the optimum by more than `tol` times the largest
        violation at the model 0. 0 disables this.
    """

    name: ClassVar[str] = "coordinate_descent"
    preparation: ClassVar[str] = "nothing"
    parallelism: ClassVar[str] = "rows"
    bases: ClassVar[tuple[str, ...]] = ("random features", "nystrom features", "linear", "locally linear")
    ability: ClassVar[tuple[type[Any], str] | None] = (Curved, "a second derivative")
    drops_zeros: ClassVar[bool] = True

    l1: float = 0.0
    working_set: int = 1024
    tol: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 <= self.l1 < np.inf:
            raise SpecError(f"got l1={self.l1!r} for CoordinateDescent; give a penalty of 0 or more")
        if not is_whole(self.working_set, least=4):
            raise SpecError(f"got working_set={self.working_set!r} for CoordinateDescent; give 4 columns or more")
        if not self.tol >= 0:
            raise SpecError(f"got tol={self.tol!r} for CoordinateDescent; give a number of 0 or more")

    @property
    def l1_penalty(self) -> float:
        return self.l1

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return CurvatureCosts(self.working_set, isinstance(loss, Squared))

    def rank_setup(self, inputs: RankInputs) -> DescentSetup:
        return DescentSetup.of(inputs)

    def init(self, problem: Problem[DescentSetup], comm: Communicator) -> DescentRun:
        del comm
        p = problem.extra.whole.points.size
        zero = np.zeros((p, problem.n_outputs))
        return DescentRun(zero, zero, np.arange(p if p <= self.working_set else 0))

    def step(
        self, problem: Problem[DescentSetup], state: DescentRun, batch: Batch, comm: Communicator
    ) -> tuple[DescentRun, float]:
        if state.sums is None:
            state = replace(state, sums=passes.begin(problem, state.working, known=state.curvature is not None))
        assert state.sums is not None
        w = problem.part.namespace.asarray(state.w) if state.w.any() else None
        state = replace(state, sums=passes.add(problem, state.sums, state.working, batch, w))
        if batch.last:
            state = self._end_pass(problem, state, comm)
        reported, seen, amount = reported_loss(state.loss, state.reported, state.seen, batch, ended=state.sums is None)
        return replace(state, reported=reported, seen=seen), amount

    def _end_pass(self, problem: Problem[DescentSetup], state: DescentRun, comm: Communicator) -> DescentRun:
        """Accept `w` and move on from it, or go half the way back to the last model that was accepted."""
        assert state.sums is not None
        gradient, loss, curvature = passes.whole(problem, state.sums, comm)
        w, alpha = state.w, float(problem.alpha)
        curvature = state.curvature if curvature is None else curvature
        state = replace(state, sums=None, passes=state.passes + 1)
        objective = loss + alpha / 2 * float((w * w).sum()) + self.l1 * float(np.abs(w).sum())
        if state.passes > 1 and not objective <= state.objective + _ROUNDING * abs(state.objective):
            return replace(state, w=(w + state.best) / 2, halved=True)
        wrong = violation(gradient + alpha * w, w, self.l1).max(axis=1)
        slope = float(wrong.max(initial=0.0))
        scale = slope if state.passes == 1 else state.scale
        state = replace(state, best=w, objective=objective, slope=slope, scale=scale, halved=False, loss=loss)
        if slope <= self.tol * scale:
            return state
        squared = isinstance(problem.loss, Squared)
        moved, gain = self._moved(state, gradient, curvature, alpha, comm)
        working = self._working(wrong, moved)
        same = squared and np.array_equal(working, state.working)
        if squared:
            state = replace(state, loss=max(0.0, loss - gain))
        return replace(state, w=moved, working=working, curvature=curvature if same else None)

    def _moved(
        self, state: DescentRun, gradient: FloatArray, curvature: FloatArray | None, alpha: float, comm: Communicator
    ) -> tuple[FloatArray, float]:
        """Return the model (p, c) after coordinate descent, as rank 0 finds it, and by how much its loss falls."""
        result = np.zeros((len(state.w) + 1, state.w.shape[1]))
        if comm.rank == 0:
            result[:-1], at, gain = state.w, state.working, 0.0
            tol = min(_INNER * state.slope, max(self.tol / 4, _FINEST) * state.scale)
            for output in range(state.w.shape[1] if len(at) else 0):
                assert curvature is not None
                H, start, g = curvature[min(output, len(curvature) - 1)], state.w[at, output], gradient[at, output]
                A = H.copy()
                A[np.diag_indices(len(A))] += alpha
                v = minimise(A, g - H @ start, self.l1, start, tol)
                change = v - start
                gain -= float(g @ change + change @ H @ change / 2)
                result[at, output] = v
            result[-1] = gain
        result = to_host(comm.broadcast(result))
        return result[:-1].copy(), float(result[-1, 0])

    def _working(self, wrong: FloatArray, w: FloatArray) -> IntArray:
        """Return the columns of the next pass, ascending, from the violations `wrong` (p,) and the model (p, c)."""
        if len(w) <= self.working_set:
            return np.arange(len(w))
        order = np.argsort(-wrong, kind="stable")
        used, wanted = (w[order] != 0).any(axis=1), wrong[order] > 0
        room = max(1, self.working_set - self.working_set // 4)
        kept, others = order[used], order[~used & wanted]
        ranked = np.concatenate([kept[:room], others, kept[room:], order[~used & ~wanted]])
        found: IntArray = np.sort(ranked[: self.working_set])
        return found

    def finish(self, problem: Problem[DescentSetup], state: DescentRun, comm: Communicator) -> Array:
        del comm
        # Only of the squared loss a step is known to be better before a pass has met its model.
        coef = state.w if isinstance(problem.loss, Squared) and not state.halved else state.best
        return problem.part.namespace.asarray(coef[problem.part.columns.ids].astype(problem.dtype))

    def certificate(self, problem: Problem[DescentSetup], state: DescentRun) -> Certificate | None:
        del problem
        if not state.passes:
            return None
        return Certificate("optimality violation", state.slope / (state.scale or 1.0), self.tol)

    def snapshot(self, problem: Problem[DescentSetup], state: DescentRun) -> Snapshot | None:
        del problem
        if state.sums is not None:
            return None
        numbers = {name: float(getattr(state, name)) for name in _NUMBERS} | {"told": float(state.reported)}
        return Snapshot({}, {name: getattr(state, name) for name in ("w", "best", "working")}, numbers)

    def restore(self, problem: Problem[DescentSetup], saved: Snapshot) -> DescentRun:
        shape, numbers = (problem.extra.whole.points.size, problem.n_outputs), saved.numbers
        if any(name not in saved.whole or saved.whole[name].shape != shape for name in ("w", "best")):
            raise DataError("a saved state does not fit this coordinate descent: its coefficients have another shape")
        w, best, working = (to_host(saved.whole[name]) for name in ("w", "best", "working"))
        return DescentRun(
            w, best, working.astype(np.int64), numbers["objective"], numbers["scale"], numbers["slope"],
            bool(numbers["halved"]), int(numbers["passes"]),
            loss=numbers["loss"], reported=numbers["told"], seen=int(numbers["seen"]),
        )  # fmt: skip
