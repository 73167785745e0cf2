"""The set-up of EigenPro over kernel columns on a rank, and the state of its run."""

from dataclasses import dataclass
from typing import Protocol

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.preconditioners import EigenProPart, EigenProState
from daskkern.solvers.eigenpro.projectors import Projection
from daskkern.solvers.eigenpro.temporary_centres import Temporary
from daskkern.solvers.problem import AnyProblem, Batch
from daskkern.solvers.setup import RankSetup
from daskkern.solvers.tail_average import TailAverage


class Projector(Protocol):
    """Solves ``K_ZZ t = h`` over columns sharded like the model."""

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution from its part of `h`."""
        ...


class RecordedSteps(Protocol):
    """Makes steps by giving a GPU what was recorded."""

    @property
    def refusal(self) -> str:
        """Why steps could not be recorded, for the user; "" where they could."""
        ...

    def step(
        self, problem: AnyProblem, setup: "EigenProSetup", state: "EigenProRun", batch: Batch, eta: float
    ) -> tuple["EigenProRun", Array] | None:
        """Return the run after a batch and the loss before it, or None where it cannot make this step."""
        ...


@dataclass(frozen=True)
class EigenProSetup(RankSetup):
    """The set-up of a rank in addition to its columns.

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
    owners : tuple of int
        The ranks of consecutive units of temporary centres, again and again; () is rank after rank.
    recorded : RecordedSteps or None
        What makes the steps of a single rank on a GPU, as far as they can be recorded.
    """

    state: EigenProState
    part: EigenProPart
    damped: Array
    projector: Projector | None
    window: int
    head_blocks: tuple[slice, ...]
    local: HostArray | None = None
    rows: HostArray | None = None
    owners: tuple[int, ...] = ()
    recorded: RecordedSteps | None = None

    @property
    def closing_remark(self) -> str:
        return "" if self.recorded is None else self.recorded.refusal

    @property
    def computes_blocks(self) -> bool:
        return self.recorded is not None


@dataclass(frozen=True)
class MomentumIterate:
    """With momentum: the last iterate (p_r, c), the model, and its values at the rank's members of S (s_r, c)."""

    a: Array
    at_S: Array


@dataclass(frozen=True)
class Projected:
    """The projections of an epoch that iterate: how many, their iterations, and the largest of their residuals."""

    count: int = 0
    iterations: int = 0
    residual: float = 0.0

    def with_one(self, found: Projection) -> "Projected":
        """Return these and one more."""
        return Projected(self.count + 1, self.iterations + found.iterations, max(self.residual, found.residual))


@dataclass(frozen=True)
class EigenProRun:
    """The state of a run on one rank.

    `a` (p_r, c) as of the last projection and `scale`, by which the ridge penalty shrank it since; `working` is that a
    plus what S gained since (both by column); `pending` h (p_r, c); `at_S` the model's values at the rank's members
    of S (s_r, c), kept for the ridge penalty; `temporary` the rank's centres of the window. All rows as centres: only
    `working` and `at_S` are used; explicit features: only `working`, which is w. With momentum these are of the point
    that gradients are taken at, and `slow` is the model. `projected` are the projections since the last epoch's end.
    """

    a: Array
    scale: float
    working: Array
    pending: Array
    at_S: Array
    temporary: Temporary
    in_window: int
    step: int
    average: TailAverage
    slow: MomentumIterate | None = None
    projected: Projected = Projected()
