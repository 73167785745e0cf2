"""The interface of sources of rows: values that are sent to workers and opened there."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from daskkern.data.rows.rows import Rows
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import ClassLabel, Scaling


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


class RowSource(ABC):
    """Rows that can be opened, here or on a worker."""

    info: SourceInfo

    @abstractmethod
    def open(self, dtype: str) -> Rows:
        """Return the rows, which are read in `dtype`."""

    @abstractmethod
    def for_cluster(self, client: Client) -> "tuple[RowSource, tuple[Future[Any], ...]]":
        """Return a source that workers can open, and the futures to keep while they read it.

        Data of this process is scattered block by block; Dask schedules the blocks of dask arrays.
        """
