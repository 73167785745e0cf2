"""An ingestion with checked settings and open sources, and the writers of its stores."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from distributed import Client

from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.pipeline.parallel import ingest_parts
from daskkern.data.ingest.pipeline.resume import parts_key
from daskkern.data.ingest.pipeline.sources import IngestSource
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, SplitSettings
from daskkern.data.ingest.pipeline.stream import IngestStream, Progress
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.provenance import Provenance
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import Store
from daskkern.data.storage.writer import StoreWriter

PathLike: TypeAlias = str | os.PathLike[str]
Writer = TypeVar("Writer", bound=StoreWriter)


@dataclass(frozen=True, eq=False)
class Ingestion:
    """An ingestion with checked settings and open sources.

    Attributes
    ----------
    source : IngestSource
    decision : Decision
        The task, and its reason.
    test : Table or None
        Rows of the source that go to a test store.
    like : TableSchema or None
        The schema whose classes and scaling the rows get.
    outputs : mapping of part to path
    split, shuffle, seed : SplitSettings, bool or None, int
    scale, chunk_rows, overwrite : str, int or None, bool
        Settings of the stores.
    begun : bool
        Whether some of the stores exist that a killed process with the same settings wrote.
    client : distributed.Client or None
        Workers that stage the rows.
    key : str or None
        A digest of the whole ingestion, which split and shuffled stores record.
    record : mapping
        The provenance that the stores record.
    progress : callable
    """

    source: IngestSource
    decision: Decision
    test: Table | None
    like: TableSchema | None
    outputs: Mapping[int, PathLike]
    split: SplitSettings
    shuffle: bool | None
    seed: int
    scale: str
    chunk_rows: int | None
    overwrite: bool
    begun: bool
    client: Client | None
    key: str | None
    record: Provenance
    progress: Progress

    @property
    def out(self) -> PathLike:
        """The store of the training rows."""
        return self.outputs[TRAIN]

    @property
    def train(self) -> Table:
        """The rows to be stored, except those of `test`."""
        return self.source.parts.train

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        """The classes that the rows must have; None where the rows decide."""
        return None if self.like is None else self.like.classes

    @property
    def parts_key(self) -> str | None:
        """The key of rows that are written part by part, or to a URL."""
        return parts_key(self.source.key, self.shuffle)

    def write_parts(self, place: PathLike, overwrite: bool) -> None:
        """Write the rows of `train` in the order in which they come, by the workers where there are some."""
        with self.writer(SharedWriter, place, self.train, self.scale, overwrite, self.parts_key) as shared:
            ingest_parts(self.client, shared, self.train, self.decision, self.classes, self.progress)

    def write_stream(
        self, place: PathLike, key: str | None, test: StoreWriter | None = None, *, overwrite: bool
    ) -> None:
        """Write the rows of `train` in one pass of this process, and to a writer of their own those of `self.test`."""
        with self.writer(StoreWriter, place, self.train, self.scale, overwrite, key) as writer:
            rows = None if test is None else self.test
            IngestStream(self.train, rows, self.decision, self.progress, self.classes).run(writer, test)

    def other(self, kind: type[Writer], part: int, path: PathLike) -> Writer:
        """Return the writer of a store for another part than the training rows."""
        rows = self.test if part == TEST and self.test is not None else self.train
        return self.writer(kind, path, rows, "none", self.overwrite, self.key)

    def writer(
        self, kind: type[Writer], path: PathLike, rows: Table, scale: str, overwrite: bool, key: str | None = None
    ) -> Writer:
        """Return the writer of a store for rows like those of a table."""
        made = kind(
            os.fspath(path),
            n_features=rows.n_features,
            dtype=rows.dtype,
            task=self.decision.task,
            n_targets=rows.n_targets,
            has_weight=rows.has_weight,
            feature_names=rows.feature_names,
            target_names=rows.target_names,
            scale=scale,
            chunk_rows=self.chunk_rows,
            overwrite=overwrite,
            sparse=rows.is_sparse,
            encoding=rows.encoding,
            index_base=rows.index_base,
            resume_key=key,
        )
        made.set_provenance(self.record)
        if rows.fills_means:
            made.fill_means()
        if self.like is not None:
            made.set_scaling(self.like.scaling)
        return made


def set_schema(writers: Mapping[int, StoreWriter], whole: Store) -> None:
    """Record the classes and the encoding of all rows in the stores of their parts."""
    for writer in writers.values():
        writer.set_encoding(whole.info.encoding)
        if whole.info.classes is not None:
            writer.set_classes(whole.info.classes)
