"""The stores of an ingestion: rows are staged as they come, then split, shuffled or moved into place."""

import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from distributed import Client

from daskkern.data.ingest.columns.targets import Decision
from daskkern.data.ingest.pipeline.outputs import awaits_shuffle
from daskkern.data.ingest.pipeline.parallel import ingest_parts
from daskkern.data.ingest.pipeline.resume import is_written, parts_key
from daskkern.data.ingest.pipeline.sources import IngestSource
from daskkern.data.ingest.pipeline.split import TEST, TRAIN, SplitSettings
from daskkern.data.ingest.pipeline.split_and_shuffle import SplitAndShuffle, staging, wants_shuffle
from daskkern.data.ingest.pipeline.stream import IngestStream, Progress
from daskkern.data.ingest.readers.tables import Table
from daskkern.data.remote.group import remove_remote
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.provenance import Provenance
from daskkern.data.schema.schema import ClassLabel
from daskkern.data.schema.table_schema import TableSchema
from daskkern.data.shuffle.buckets import DEFAULT_MEMORY
from daskkern.data.shuffle.parallel import least_memory, shuffle_store_on
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.work_folder import put_in_place, work_folder
from daskkern.errors import CONTINUES

PathLike: TypeAlias = str | os.PathLike[str]
Writer = TypeVar("Writer", bound=StoreWriter)


@dataclass(frozen=True, eq=False)
class Staging:
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
    client: Client | None
    key: str | None
    record: Provenance
    progress: Progress

    @property
    def train(self) -> Table:
        """The rows to be stored, except those of `test`."""
        return self.source.parts.train

    @property
    def in_place(self) -> bool:
        """Whether rows are written straight to their URL, where their number is known; those to shuffle by workers."""
        alone = not self.split.is_wanted and self.test is None and (self.shuffle is not True or self.client is not None)
        return alone and is_url(self.outputs[TRAIN]) and self.train.n_rows is not None and not self.train.is_sparse

    def run(self) -> bool:
        """Write the stores, all or none, and return whether the training rows were shuffled."""
        out = self.outputs[TRAIN]
        if self.in_place:
            return self._write_in_place(os.fspath(out))
        with staging(out) as staged, ExitStack() as aside:
            # The writers of the other parts end after the training store is renamed: all of them appear, or none.
            others = {
                part: aside.enter_context(self._other(part, path))
                for part, path in self.outputs.items()
                if part != TRAIN
            }
            # A complete store was staged by a process that was killed later.
            key = self.source.key if self.client is None else self._parts_key
            if self.test is not None or not is_written(staged, key):
                self._stage(staged, others.get(TEST))
            shuffled = self._place(staged, others)
            for other in others.values():
                other.set_scaling(open_store(out).info.scaling)
        return shuffled

    def _write_in_place(self, out: str) -> bool:
        """Write the rows to a URL without a local copy; shuffle them there on request, or when a target is sorted."""
        if self.shuffle is True:
            self._write_shuffled(out)
            return True
        if self._parts_key is None or not awaits_shuffle(out, self.shuffle, self._parts_key):
            self._write_parts(out, self.overwrite)
        shuffled = wants_shuffle(self.shuffle, open_store(out))
        if shuffled:
            try:
                self._shuffle(out, out, overwrite=True)
            except (KeyboardInterrupt, SystemExit) as end:
                end.add_note(CONTINUES)
                raise
        return shuffled

    def _write_shuffled(self, out: str) -> None:
        """Write the rows to a store beside the final URL, for workers to shuffle; an interrupted run is continued."""
        assert self._parts_key is not None
        staged = f"{out.rstrip('/')}.staged-{self._parts_key[:8]}"
        try:
            if not is_written(staged, self._parts_key):
                self._write_parts(staged, overwrite=True)
            self._shuffle(staged, out, self.overwrite)
        except Exception:
            with suppress(Exception):
                remove_remote(staged)
            raise
        remove_remote(staged)

    def _write_parts(self, place: PathLike, overwrite: bool) -> None:
        with self._writer(SharedWriter, place, self.train, self.scale, overwrite, self._parts_key) as shared:
            ingest_parts(self.client, shared, self.train, self.decision, self._classes, self.progress)

    def _shuffle(self, staged: str, out: str, overwrite: bool) -> None:
        if self.client is None:
            shuffle_store(staged, out, seed=self.seed, overwrite=overwrite, progress=self.progress)
            return
        memory = least_memory(self.client, open_store(staged))
        shuffle_store_on(
            self.client,
            staged,
            out,
            seed=self.seed,
            memory=max(DEFAULT_MEMORY, memory),
            overwrite=overwrite,
            progress=self.progress,
        )

    @property
    def _classes(self) -> tuple[ClassLabel, ...] | None:
        return None if self.like is None else self.like.classes

    @property
    def _parts_key(self) -> str | None:
        """The key of rows that are written part by part."""
        return parts_key(self.source.key, self.shuffle)

    def _stage(self, staged: Path, test: StoreWriter | None) -> None:
        """Write all rows in the order in which they come; those of `self.test` to their own writer."""
        if self.client is not None:
            self._write_parts(staged, overwrite=True)
            return
        with self._writer(StoreWriter, staged, self.train, self.scale, overwrite=True, key=self.source.key) as writer:
            IngestStream(self.train, self.test, self.decision, self.progress, self._classes).run(writer, test)

    def _place(self, staged: Path, others: Mapping[int, StoreWriter]) -> bool:
        """Move staged rows to their stores; return whether the training rows were shuffled."""
        out = self.outputs[TRAIN]
        whole = open_store(staged)
        shuffled = wants_shuffle(self.shuffle, whole)
        if not shuffled and not self.split.is_wanted:
            put_in_place(staged, out, overwrite=self.overwrite)
            return shuffled
        from_train = {part: other for part, other in others.items() if part != TEST or self.test is None}
        placing = SplitAndShuffle(whole, self.split, self.seed if shuffled else None)
        with work_folder(out) as folder:
            place = out if is_url(out) else folder / "store"
            with self._writer(StoreWriter, place, self.train, self.scale, self.overwrite, self.key) as train:
                writers = {TRAIN: train, **from_train}
                _set_schema(writers, whole)
                if shuffled:
                    train.set_provenance({**self.record, "shuffled with seed": self.seed})
                placing.run(folder, writers, self.progress)
            if place is not out:
                put_in_place(folder / "store", out, overwrite=self.overwrite)
        return shuffled

    def _other(self, part: int, path: PathLike) -> StoreWriter:
        rows = self.test if part == TEST and self.test is not None else self.train
        return self._writer(StoreWriter, path, rows, "none", self.overwrite, self.key)

    def _writer(
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


def _set_schema(writers: Mapping[int, StoreWriter], whole: Store) -> None:
    """Record the classes and the encoding of all rows in the stores of their parts."""
    for writer in writers.values():
        writer.set_encoding(whole.info.encoding)
        if whole.info.classes is not None:
            writer.set_classes(whole.info.classes)
