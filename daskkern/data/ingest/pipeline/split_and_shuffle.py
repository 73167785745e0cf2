"""Distribution of staged rows to the requested stores: split, shuffled, or moved as they are."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.data.ingest.pipeline.split import TRAIN, Split, SplitSettings
from daskkern.data.schema.schema import ClassLabel, StoreInfo
from daskkern.data.shuffle.buckets import DEFAULT_MEMORY, Buckets
from daskkern.data.shuffle.detection import target_order
from daskkern.data.shuffle.shuffle import buckets_for
from daskkern.data.storage.raw_rows import StoredBlock, StoredRows
from daskkern.data.storage.store import Store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.atomic import working_place
from daskkern.data.transactions.work_folder import check_room
from daskkern.errors import DataError

Progress: TypeAlias = Callable[[int, int | None], None]

SORTED_NOTE = "target is sorted: rows are shuffled (--no-shuffle keeps the order)"

_BLOCK_BYTES = 32 << 20


@contextmanager
def staging(out: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the hidden local name under which rows are first stored as they come; removed at the end."""
    target = working_place(out)
    staged = target.with_name(f".{target.name}.staged")
    try:
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)  # already renamed when the order of the rows is unchanged


def wants_shuffle(requested: bool | None, staged: Store) -> bool:
    """Return whether to shuffle: as requested, else whether a target is sorted."""
    return target_order(StoreRows(staged)).is_sorted if requested is None else requested


@dataclass(frozen=True)
class SplitAndShuffle:
    """Distribution of the rows of a staged store to their stores.

    Attributes
    ----------
    staged : Store
        All rows in their original order.
    split : SplitSettings
        The shares of the parts.
    shuffle_seed : int or None
        Seed of the order of the training rows; None keeps their order.
    """

    staged: Store
    split: SplitSettings
    shuffle_seed: int | None

    def run(self, folder: Path | None, writers: Mapping[int, StoreWriter], progress: Progress) -> None:
        """Append every row to the writer of its part; a shuffle needs a local `folder` for temporary files."""
        rows = StoredRows(self.staged)
        chunk = rows.info.chunk_rows * rows.row_bytes
        buckets: Buckets | None = None
        if folder is not None:
            check_room(folder, rows.info.n_rows * rows.row_bytes, "splitting or shuffling the rows")
        if folder is not None and self.shuffle_seed is not None:
            buckets = buckets_for(rows, folder / "buckets", self.shuffle_seed, max(DEFAULT_MEMORY, 8 * chunk))
        trained = np.zeros(len(rows.info.classes or ()), np.int64)
        for done, part, block in self._split_blocks(rows):
            if part == TRAIN and block.y is not None and len(trained):
                trained += np.bincount(block.y, minlength=len(trained))
            if part == TRAIN and buckets is not None:
                buckets.append(block)
            else:
                _append(writers[part], block)
            progress(done, rows.info.n_rows)
        check_trained(self.staged.info.classes or (), trained)
        if buckets is not None:
            shutil.rmtree(self.staged.path)  # so that the disk never holds the rows three times
            for block in buckets.blocks():
                _append(writers[TRAIN], block)

    def _split_blocks(self, rows: StoredRows) -> Iterator[tuple[int, int, StoredBlock]]:
        """Yield the rows in order, one part of a block at a time: the number of rows done, the part, its rows."""
        split = split_of(rows.info, self.split) if self.split.is_wanted else None
        for start, block in rows.blocks(_BLOCK_BYTES):
            done = start + block.n_rows
            if split is None:
                yield done, TRAIN, block
                continue
            parts = split.assign(strata_of(rows.info, self.split, block.n_rows, block.y))
            for part in np.unique(parts):
                yield done, int(part), block.take(parts == part)


def split_of(info: StoreInfo, settings: SplitSettings) -> Split:
    """Return the split of the rows of a store."""
    return Split(settings, _class_counts(info, settings) or (info.n_rows,))


def strata_of(info: StoreInfo, settings: SplitSettings, n_rows: int, codes: HostArray | None) -> IntArray:
    """Return the stratum (n_rows,) of each of some rows, by their class codes if the split has strata."""
    return np.zeros(n_rows, np.int64) if codes is None or _class_counts(info, settings) is None else codes


def _class_counts(info: StoreInfo, settings: SplitSettings) -> tuple[int, ...] | None:
    return info.class_counts if settings.stratify else None


def check_trained(classes: Sequence[ClassLabel], trained: IntArray) -> None:
    """Raise DataError for a split that leaves a class without training rows; `trained` has those of each."""
    for label, count in zip(classes, trained, strict=True):
        if count == 0:
            raise DataError(
                f"the label {label!r} is so rare that all its rows went to the test or validation part; "
                "split with another seed, or remove them"
            )


def _append(writer: StoreWriter, block: StoredBlock) -> None:
    writer.append(block.X, block.y, block.weight)
