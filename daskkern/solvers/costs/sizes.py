"""The sizes of a fit from which the memory and time of a rank are computed, and the base class of method costs."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from daskkern.linalg import block_width

Items = tuple[tuple[str, int], ...]
"""Names and bytes."""
Seconds = list[tuple[str, float]]
"""Names and seconds."""


@dataclass(frozen=True)
class ComputeRates:
    """What one rank of a machine reaches while the others work as well.

    Attributes
    ----------
    matvec_ns : float
        Per entry of ``Kernel.matvec``: the entry and its products with c outputs.
    block_ns : float
        Per entry of ``Kernel.block``.
    product_ns : float
        Per entry of a block in memory: both products with c outputs.
    factor_flops, flops64 : float
        Per second: the downdate of a factor in the dtype of the fit; a product in float64.
    memory : float
        Bytes a second that a symmetric product in float64 reads.
    fresh : float
        Bytes a second of memory that is used for the first time.
    row_s : float
        Seconds to read and decode one row in one thread.
    call_s : float
        Seconds of a product that is too small to take any.
    """

    matvec_ns: float
    block_ns: float
    product_ns: float
    factor_flops: float
    flops64: float
    memory: float
    fresh: float
    row_s: float
    call_s: float

    def sample_s(self, z: "FitSizes", k: int) -> float:
        """Return the seconds of reading `k` random rows: with all others."""
        del k
        return z.n * self.row_s


@dataclass(frozen=True)
class MethodMemory:
    """The bytes on one rank that are a method's own.

    Attributes
    ----------
    host, device : tuple of (name, bytes)
        What lives as long as the rank, in host memory and where the columns live.
    coefficients : int
        Vectors in addition to the coefficients and their means.
    batch : int
        What a step holds in addition to its rows, their columns and their scores.
    passing : int
        Temporary centres, which are dropped from time to time.
    steps : tuple of (name, bytes)
        What steps need where the columns live, from the first one to the last.
    before_host, before_device : int
        The most that is held before the first step.
    """

    host: Items = ()
    device: Items = ()
    coefficients: int = 0
    batch: int = 0
    passing: int = 0
    steps: Items = ()
    before_host: int = 0
    before_device: int = 0


@dataclass(frozen=True)
class MethodCosts(ABC):
    """The arithmetic of a method: bytes and seconds on one rank, as far as they are its own."""

    by_rows: ClassVar[bool] = False
    """Whether each rank has all columns, and its share of the rows of every batch."""
    has_subsample: ClassVar[bool] = True
    """Whether landmarks come with the spectrum of a subsample and with projections on them."""

    @abstractmethod
    def memory(self, z: "FitSizes") -> MethodMemory:
        """Return the bytes."""

    @abstractmethod
    def setup_seconds(self, z: "FitSizes", rates: ComputeRates, stored: bool) -> Seconds:
        """Return what is done before the first step; `stored`: eigenfeatures are computed and put on disk."""

    @abstractmethod
    def sweep_seconds(self, z: "FitSizes", rates: ComputeRates, *, fresh: bool, stored: bool) -> Seconds:
        """Return one pass over the rank's rows, with values of the columns computed (`fresh`), kept, or `stored`."""

    def epoch_seconds(self, z: "FitSizes", rates: ComputeRates) -> Seconds:
        """Return what each epoch takes in addition to its passes."""
        del z, rates
        return []

    def projections(self, z: "FitSizes") -> float:
        """Return how many projections a pass has."""
        del z
        return 0.0


