"""NYTRO: gradient descent on landmarks, regularised by the number of iterations.

With ``K_ZZ = T^T T`` and u = T a, the model's norm is |u|, and an iteration over all rows is

    u <- u - eta (T^-T K_ZX W loss'(K_XZ T^-1 u) / n + alpha u) ;

for the squared loss and alpha 0 this is ``a <- a - (eta / n) K_ZZ^-1 K_ZX (K_XZ a - y)``. Few iterations fit the
leading directions only: stop early (``early_stopping``), or take fewer epochs, in place of a larger alpha.

Distributed by rows, as Falkon (:mod:`daskkern.solvers.falkon`): every rank has all landmarks and T, and an iteration is
one pass over its own rows and one allreduce of (p + 1, c) numbers.

References
----------
Camoriano, Angles, Rudi and Rosasco, "NYTRO: when subsampling meets early stopping", AISTATS 2016; named by Ma and
Belkin, NeurIPS 2017.

Where we differ: any smooth loss; an iteration that raises the objective is halved, and all later ones with it.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.backend.random import generator
from daskkern.errors import DataError, SpecError
from daskkern.losses import Loss, Smooth
from daskkern.solvers.base import Solver, smoothness_of
from daskkern.solvers.costs.sizes import MethodCosts
from daskkern.solvers.falkon import FalkonSetup, factor_setup
from daskkern.solvers.falkon.costs import FactorCosts
from daskkern.solvers.problem import Batch, Problem
from daskkern.solvers.rows import gradient_of_rows, reported_loss
from daskkern.solvers.setup import RankInputs
from daskkern.solvers.snapshot import Snapshot

_STREAM = 64
_ROUNDING = 1e-6
_NUMBERS = ("eta", "objective", "halved", "loss", "seen")
_POWER_ITERATIONS = 20
_SAFETY = 1.25
"""By how much the largest eigenvalue among the rows may exceed that among the landmarks before a step is halved."""


@dataclass(frozen=True)
class NytroRun:
    """The state of a run; arrays (p, c) float64 are the same on every rank.

    Attributes
    ----------
    u : (p, c) array
        T a of the model whose gradient the current pass computes.
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
    v : (p, c) array or None
        T^-1 u during a pass.
    loss : float
        Last known mean training loss.
    reported, seen : float, int
        The sum of losses that was reported in this epoch, and its rows.
    """

    u: Array
    eta: float
    best: Array
    slope: Array
    objective: float = np.inf
    halved: bool = False
    sums: Array | None = None
    v: Array | None = None
    loss: float = 0.0
    reported: float = 0.0
    seen: int = 0


@dataclass(frozen=True)
class NYTRO(Solver[NytroRun]):
    """Gradient descent on landmarks in the norm of the model, for every smooth loss. An epoch is an iteration.

    Parameters
    ----------
    step_scale : float
        Multiplies the step ``1 / (L l + alpha)``, below 2: L is the smoothness of the loss and l the largest eigenvalue
        of the landmarks' weighted ``K_ZZ / p``, with a margin.
    """

    name: ClassVar[str] = "nytro"
    preparation: ClassVar[str] = "nothing"
    parallelism: ClassVar[str] = "rows"
    bases: ClassVar[tuple[str, ...]] = ("landmarks",)
    ability: ClassVar[tuple[type[Smooth], str] | None] = (Smooth, "a smooth gradient")

    step_scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.step_scale < 2:
            raise SpecError(f"got step_scale={self.step_scale!r} for NYTRO; give a number above 0 and below 2")

    def costs(self, n_rows: int, loss: Loss) -> MethodCosts:
        return FactorCosts(factors=1)

    def rank_setup(self, inputs: RankInputs) -> FalkonSetup:
        return factor_setup(inputs)

    def init(self, problem: Problem[FalkonSetup], comm: Communicator) -> NytroRun:
        del comm
        setup: FalkonSetup = problem.extra
        zero = namespace_of(setup.part.weights).zeros((setup.part.layout.p, problem.n_outputs))
        steepest = smoothness_of(problem.loss) * _SAFETY * _top_eigenvalue(setup)
        return NytroRun(zero, self.step_scale / (steepest + problem.alpha), zero, zero)

    def step(
        self, problem: Problem[FalkonSetup], state: NytroRun, batch: Batch, comm: Communicator
    ) -> tuple[NytroRun, float]:
        setup: FalkonSetup = problem.extra
        if state.sums is None:
            sums = namespace_of(state.u).zeros((state.u.shape[0] + 1, state.u.shape[1]))
            state = replace(state, sums=sums, v=setup.part.lower.solve_transposed(state.u))
        assert state.sums is not None
        pulled, loss, _ = gradient_of_rows(problem, setup.whole, batch, state.v)
        xp = namespace_of(state.u)
        state = replace(state, sums=xp.concatenate([state.sums[:-1] + pulled, state.sums[-1:] + loss]))
        if batch.last:
            state = _descend(problem, setup, state, comm)
        reported, seen, amount = reported_loss(state.loss, state.reported, state.seen, batch, ended=state.sums is None)
        return replace(state, reported=reported, seen=seen), amount

    def finish(self, problem: Problem[FalkonSetup], state: NytroRun, comm: Communicator) -> Array:
        del comm
        setup: FalkonSetup = problem.extra
        own = namespace_of(state.u).asarray(problem.part.columns.ids)
        u = state.best if state.halved else state.u
        return setup.part.lower.solve_transposed(u)[own].astype(problem.dtype)

    def snapshot(self, problem: Problem[FalkonSetup], state: NytroRun) -> Snapshot | None:
        if state.sums is not None:
            return None
        numbers = {name: float(getattr(state, name)) for name in _NUMBERS} | {"told": float(state.reported)}
        return Snapshot({}, {name: getattr(state, name) for name in ("u", "best", "slope")}, numbers)

    def restore(self, problem: Problem[FalkonSetup], saved: Snapshot) -> NytroRun:
        setup: FalkonSetup = problem.extra
        xp, numbers, shape = namespace_of(setup.part.weights), saved.numbers, (setup.part.layout.p, problem.n_outputs)
        if any(name not in saved.whole or saved.whole[name].shape != shape for name in ("u", "best", "slope")):
            raise DataError("a saved state does not fit this NYTRO: its coefficients have another shape")
        u, best, slope = (xp.asarray(saved.whole[name]) for name in ("u", "best", "slope"))
        return NytroRun(
            u, numbers["eta"], best, slope, numbers["objective"], bool(numbers["halved"]),
            loss=numbers["loss"], reported=numbers["told"], seen=int(numbers["seen"]),
        )  # fmt: skip


def _descend(problem: Problem[FalkonSetup], setup: FalkonSetup, state: NytroRun, comm: Communicator) -> NytroRun:
    """End a pass: take an iteration from u, or half of the last one where u is not better."""
    total = comm.allreduce(state.sums)
    loss = float(total[-1, 0]) / setup.n_rows
    objective = loss + problem.alpha / 2 * float((state.u * state.u).sum())
    state = replace(state, sums=None, v=None)
    if state.objective < np.inf and not objective <= state.objective * (1 + _ROUNDING):
        eta = state.eta / 2
        return replace(state, eta=eta, u=state.best - eta * state.slope, halved=True)
    slope = setup.part.lower.solve(total[:-1]) / setup.n_rows + problem.alpha * state.u
    u = state.u - state.eta * slope
    return replace(state, u=u, best=state.u, slope=slope, objective=objective, loss=loss, halved=False)


def _top_eigenvalue(setup: FalkonSetup) -> float:
    """Return the largest eigenvalue of ``T D T^T / p``: with D the weights, of the covariance among the landmarks.

    Landmarks that all have weight 0 count alike.
    """
    lower, p, xp = setup.part.lower, setup.part.layout.p, namespace_of(setup.part.weights)
    weights = setup.part.weights.astype(np.float64)
    scale = (weights if bool((weights > 0).any()) else xp.ones_like(weights)) / p
    v, top = xp.asarray(generator(0, _STREAM).standard_normal((p, 1))), 1.0
    for _ in range(_POWER_ITERATIONS):
        v = lower.transposed_times(scale * lower.times(v / xp.sqrt((v * v).sum())))
        top = float(xp.sqrt((v * v).sum()))
    return top
