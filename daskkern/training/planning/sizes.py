"""What the bytes and the seconds of a rank follow from: the sizes of its fit."""

from dataclasses import dataclass

from daskkern.linalg import block_width


@dataclass(frozen=True)
class FitSizes:
    """What the bytes follow from.

    Attributes
    ----------
    n, d, c, p, s, q, m, window : int
        Rows, features, outputs, columns, subsample, directions, batch, batches between projections.
    ranks, threads, itemsize : int
    all_rows, exact, nystrom : bool
        All rows are centres; projections by a factor; Nystrom-SGD.
    window_rows : int
        Rows of a window of the batch plan.
    validation : int
        Rows held for validation.
    chunk_rows : int
        Rows that are decoded together; 0 where rows are not decoded.
    device : "cpu" or "gpu"
    auto_batch : bool
        The batch is automatic: with fewer columns it may grow to the limit that bounds its kernel values.
    entries : int
        Stored entries of a sparse row; 0 for dense rows. `d` then counts what a row takes, not its features.
    dense : int
        Square matrices of all columns that a serial solver holds in float64.
    sketch : int
        Columns of a preconditioner of low rank over all rows.
    by_rows, newton : bool
        Each rank has all columns and its share of every batch; it also keeps scores of its rows.
    factors : int
        Triangular factors that each rank has whole, where rows are dealt.
    units : bool
        The columns are the features themselves.
    state_per_row : int
        Numbers of each output that are kept for every row.
    row_products : bool
        Inner products of a batch's rows are held.
    drawn : int
        Columns of a block of random features that are drawn when they are used, and of which the first are kept; 0
        where columns are held.
    explicit : bool
        Columns are explicit features, whose covariance is what a preconditioner is made of.
    mapped : bool
        Explicit features are maps of kernel columns, of which whole blocks are held.
    wide : bool
        Products are made in float64 within, whatever the dtype is.
    moving : int
        Bytes of points that the solver finds itself.
    choosing : int
        Bytes that the choice of landmarks takes beside them.
    penalty : int
        Bytes that the choice of the penalty takes beside the columns and the spectrum.
    span : int
        Rows between projections where the batch is not known yet; 0 where `window` batches of `m` rows say it.
    reshuffle : bool
        Batches hold other rows in every epoch.
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
    nystrom: bool
    window_rows: int
    validation: int = 0
    chunk_rows: int = 0
    device: str = "cpu"
    auto_batch: bool = False
    span: int = 0
    entries: int = 0
    by_rows: bool = False
    newton: bool = False
    factors: int = 2
    dense: int = 0
    sketch: int = 0
    units: bool = False
    state_per_row: int = 0
    row_products: bool = False
    moving: int = 0
    explicit: bool = False
    mapped: bool = False
    drawn: int = 0
    wide: bool = False
    choosing: int = 0
    penalty: int = 0
    reshuffle: bool = False

    @property
    def within(self) -> int:
        """Bytes of a number within products: of prepared rows and points, and of tiles."""
        return 8 if self.wide else self.itemsize

    @property
    def own_rows(self) -> int:
        """Most rows of a rank, which gets a share of each batch."""
        return -(-self.n // self.ranks) + -(-self.n // self.m) if self.ranks > 1 else self.n

    @property
    def batch_block_bytes(self) -> int:
        """Bytes of a rank's kernel block of one batch."""
        m = min(self.m, self.n)
        return (-(-m // self.ranks) * self.p if self.by_rows else m * self.own) * self.itemsize

    @property
    def own(self) -> int:
        """Most columns p_r of a rank, which gets whole blocks."""
        return _share(self.p, self.p, self.ranks)

    @property
    def own_s(self) -> int:
        """Most members of S of a rank."""
        return _share(self.s, self.p, self.ranks)

    @property
    def blocks_bytes(self) -> int:
        """Bytes of all kernel blocks of a rank."""
        return (self.own_rows * self.p if self.by_rows else self.n * self.own) * self.itemsize


def _share(count: int, p: int, ranks: int) -> int:
    return min(count, -(-count // ranks) + 2 * block_width(p, ranks)) if ranks > 1 else count
