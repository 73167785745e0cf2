"""The problem that a solver minimises, a batch of its rows, and the distance from its optimum."""

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import KernelPart
from daskkern.kernels.points import Left
from daskkern.losses import Loss
from daskkern.solvers.setup import ColumnSetup, RankSetup

Setup = TypeVar("Setup", bound=RankSetup, covariant=True)


@dataclass(frozen=True)
class WholeBatch:
    """The rows of a batch that is divided between groups of ranks, those of all groups.

    Attributes
    ----------
    positions : (m,) int64
        Row numbers.
    X : (m, d) array or None
        Rows; None where no steps need those of other groups.
    """

    positions: HostArray
    X: Array | None = None


@dataclass(frozen=True)
class Batch:
    """One mini-batch: all of it on every rank, or only some of its rows: the rank's for a solver that distributes rows,
    and those of the rank's group in a grid of ranks.

    Attributes
    ----------
    X : (m, d) array or None
        Rows; None when `phi` is given and no rows are needed.
    y : (m, c) array
        Encoded targets.
    weight : (m, 1) array or None
        Sample weights of mean 1 over the training rows.
    positions : (m,) int64
        Row numbers.
    phi : (m, p_r) array or None
        The rank's columns at these rows, where the trainer has them.
    last : bool
        The last batch of its pass over the rows.
    parts : tuple of slices
        Where rows are distributed: the pieces of the rank's rows over which sums are taken, the same on any rank.
    total_size : int
        Where this is a part of a batch: rows of the batch on all ranks, or in all groups, together; else 0.
    excess : float
        Excess squared norm of the rows beyond those that step sizes were measured on, defined in
        :mod:`daskkern.training.setup.row_sizes`.
    left : Left or None
        The rows as they were prepared for `phi`, where steps need them again.
    whole : WholeBatch or None
        The rows of all groups, where ranks are in groups; else None.
    """

    X: Array | None
    y: Array
    weight: Array | None
    positions: HostArray
    phi: Array | None
    last: bool
    parts: tuple[slice, ...] = ()
    total_size: int = 0
    excess: float = 0.0
    left: Left | None = None
    whole: WholeBatch | None = None

    @property
    def size(self) -> int:
        """Rows m, those on other ranks included."""
        return self.total_size or int(self.y.shape[0])

    @property
    def all_positions(self) -> HostArray:
        """The row numbers (m,) of the batch, those of other groups included."""
        return self.positions if self.whole is None else self.whole.positions

    @property
    def all_features(self) -> Array | None:
        """The rows (m, d) of the batch, those of other groups included, where steps need them."""
        return self.X if self.whole is None else self.whole.X


@dataclass(frozen=True)
class Problem(Generic[Setup]):
    """What is minimised, as one rank sees it. Its parameter is the class of the solver's own set-up.

    Attributes
    ----------
    part : KernelPart
        The rank's columns.
    loss : Loss
    alpha : float
        Ridge penalty in ``(1/n) sum w loss + (alpha/2) |f|^2``.
    n_outputs : int
        c.
    batches_per_epoch, max_epochs : int
    dtype : str
    extra : RankSetup
        What :meth:`Solver.rank_setup` made for this rank (its preconditioner's part, its projector).
    averaged_from : int or None
        The step from which iterates are averaged, in a run that continues one on other rows: the mean continues, too.
    groups : Communicator or None
        Between the ranks of equal place in each group of a grid, in the order of the groups; None where all ranks are
        one group. See :mod:`daskkern.solvers.groups`.
    """

    part: KernelPart
    loss: Loss
    alpha: float
    n_outputs: int
    batches_per_epoch: int
    max_epochs: int
    dtype: str
    extra: Setup
    averaged_from: int | None = None
    groups: Communicator | None = None

    @property
    def n_steps(self) -> int:
        """Steps of the whole run."""
        return self.batches_per_epoch * self.max_epochs

    def averaging_start(self, share: float) -> int:
        """Return the step from which the last `share` of the run is averaged."""
        if self.averaged_from is not None:
            return self.averaged_from
        if self.max_epochs * share < 1:
            return round(self.n_steps * (1 - share))
        return round(self.max_epochs * (1 - share)) * self.batches_per_epoch


AnyProblem = Problem[RankSetup]
"""A problem whose set-up may be that of any solver."""
ColumnProblem = Problem[ColumnSetup]
"""The problem of a first-order method."""


@dataclass(frozen=True)
class Certificate:
    """The distance of a model from the optimum: `name` is the measure, `tol` the requested tolerance.

    `note` is a short remark on the value, or "". The objective is above its least value by at most `bound`, but for the
    rounding of scores; infinity where no such number is known.
    """

    name: str
    value: float
    tol: float
    note: str = ""
    bound: float = math.inf

    @property
    def reached(self) -> bool:
        """Whether the value is within the tolerance."""
        return self.value <= self.tol
