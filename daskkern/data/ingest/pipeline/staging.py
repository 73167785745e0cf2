"""The stores of an ingestion to folders: rows are staged as they come, then split, shuffled or moved into place."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from daskkern.data.ingest.pipeline.ingestion import Ingestion, set_schema
from daskkern.data.ingest.pipeline.resume import is_written
from daskkern.data.ingest.pipeline.split import TEST, TRAIN
from daskkern.data.ingest.pipeline.split_and_shuffle import SplitAndShuffle, staging, wants_shuffle
from daskkern.data.storage.store import open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.work_folder import put_in_place, work_folder


class Staging(Ingestion):
    """An ingestion whose training store is a local folder; the rows are staged next to it."""

    def run(self) -> bool:
        """Write the stores, all or none, and return whether the training rows were shuffled."""
        with staging(self.out) as staged, ExitStack() as aside:
            # The writers of the other parts end after the training store is renamed: all of them appear, or none.
            others = {
                part: aside.enter_context(self.other(StoreWriter, part, path))
                for part, path in self.settings.outputs.items()
                if part != TRAIN
            }
            # A complete store was staged by a process that was killed later.
            key = self.source.key if self.settings.client is None else self.parts_key
            if self.test is not None or not is_written(staged, key):
                self._stage(staged, others.get(TEST))
            shuffled = self._place(staged, others)
            for other in others.values():
                other.set_scaling(open_store(self.out).info.scaling)
        return shuffled

    def _stage(self, staged: Path, test: StoreWriter | None) -> None:
        """Write all rows in the order in which they come; those of `self.test` to their own writer."""
        if self.settings.client is not None:
            self.write_parts(staged, overwrite=True)
        else:
            self.write_stream(staged, self.source.key, test, overwrite=True)

    def _place(self, staged: Path, others: Mapping[int, StoreWriter]) -> bool:
        """Move staged rows to their stores; return whether the training rows were shuffled."""
        whole, settings = open_store(staged), self.settings
        shuffled = wants_shuffle(settings.shuffle, whole)
        if not shuffled and not settings.split.is_wanted:
            put_in_place(staged, self.out, overwrite=settings.overwrite)
            return shuffled
        from_train = {part: other for part, other in others.items() if part != TEST or self.test is None}
        placing = SplitAndShuffle(whole, settings.split, settings.seed if shuffled else None)
        with work_folder(self.out) as folder:
            place = folder / "store"
            with self.writer(StoreWriter, place, self.train, settings.scale, settings.overwrite, self.key) as train:
                writers = {TRAIN: train, **from_train}
                set_schema(writers, whole)
                if shuffled:
                    train.set_provenance({**self.record, "shuffled with seed": settings.seed})
                placing.run(folder, writers, settings.progress)
            put_in_place(place, self.out, overwrite=settings.overwrite)
        return shuffled
