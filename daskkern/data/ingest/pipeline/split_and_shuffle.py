"""Distribution of staged rows to the requested stores: split, shuffled, or moved as they are."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from daskkern.arrays import IntArray
from daskkern.data.ingest.pipeline.split import TRAIN, Split, SplitSettings
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

    def run(self, folder: Path, writers: Mapping[int, StoreWriter], progress: Progress) -> None:
        """Append every row to the writer of its part; `folder` is for temporary files."""
        rows = StoredRows(self.staged)
        check_room(folder, rows.info.n_rows * rows.row_bytes, "splitting or shuffling the rows")
        chunk = rows.info.chunk_rows * rows.row_bytes
        buckets: Buckets | None = None
        if self.shuffle_seed is not None:
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
        self._check_trained(trained)
        if buckets is not None:
            shutil.rmtree(self.staged.path)  # so that the disk never holds the rows three times
            for block in buckets.blocks():
                _append(writers[TRAIN], block)

    def _split_blocks(self, rows: StoredRows) -> Iterator[tuple[int, int, StoredBlock]]:
        """Yield the rows in order, one part of a block at a time: the number of rows done, the part, its rows."""
        counts = rows.info.class_counts if self.split.stratify else None
        split = Split(self.split, counts or (rows.info.n_rows,)) if self.split.is_wanted else None
        for start, block in rows.blocks(_BLOCK_BYTES):
            done = start + block.n_rows
            if split is None:
                yield done, TRAIN, block
                continue
            parts = split.assign(np.zeros(block.n_rows, np.int64) if counts is None or block.y is None else block.y)
            for part in np.unique(parts):
                yield done, int(part), block.take(parts == part)

    def _check_trained(self, trained: IntArray) -> None:
        """Refuse a split that leaves a class without training rows."""
        for label, count in zip(self.staged.info.classes or (), trained, strict=True):
            if count == 0:
                raise DataError(
                    f"the label {label!r} is so rare that all its rows went to the test or validation part; "
                    "split with another seed, or remove them"
                )


def _append(writer: StoreWriter, block: StoredBlock) -> None:
    writer.append(block.X, block.y, block.weight)
