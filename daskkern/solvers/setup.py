"""The set-up of a solver on one rank: its inputs, its base class, and that of first-order methods."""

from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.communicator import Communicator, allgather_rows
from daskkern.backend.namespace import is_sparse, namespace_of, to_device
from daskkern.basis import Columns, KernelBasis, KernelPart
from daskkern.errors import SpecError
from daskkern.losses import Loss
from daskkern.preconditioners import StableSteps, StepStatistics


class TrainingRows(Protocol):
    """The training rows, by number."""

    def features(self, positions: IntArray) -> HostArray:
        """Return the features (m, d), dense or CSR."""
        ...

    def labels(self, positions: IntArray) -> tuple[HostArray, HostArray | None]:
        """Return the encoded targets (m, c) and the sample weights (m, 1), which are None where all are 1."""
        ...


@dataclass(frozen=True, eq=False)
class RankInputs:
    """What the set-up on one rank is made from. Arrays are NumPy's.

    Attributes
    ----------
    basis : KernelBasis
    columns : Columns
        The rank's share.
    part : KernelPart
        The products with it.
    points : (p_r, d) array
        Its points.
    own_points : (p, d) array or None
        The points of all columns, where these are not training rows.
    indices : (p,) int64 or None
        The numbers of the training rows that the columns are; None where they are not.
    importance : (p,) float64 or None
        Weights with which the landmarks stand for all rows, where their rule has them.
    explicit : bool
        Columns are explicit features.
    state : StableSteps or None
        What the set-up found once for all ranks; see :attr:`Solver.preparation`.
    subsample : (s, d) array
        The rows of S.
    rows : TrainingRows
    n_rows, batch_size, window : int
        Training rows, rows of a batch, batches between projections.
    loss : Loss
    alpha : float
    dtype : str
    seed, threads : int
    factor_fits : bool
        The memory plan of every rank has room for a factor of K_ZZ.
    features_stored : bool
        Eigenfeatures are on disk and take the place of kernel blocks.
    with_offset : bool
        Whether a constant without penalty may be added to the scores.
    comm : Communicator
    xp : module
        NumPy or CuPy.
    n_groups : int
        Groups of ranks, each with all columns.
    largest_batch : int
        Most rows of a batch of the plan; 0 where there is none.
    """

    basis: KernelBasis
    columns: Columns
    part: KernelPart
    points: HostArray
    own_points: HostArray | None
    indices: IntArray | None
    importance: HostArray | None
    explicit: bool
    state: StableSteps | None
    subsample: HostArray
    rows: TrainingRows
    n_rows: int
    batch_size: int
    window: int
    loss: Loss
    alpha: float
    dtype: str
    seed: int
    threads: int
    factor_fits: bool
    features_stored: bool
    with_offset: bool
    comm: Communicator
    xp: ModuleType
    n_groups: int = 1
    largest_batch: int = 0

    def every_point(self) -> Array:
        """Return the points of all ranks' columns (p, d), in their order, from each rank's own. Every rank calls it.

        They are read from the store once on all ranks together: scattered rows take whole chunks where these are
        packed.
        """
        basis, comm, xp, points = self.basis, self.comm, self.xp, self.points
        if self.own_points is not None:
            return to_device(self.own_points, xp)
        ranks = [basis.split(rank, comm.size) for rank in range(comm.size)]
        if is_sparse(points):
            order = np.argsort(np.concatenate([columns.ids for columns in ranks]))
            return allgather_rows(to_device(points, xp), comm)[xp.asarray(order)]
        whole = xp.empty((basis.n_columns, points.shape[1]), points.dtype)
        for rank, columns in enumerate(ranks):
            for block in columns.blocks:
                shape = (block.stop - block.start, points.shape[1])
                like = points[block] if rank == comm.rank else np.empty(shape, points.dtype)
                whole[xp.asarray(columns.ids[block])] = comm.broadcast(xp.asarray(like), rank)
        return whole


class RankSetup:
    """The base class of what a solver's set-up makes on one rank; a frozen dataclass derives from it."""

    @property
    def remark(self) -> str:
        """A remark for the user on what the set-up found, or ""."""
        return ""

    @property
    def all_columns(self) -> KernelPart | None:
        """The products with all columns, where the rows are distributed over the ranks."""
        return None

    @property
    def closing_remark(self) -> str:
        """A remark for the user on what the steps found, or ""."""
        return ""

    @property
    def computes_blocks(self) -> bool:
        """Whether steps compute the kernel block of a batch themselves, where it is not kept."""
        return False

    @property
    def stored_columns(self) -> slice | None:
        """The rank's range of eigenfeatures that are on disk, where they take the place of kernel blocks."""
        return None


@dataclass(frozen=True, eq=False)
class RowShare:
    """The training rows whose per-row values this rank stores: `ids` (n_r,) int64 in the order of the arrays.

    With all rows as centres they are the rank's columns, else an equal share.
    """

    ids: IntArray
    order: HostArray
    """Sorts `ids`."""

    @classmethod
    def of(cls, ids: IntArray) -> "RowShare":
        """Return the share with these row numbers."""
        return cls(ids, np.argsort(ids))

    @classmethod
    def equal(cls, n_rows: int, rank: int, size: int) -> "RowShare":
        """Return the share of `rank` among `size` ranks."""
        return cls.of(np.arange(n_rows * rank // size, n_rows * (rank + 1) // size))

    def find(self, positions: IntArray) -> tuple[HostArray, HostArray]:
        """Return, for the rows of a batch that this rank stores, their places in the arrays and in the batch."""
        rows = self.ids[self.order]
        at = np.minimum(np.searchsorted(rows, positions), max(rows.size - 1, 0))
        here = (rows[at] == positions).nonzero()[0] if rows.size else np.zeros(0, np.int64)
        return self.order[at[here]], here

    def read(self, values: Array, positions: IntArray) -> Array:
        """Return this rank's part (m, ...) of ``values`` at the rows of a batch: 0 where another rank has them.

        The sum over the ranks has all rows; it is taken together with the scores.
        """
        local, here = self.find(positions)
        xp = namespace_of(values)
        part = xp.zeros((len(positions), *values.shape[1:]), np.float64)
        part[xp.asarray(here)] = values[xp.asarray(local)]
        return part


@dataclass(frozen=True)
class ColumnSetup(RankSetup):
    """The set-up of one rank, in addition to its columns.

    Attributes
    ----------
    n_rows : int
        Training rows n.
    statistics : StepStatistics
    rows : RowShare
    all_rows : bool
        All training rows are the columns, so that a coefficient belongs to a row.
    seed : int
    """

    n_rows: int
    statistics: StepStatistics
    rows: RowShare
    all_rows: bool
    seed: int

    @classmethod
    def of(cls, inputs: RankInputs) -> "ColumnSetup":
        """Return the set-up of the rank that `inputs` are of. SpecError where sizes of sampled rows were not taken."""
        state, comm, n = inputs.state, inputs.comm, inputs.n_rows
        if not isinstance(state, StepStatistics):
            raise SpecError(
                f"a first-order method got {type(state).__name__} for the sizes of rows; set preparation = 'statistics'"
            )
        everything = inputs.basis.all_rows
        rows = RowShare.of(inputs.columns.ids) if everything else RowShare.equal(n, comm.rank, comm.size)
        return cls(n, state, rows, everything, inputs.seed)
