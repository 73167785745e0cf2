"""The stores of an ingestion to a URL, without a local copy.

Training rows that need no other order are written to their final place. Rows that are split or shuffled, or that come
with test rows, are first written to a store next to it, ``NAME.staged-*``, which is then split, shuffled or copied by
the bucket; training rows that are both split and shuffled are in ``NAME.unshuffled-*`` in between. Both are removed at
the end and after an error, and kept by a kill or an interrupt, so that the same command continues.
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from daskkern.data.ingest.columns.labels import KnownLabels, LabelCoder
from daskkern.data.ingest.pipeline.ingestion import Ingestion, set_schema
from daskkern.data.ingest.pipeline.outputs import awaits_shuffle
from daskkern.data.ingest.pipeline.resume import is_written
from daskkern.data.ingest.pipeline.split import TEST, TRAIN
from daskkern.data.ingest.pipeline.split_and_shuffle import SplitAndShuffle, wants_shuffle
from daskkern.data.ingest.pipeline.split_parts import split_store
from daskkern.data.ingest.pipeline.stream import checked_blocks
from daskkern.data.remote.copying import copy_remote
from daskkern.data.remote.group import remove_remote
from daskkern.data.schema.schema import FORMAT, ClassLabel
from daskkern.data.shuffle.buckets import DEFAULT_MEMORY
from daskkern.data.shuffle.parallel import least_memory, shuffle_store_on
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import note_continuation


class InPlace(Ingestion):
    """An ingestion whose training store is at a URL."""

    def run(self) -> bool:
        """Write the stores, all or none, and return whether the training rows were shuffled."""
        out = os.fspath(self.out)
        is_alone = len(self.settings.outputs) == 1 and self.settings.shuffle is not True
        return self._alone(out) if is_alone else self._aside(out)

    def _alone(self, out: str) -> bool:
        """Write the rows to their place, and shuffle them there when a target is sorted."""
        if self.parts_key is None or not awaits_shuffle(out, self.settings.shuffle, self.parts_key):
            self._write_rows(out, self.settings.overwrite)
        shuffled = wants_shuffle(self.settings.shuffle, open_store(out))
        if shuffled:
            try:
                self._shuffle(out, out, overwrite=True)
            except (KeyboardInterrupt, SystemExit) as end:
                note_continuation(end)
                raise
        return shuffled

    def _aside(self, out: str) -> bool:
        """Write the rows next to their place first; an interrupted run is continued."""
        token = (self.key or secrets.token_hex(4))[:8]
        staged, unshuffled = (f"{out.rstrip('/')}.{name}-{token}" for name in ("staged", "unshuffled"))
        try:
            shuffled = self._by_way_of(staged, unshuffled, out)
        except BaseException as error:
            if isinstance(error, Exception) or self.key is None:
                with suppress(Exception):
                    _remove(staged, unshuffled)
            elif is_written(staged, self.parts_key):
                note_continuation(error)
            raise
        _remove(staged, unshuffled)
        return shuffled

    def _by_way_of(self, staged: str, unshuffled: str, out: str) -> bool:
        with ExitStack() as aside:
            # The writers of the other parts end after the training store: all of them appear, or none.
            others = {
                part: aside.enter_context(self.other(self._kind(part), part, path))
                for part, path in self.settings.outputs.items()
                if part != TRAIN and not self._is_done(os.fspath(path))
            }
            if not is_written(staged, self.parts_key):
                self._write_rows(staged, overwrite=True)
            whole = open_store(staged)
            shuffled = wants_shuffle(self.settings.shuffle, whole)
            if self.test is not None and TEST in others:
                self._write_test(others[TEST], whole.info.classes)
            from_train = {part: other for part, other in others.items() if part != TEST or self.test is None}
            if self.settings.split.is_wanted:
                self._split(whole, unshuffled if shuffled else out, from_train, is_final=not shuffled)
            if not self._is_done(out):
                if shuffled:
                    source = unshuffled if self.settings.split.is_wanted else staged
                    self._shuffle(source, out, self.settings.overwrite, self.key)
                elif not self.settings.split.is_wanted:
                    copy_remote(staged, out, kind=FORMAT, overwrite=self.settings.overwrite)
            for other in others.values():
                other.set_scaling(open_store(out).info.scaling)
        return shuffled

    def _kind(self, part: int) -> type[StoreWriter]:
        """Return the writer of another part than the training rows: tasks write the dense rows of a split."""
        streams = self.train.is_sparse or (part == TEST and self.test is not None)
        return StoreWriter if streams else SharedWriter

    def _is_done(self, place: str) -> bool:
        """Return whether a killed process completed the store at its final place."""
        return self.settings.begun and (is_written(place, self.key) or is_written(place, self.parts_key))

    def _write_rows(self, place: str, overwrite: bool) -> None:
        """Write all rows in the order in which they come; those of `self.test` later."""
        is_whole = self.settings.client is None and self.train.starts is not None and len(self.train.starts) == 1
        if self.train.n_rows is None or self.train.is_sparse or is_whole:
            self.write_stream(place, self.parts_key, overwrite=overwrite)
        else:
            self.write_parts(place, overwrite)

    def _write_test(self, writer: StoreWriter, classes: tuple[ClassLabel, ...] | None) -> None:
        assert self.test is not None
        if classes is not None:
            writer.set_classes(classes)
        known = LabelCoder() if classes is None else KnownLabels(classes)
        for block in checked_blocks(self.test, self.decision, known):
            block.append_to(writer)

    def _split(self, whole: Store, place: str, others: Mapping[int, StoreWriter], *, is_final: bool) -> None:
        """Write the parts of all rows to the training store at `place` and the writers of the other parts."""
        if self._is_done(place) if is_final else is_written(place, self.key):
            self._divide(whole, others)
            return
        kind = StoreWriter if self.train.is_sparse else SharedWriter
        overwrite = self.settings.overwrite or not is_final
        with self.writer(kind, place, self.train, self.settings.scale, overwrite, self.key) as train:
            self._divide(whole, {TRAIN: train, **others})

    def _divide(self, whole: Store, writers: Mapping[int, StoreWriter]) -> None:
        set_schema(writers, whole)
        shared = {part: writer for part, writer in writers.items() if isinstance(writer, SharedWriter)}
        if not shared:
            SplitAndShuffle(whole, self.settings.split, None).run(None, writers, self.settings.progress)
        else:
            split_store(self.settings.client, whole.path, self.settings.split, shared, self.settings.progress)

    def _shuffle(self, source: str, out: str, overwrite: bool, key: str | None = None) -> None:
        memory = max(DEFAULT_MEMORY, least_memory(self.settings.client, open_store(source)))
        shuffle_store_on(
            self.settings.client,
            source,
            out,
            seed=self.settings.seed,
            memory=memory,
            overwrite=overwrite,
            progress=self.settings.progress,
            key=key,
        )


def _remove(*places: str) -> None:
    for place in places:
        remove_remote(place)
