"""Cache of all rows in host memory after the first whole pass, for batches that are reshuffled in every epoch."""

from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batches import RowBatch
from daskkern.data.rows.rows import Gathering, Rows, row_fields


class RowCache:
    """All rows in the order of their source, after a pass has read them.

    Parameters
    ----------
    rows : Rows
        The source that the first whole pass reads.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kept: ArrayRows | None = None
        self._gathering: Gathering | None = None
        self._seen = 0

    @property
    def is_full(self) -> bool:
        """Whether passes read the cache."""
        return self._kept is not None

    def begin(self, *, whole: bool) -> Rows:
        """Return the rows for a pass to read. Only a `whole` pass, from its first batch on, can fill the cache."""
        self._gathering, self._seen = None, 0
        if self._kept is None and whole:
            self._gathering = Gathering(self._rows, self._rows.n_rows, row_fields(self._rows))
        return self._rows if self._kept is None else self._kept

    def add(self, batch: RowBatch) -> None:
        """Add the rows of a batch of the pass."""
        if self._gathering is None:
            return
        self._gathering.put(batch.positions, batch.block)
        self._seen += len(batch.positions)
        if self._seen < self._rows.n_rows:
            return
        block, rows = self._gathering.block(), self._rows
        assert block.X is not None
        self._gathering = None
        self._kept = ArrayRows(
            block.X, block.y, weight=block.weight, classes=rows.classes, dtype=rows.dtype, chunk_rows=rows.chunk_rows
        )