@dataclass(frozen=True)
class FitSizes:
    """What the bytes follow from.

    Attributes
    ----------
    n, d, c, p, s, q, m, window : int
        Rows, features, outputs, columns, subsample, directions, batch, batches between projections.
    ranks, threads, itemsize : int
    all_rows, exact : bool
        All rows are centres; projections by a factor.
    costs : MethodCosts
        What is the method's own.
    window_rows, validation, chunk_rows : int
        Rows of a window of the batch plan, held for validation, and decoded together: 0 where rows are not decoded.
    device : "cpu" or "gpu"
    auto_batch : bool
        The batch is automatic: with fewer columns it may grow to the limit that bounds its kernel values.
    entries : int
        Stored entries of a sparse row; 0 for dense rows. `d` then counts what a row takes, not its features.
    units : bool
        The columns are the features themselves.
    drawn : int
        Columns of a block of random features that are drawn when they are used, and of which the first are kept; 0
        where columns are held.
    explicit : bool
        Columns are explicit features, whose covariance is what a preconditioner is made of.
    mapped : bool
        Explicit features are maps of kernel columns, of which whole blocks are held.
    wide : bool
        Products are made in float64 within, whatever the dtype is.
    moving, choosing, penalty : int
        Bytes of points that the solver finds itself; what the choice of landmarks takes in addition to them, and that
        of the penalty in addition to the columns and the spectrum.
    span : int
        Rows between projections where the batch is not known yet; 0 where `window` batches of `m` rows say it.
    reshuffle : bool
        Batches hold other rows in every epoch.
    leaf_rows : int
        Rows of a leaf of a partition, whose leaves have nothing to do with each other; 0 without one.
    reading : "auto", "once" or "each"
        Whether one rank reads a window of rows and sends it to the others; "auto" is the faster way.
    sent_row_bytes : int
        Bytes of a row that is sent.
    share : float or None
        The share of the rank in the columns, or in the rows where these are distributed, from 0 to 1, where ranks have
        different ones; None for equal shares.
    groups : int
        Groups of `ranks` ranks each, which divide the rows of every batch.
    operand_bytes : int
        Of a row as tensor cores take it, in addition to the row itself.
    tables : int
        Bytes of tables that columns are made from, which are then numbers; 0 where columns are points.
    rows_on_workers : int
        Bytes of arrays that were sent to the workers or computed there, all together; each holds an equal share.
    prepares : bool
        What is found once for all ranks may be found in the process of this rank.
    calibration, libraries : int
        Bytes of the calibration that follows the fit in the same process; of libraries that a worker has not loaded.
    """

    n: int
    d: int
    c: int
    p: int
    s: int
    q: int
    m: int
    window: int
    ranks: int
    threads: int
    itemsize: int
    all_rows: bool
    exact: bool
    window_rows: int
    costs: MethodCosts
    validation: int = 0
    chunk_rows: int = 0
    device: str = "cpu"
    auto_batch: bool = False
    span: int = 0
    entries: int = 0
    units: bool = False
    moving: int = 0
    explicit: bool = False
    mapped: bool = False
    drawn: int = 0
    wide: bool = False
    choosing: int = 0
    penalty: int = 0
    reshuffle: bool = False
    leaf_rows: int = 0
    reading: str = "each"
    sent_row_bytes: int = 0
    share: float | None = None
    prepares: bool = True
    groups: int = 1
    operand_bytes: int = 0
    tables: int = 0
    rows_on_workers: int = 0
    calibration: int = 0
    libraries: int = 0

    @property
    def all_ranks(self) -> int:
        """The ranks of all groups together."""
        return self.ranks * self.groups

    @property
    def group_m(self) -> int:
        """Most rows of a batch that a group computes with."""
        return -(-self.m // self.groups)

    @property
    def fraction(self) -> float:
        """The share of the rank in all columns."""
        return 1 / self.ranks if self._column_share is None else self._column_share

    @property
    def block_columns(self) -> int:
        """Most columns of a block, by which columns are distributed."""
        return block_width(self.p, self.ranks, even=self._column_share is None)

    @property
    def within(self) -> int:
        """Bytes of a number within products: of prepared rows and points, and of tiles."""
        return 8 if self.wide else self.itemsize

    @property
    def own_rows(self) -> int:
        """Most rows of a rank, which gets a share of each batch."""
        return self._rows_of(self.n) + -(-self.n // self.m) if self.ranks > 1 else self.n

    @property
    def own_batch_rows(self) -> int:
        """Most rows of a batch of a rank, where rows are distributed."""
        return self._rows_of(min(self.m, self.n))

    @property
    def batch_block_bytes(self) -> int:
        """Bytes of a rank's kernel block of one batch."""
        m = min(self.m, self.n)
        rows = -(-m // self.groups)
        return (self.own_batch_rows * self.p if self.costs.by_rows else rows * self.own) * self.itemsize

    @property
    def own(self) -> int:
        """Most columns p_r of a rank, which gets whole blocks."""
        return self._own(self.p, self.p)

    @property
    def own_s(self) -> int:
        """Most members of S of a rank."""
        return self._own(self.s, self.s + self.ranks * self.block_columns)

    @property
    def blocks_bytes(self) -> int:
        """Bytes of all kernel blocks of a rank."""
        if self.costs.by_rows:
            return self.own_rows * self.p * self.itemsize
        rows = self.n if self.groups == 1 else self.n // self.groups + -(-self.n // self.m)  # of each batch a row more
        return rows * self.own * self.itemsize

    def _own(self, count: int, shared: int) -> int:
        """Return the most of the first `count` columns that a rank has, of which it has its share of `shared`.

        See :func:`daskkern.backend.shares.owners_of`.
        """
        if self.ranks == 1 or not count:
            return count
        share = self._column_share
        if share is None:
            return min(count, -(-count // self.ranks) + 2 * self.block_columns)
        return min(count, math.ceil(share * shared) + 2 * self.block_columns) if share else 0

    @property
    def _column_share(self) -> float | None:
        """The share in the columns; all ranks have the same where rows are distributed."""
        return None if self.costs.by_rows else self.share

    def _rows_of(self, count: int) -> int:
        """Return the most of `count` rows that a rank has, where rows are distributed."""
        return -(-count // self.ranks) if self.share is None else min(count, math.ceil(self.share * count) + 1)
