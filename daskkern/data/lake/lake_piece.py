"""Row groups of a lake, and batches of their rows."""

from dataclasses import dataclass

import pyarrow as pa

from daskkern.data.lake.partitions import PartitionValues


@dataclass(frozen=True)
class LakePiece:
    """One row group of a file.

    Attributes
    ----------
    file : str
        Path or URL.
    size : int
        Bytes of the file.
    group : int
        Number of the row group in its file.
    first : int
        Row of the file at which it begins.
    n_rows : int
        Rows, without a filter.
    n_bytes : int
        Compressed bytes of all its columns.
    partition : tuple of (str, value)
        Columns that come from the names of folders.
    kept : int or None
        Rows that pass the filter, once they have been counted.
    renamed : tuple of (str, str)
        Columns that the file has under a former name, and that name.
    """

    file: str
    size: int
    group: int
    first: int
    n_rows: int
    n_bytes: int
    partition: PartitionValues = ()
    kept: int | None = None
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class LakeBatch:
    """Rows of a file, from its row `first` on; of rows that passed a filter, the number of them counts."""

    source: str
    first: int
    rows: pa.RecordBatch
