"""An ingestion with checked settings and open sources, and the writers of its stores."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.pipeline.parallel import ingest_parts
from daskkern.data.ingest.pipeline.resume import parts_key
from daskkern.data.ingest.pipeline.settings import IngestSettings, PathLike
from daskkern.data.ingest.pipeline.sources import IngestSource
from daskkern.data.ingest.pipeline.split import TEST, TRAIN
from daskkern.data.ingest.pipeline.stream import IngestStream
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.schema.provenance import Provenance
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import Store
from daskkern.data.storage.writer import StoreWriter

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
    settings : IngestSettings
    key : str or None
        A digest of the whole ingestion, which split and shuffled stores record.
    record : mapping
        The provenance that the stores record.
    """

    source: IngestSource
    decision: Decision
    test: Table | None
    settings: IngestSettings
    key: str | None
    record: Provenance

    @property
    def out(self) -> PathLike:
        """The store of the training rows."""
        return self.settings.outputs[TRAIN]

    @property
    def train(self) -> Table:
        """The rows to be stored, except those of `test`."""
        return self.source.parts.train

    @property
    def classes(self) -> tuple[ClassLabel, ...] | None:
        """The classes that the rows must have; None where the rows decide."""
        return None if self.settings.like is None else self.settings.like.classes

    @property
    def parts_key(self) -> str | None:
        """The key of rows that are written part by part, or to a URL."""
        return parts_key(self.source.key, self.settings.shuffle)

    def write_parts(self, place: PathLike, overwrite: bool) -> None:
        """Write the rows of `train` in the order in which they come, by the workers where there are some."""
        with self.writer(SharedWriter, place, self.train, self.settings.scale, overwrite, self.parts_key) as shared:
            ingest_parts(self.settings.client, shared, self.train, self.decision, self.classes, self.settings.progress)

    def write_stream(
        self, place: PathLike, key: str | None, test: StoreWriter | None = None, *, overwrite: bool
    ) -> None:
        """Write the rows of `train` in one pass of this process, and to a writer of their own those of `self.test`."""
        with self.writer(StoreWriter, place, self.train, self.settings.scale, overwrite, key) as writer:
            rows = None if test is None else self.test
            IngestStream(self.train, rows, self.decision, self.settings.progress, self.classes).run(writer, test)

    def other(self, kind: type[Writer], part: int, path: PathLike) -> Writer:
        """Return the writer of a store for another part than the training rows."""
        rows = self.test if part == TEST and self.test is not None else self.train
        return self.writer(kind, path, rows, "none", self.settings.overwrite, self.key)

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
            chunk_rows=self.settings.chunk_rows,
            overwrite=overwrite,
            sparse=rows.is_sparse,
            encoding=rows.encoding,
            index_base=rows.index_base,
            resume_key=key,
        )
        made.set_provenance(self.record)
        if rows.fills_means:
            made.fill_means()
        if self.settings.like is not None:
            made.set_scaling(self.settings.like.scaling)
        return made


def set_schema(writers: Mapping[int, StoreWriter], whole: Store) -> None:
    """Record the classes and the encoding of all rows in the stores of their parts."""
    for writer in writers.values():
        writer.set_encoding(whole.info.encoding)
        if whole.info.classes is not None:
            writer.set_classes(whole.info.classes)
