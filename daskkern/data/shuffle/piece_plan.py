"""The division of a shuffle by pieces into tasks and requests. It depends on the rows and the memory alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import IntArray
from daskkern.data.storage.csr_store import POINTER_CHUNK, entries_of_chunk
from daskkern.data.storage.store import Store

Kind: TypeAlias = Literal["rows", "entries", "pointers"]
"""What an array has along its first axis: rows (dense ``X``, ``y``, ``weight``), or of sparse rows the stored entries
or the pointers between rows."""

Offsets: TypeAlias = npt.NDArray[np.uint32]
"""(pieces, intervals + 1): where the interval of keys begins in each piece."""

SHARE = 4
"""A piece, and a load of pass two, use this fraction of the memory; sorting and writing need the rest."""

LEAST_BYTES = 16 << 20
"""Of a piece or a job, unless the memory is smaller."""

_PARTS, _MOST_BYTES = 32, 128 << 20
_MOST_INTERVALS = 1 << 13  # the counts of all pieces are held by the process that distributes the work


@dataclass(frozen=True)
class PiecePlan:
    """Sizes of a shuffle.

    Attributes
    ----------
    n_bytes : int
        Of all pieces.
    load_bytes : int
        Bytes of rows that a task sorts at once.
    parts : tuple of (int, int)
        The rows of the source of each task of pass one.
    n_intervals : int
        Intervals of equal length into which the keys are cut.
    kinds : tuple of kind
        The arrays of the store, in the order of its checksums.
    jobs : tuple of (kind, start, stop)
        What each task of pass two writes: whole chunks.
    """

    n_bytes: int
    load_bytes: int
    parts: tuple[tuple[int, int], ...]
    n_intervals: int
    kinds: tuple[Kind, ...]
    jobs: tuple[tuple[Kind, int, int], ...]

    @classmethod
    def of(cls, store: Store, bytes_of: dict[Kind, int], memory: int) -> "PiecePlan":
        """Return the plan for the rows of a store; `bytes_of` a row and an entry in a piece."""
        n, info = store.info.n_rows, store.info
        totals = _totals(store)
        n_bytes = n * bytes_of["rows"] + totals.get("entries", 0) * bytes_of["entries"]
        load = max(1, memory // SHARE)
        unit = max(LEAST_BYTES, n_bytes // _PARTS)
        job = min(max(load, _MOST_BYTES), unit)
        n_loads = -(-n_bytes // min(load, job))
        part_rows = info.chunk_rows * max(1, min(load, unit) * n // n_bytes // info.chunk_rows)
        jobs = [
            (kind, start, stop)
            for kind, total in totals.items()
            for start, stop in _ranges(total, chunk_of(store, kind), job // bytes_of[kind])
            if stop > start
        ]
        intervals = min(n, max(n_loads, min(4 * n_loads, _MOST_INTERVALS)))
        return cls(n_bytes, load, tuple(_ranges(n, part_rows, part_rows)), intervals, tuple(totals), tuple(jobs))


@dataclass(frozen=True)
class Loads:
    """The intervals of keys that hold some values of the new order, divided into loads.

    Attributes
    ----------
    first_row, first_entry : int
        Rows, and of sparse rows entries, of all intervals before.
    cuts : array of int
        Numbers of the intervals where loads begin, and where the last one ends.
    """

    first_row: int
    first_entry: int
    cuts: IntArray

    @classmethod
    def of(cls, kind: Kind, start: int, stop: int, ends: IntArray, sizes: IntArray, load_bytes: int) -> "Loads":
        """Return the loads with the values from `start` to `stop`.

        Parameters
        ----------
        kind, start, stop
            A job of the plan.
        ends : array of int (1 or 2, intervals + 1)
            Rows, and of sparse rows entries, before each interval, and all of them.
        sizes : array of int (intervals,)
            Bytes that are read of each interval.
        load_bytes : int
        """
        before = ends[-1] if kind == "entries" else ends[0]
        low, high = (max(start - 1, 0), stop - 1) if kind == "pointers" else (start, stop)
        first = int(np.searchsorted(before, low, side="right")) - 1
        last = max(int(np.searchsorted(before, high, side="left")), first + 1)
        cuts, held = [first], 0
        for number in range(first, last):
            if held and held + sizes[number] > load_bytes:
                cuts.append(number)
                held = 0
            held += int(sizes[number])
        return cls(int(ends[0][first]), int(ends[-1][first]), np.array([*cuts, last]))


def _totals(store: Store) -> dict[Kind, int]:
    info = store.info
    if not info.is_sparse:
        return {"rows": info.n_rows}
    rows: dict[Kind, int] = {} if info.task is None and not info.has_weight else {"rows": info.n_rows}
    return {**rows, "entries": store.array("X/data").shape[0], "pointers": info.n_rows + 1}


def chunk_of(store: Store, kind: Kind) -> int:
    """Return the values of a chunk of the arrays of a kind."""
    if kind == "rows":
        return store.info.chunk_rows
    return POINTER_CHUNK if kind == "pointers" else entries_of_chunk(store.array("X/data").chunks[0])


def _ranges(total: int, chunk: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of whole chunks, of about `wanted` values."""
    step = chunk * max(1, wanted // chunk)
    return pairwise([*range(0, total, step), total])
