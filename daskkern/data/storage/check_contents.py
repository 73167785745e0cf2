"""Comparison of the rows of a store with its recorded attributes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.schema.column_statistics import ColumnStatistics, Moments
from daskkern.data.storage.raw_rows import StoredBlock, StoredRows
from daskkern.data.storage.store import Store, read_array
from daskkern.errors import DataError

_BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class StoreFinding:
    """One error: the array, chunk or attribute it is in, and a sentence about it."""

    key: str
    sentence: str


def contradictions(store: Store) -> list[StoreFinding]:
    """Return how the rows contradict the attributes, or the first unusable value."""
    wrong = wrong_pointers(store)
    if wrong:
        return wrong
    contents = RowContents(store)
    finding = contents.read(0, store.info.n_rows)
    return list(contents.compare()) if finding is None else [finding]


def wrong_pointers(store: Store) -> list[StoreFinding]:
    """Return how the ends of the row pointers of CSR rows contradict the number of entries."""
    if store.info.is_sparse:
        pointers, n_stored = store.array("X/indptr"), store.array("X/data").shape[0]
        n = store.info.n_rows
        first, last = int(read_array(pointers, 0, 1)[0]), int(read_array(pointers, n, n + 1)[0])
        if (first, last) != (0, n_stored):
            return [
                StoreFinding(
                    "X/indptr", f"array X/indptr goes from {first} to {last}, but there are {n_stored} entries"
                )
            ]
    return []


class RowContents:
    """Recomputes the class counts and statistics of rows."""

    def __init__(self, store: Store) -> None:
        self._store, self._info = store, store.info
        self._counts = np.zeros(len(self._info.classes or ()), np.int64)
        self._features = Moments(self._info.n_features)
        self._targets = Moments(self._info.n_targets) if self._info.task == "regression" else None

    def read(self, start: int, stop: int) -> StoreFinding | None:
        """Add the rows from `start`, where a chunk begins, to `stop`; return the first unusable value."""
        rows, chunk = StoredRows(self._store), self._info.chunk_rows
        step = chunk * max(1, _BLOCK_BYTES // (chunk * rows.row_bytes))
        try:
            for at in range(start, stop, step):
                block = rows.read(at, min(at + step, stop))
                finding = self._observe(block, f"rows {at} to {at + block.n_rows}")
                if finding is not None:
                    return finding
        except DataError as error:
            return StoreFinding("X", str(error))
        return None

    def state(self) -> tuple[HostArray, ...]:
        """Return what :meth:`add` needs."""
        targets = () if self._targets is None else (self._targets.state(),)
        return (self._counts, self._features.state(), *targets)

    def add(self, state: tuple[HostArray, ...]) -> None:
        """Add the rows that follow, which another process has read."""
        self._counts += state[0]
        self._features.add(state[1])
        if self._targets is not None:
            self._targets.add(state[2])

    def _observe(self, block: StoredBlock, where: str) -> StoreFinding | None:
        """Add rows; return a finding about the first field with an unusable value."""
        if not self._features.update(block.X):
            return StoreFinding("X", f"array X holds a value that is not finite in {where}; ingest the data again")
        if block.weight is not None and not (np.isfinite(block.weight) & (block.weight >= 0)).all():
            return StoreFinding("weight", f"array weight holds an unusable weight in {where}; ingest the data again")
        return None if block.y is None else self._observe_targets(block.y, where)

    def _observe_targets(self, y: HostArray, where: str) -> StoreFinding | None:
        if self._targets is not None:
            if self._targets.update(y):
                return None
            return StoreFinding("y", f"array y holds a value that is not finite in {where}; ingest the data again")
        if not 0 <= y.min() <= y.max() < len(self._counts):
            return StoreFinding(
                "y", f"array y holds codes beyond the {len(self._counts)} classes in {where}; ingest again"
            )
        self._counts += np.bincount(y, minlength=len(self._counts))
        return None

    def compare(self) -> Iterator[StoreFinding]:
        """Yield the attributes that do not agree with the rows."""
        info = self._info
        if info.class_counts is not None and tuple(self._counts.tolist()) != info.class_counts:
            yield _differs("class_counts", "y")
        if not _agree(info.statistics, self._features.result()):
            yield _differs("statistics", "X")
        recorded = info.target_statistics
        if self._targets is not None and recorded is not None and not _agree(recorded, self._targets.result()):
            yield _differs("target_statistics", "y")


def _differs(attribute: str, array: str) -> StoreFinding:
    return StoreFinding(attribute, f"attribute {attribute!r} does not agree with array {array}; ingest the data again")


def _agree(recorded: ColumnStatistics, found: ColumnStatistics) -> bool:
    """Return whether statistics agree up to the rounding of sums in a different order."""
    size = np.maximum(np.abs(found.min), np.abs(found.max))
    return (
        np.array_equal(recorded.min, found.min)
        and np.array_equal(recorded.max, found.max)
        and bool((np.abs(np.subtract(recorded.mean, found.mean)) <= 1e-6 * size).all())
        and bool((np.abs(np.subtract(recorded.std, found.std)) <= 1e-6 * size).all())
    )
