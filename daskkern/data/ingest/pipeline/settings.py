"""The checked arguments of an ingestion, which all its stages share."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from distributed import Client

from daskkern.data.ingest.pipeline.split import SplitSettings
from daskkern.data.ingest.pipeline.stream import Progress
from daskkern.data.schema.table_schema import TableSchema

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class IngestSettings:
    """The checked arguments of :func:`daskkern.data.ingest.pipeline.run.ingest`.

    Attributes
    ----------
    split : SplitSettings
    outputs : mapping of part to path
    like : TableSchema or None
        The schema whose classes and scaling the rows get.
    task : str
    shuffle : bool or None
    seed : int
    scale, chunk_rows : str, int or None
        Settings of the stores.
    may_replace : bool
        Whether existing stores are replaced.
    begun : bool
        Whether some of the stores exist that a killed process with the same settings wrote; they are replaced, too.
    client : distributed.Client or None
        Workers that stage the rows.
    progress : callable
    """

    split: SplitSettings
    outputs: Mapping[int, PathLike]
    like: TableSchema | None
    task: str
    shuffle: bool | None
    seed: int
    scale: str
    chunk_rows: int | None
    may_replace: bool
    begun: bool
    client: Client | None
    progress: Progress

    @property
    def overwrite(self) -> bool:
        """Whether stores that exist are replaced."""
        return self.may_replace or self.begun
