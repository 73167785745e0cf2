"""The interface of sources of rows: descriptions that are sent to workers and opened there."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client

from daskkern.arrays import IntArray
from daskkern.data.rows.rows import Rows
from daskkern.data.schema.column_statistics import ColumnStatistics
from daskkern.data.schema.encoding import Encoding, code_columns
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.training.feeding.sent_rows import Releasable
from daskkern.training.run.settings import FitSettings


@dataclass(frozen=True)
class SourceInfo:
    """The metadata of a source, known without reading rows."""

    n_rows: int
    n_features: int
    task: str | None
    classes: tuple[ClassLabel, ...] | None
    scaling: Scaling
    feature_names: tuple[str, ...] | None
    n_targets: int
    single_target: bool
    n_stored: int | None = None
    """Number of stored entries of sparse rows; None for dense rows."""
    target_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    """How the columns of the original table became features."""
    index_base: int | None = None
    """The number of the first feature in the SVMLight files that the rows are from; None for other sources."""

    @property
    def categories(self) -> tuple[int, ...]:
        """Numbers of the features that are codes of categories."""
        return code_columns(self.encoding)

    @property
    def row_width(self) -> int:
        """Numbers of a row, zeros of sparse rows left out."""
        return self.n_features if self.n_stored is None else -(-self.n_stored // max(1, self.n_rows))


class RowSource(ABC):
    """Rows that can be opened, here or on a worker."""

    info: SourceInfo

    @property
    def origin(self) -> str:
        """Where the rows come from, in a few words without the secrets of a URL."""
        return f"{self.info.n_rows:,} rows x {self.info.n_features} features in memory"

    @property
    def name(self) -> str:
        """A name for the rows, without folders and secrets."""
        return "arrays in memory"

    @property
    def note(self) -> str:
        """A note on the rows that is printed when a fit begins; "" for none."""
        return ""

    @property
    def local_bytes(self) -> int:
        """Bytes of the arrays of this process that travel with the source."""
        return 0

    @property
    def bytes_on_workers(self) -> int:
        """Bytes of rows that Dask holds in the memory of the workers of a cluster, all together."""
        return 0

    @abstractmethod
    def open(self, dtype: str) -> Rows:
        """Return the rows, which are read in `dtype`."""

    def check_reach(self, dtype: str) -> None:
        """Raise where this process cannot read the rows."""
        self.open(dtype)

    @abstractmethod
    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> "tuple[RowSource, tuple[Releasable, ...]]":
        """Return a source that workers can open, and what keeps it there, to be released afterwards.

        Data of this process is scattered block by block, to `workers`, or by default to all; Dask schedules the blocks
        of dask arrays. `dtype` is that in which the rows will be opened: what is read now is read in it.
        """

    def kept_on_disk(self, settings: FitSettings) -> "RowSource":
        """Return the source for a fit of several passes: rows that are slow to read are then kept in a scratch file."""
        del settings
        return self

    @abstractmethod
    def digest(self) -> dict[str, Any]:
        """Return JSON values that differ where the values of the rows do."""

    def original_numbers(self, positions: IntArray) -> IntArray:
        """Return the numbers, in what the user gave, of the rows at `positions`."""
        return positions

    def statistics(self) -> ColumnStatistics | None:
        """Return the statistics of the columns before scaling; None where rows must be read for them."""
        return None

    def description(self) -> dict[str, Any]:
        """Return a description of the rows as JSON values for the saved model, without folders and secrets."""
        info = self.info
        return {
            "name": self.name,
            "rows": int(info.n_rows),
            "features": int(info.n_features),
            "stored_entries": None if info.n_stored is None else int(info.n_stored),
            "task": info.task,
            "classes": None if info.classes is None else len(info.classes),
            "targets": int(info.n_targets),
            "scaling": info.scaling.kind,
            "index_base": info.index_base,
        }
