"""The order of mini-batches: seeded, the same on every machine, and efficient on disk.

Single rows are never sampled from disk. The rows are split into parts - chunks, or pieces of wide chunks - and these
into as many stretches of neighbouring parts as a window holds. Each window is assigned one part of every stretch. So
it is a stratified sample of all rows, whose order may reflect files, days or drifts. The rows of a window are permuted
and split into batches; every epoch visits the windows, and the batches of each, in a different order.

Either every epoch reassigns parts and permutes rows again, or a batch holds the same rows in every epoch, so that
results for its rows can be cached; the order of the batches, too, may be the same. The number of batches and their
sizes are the same in all epochs.

Every draw is an argsort of raw Philox numbers, whose stream is fixed by its definition rather than by the
version of NumPy, so a fit can be resumed elsewhere.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.random import generator, permutation
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.rows import Rows
from daskkern.errors import SpecError

DEFAULT_WINDOW_BYTES = 64 << 20
ORDER = "stratified windows"
"""Name of the order that this module defines: a run that began in another order cannot continue in this one."""

STRETCHES, LEAST_STRETCHES = 128, 16
"""Stretches of the order that a window has a part of, where chunks can be read in pieces; the second in small windows.

A request to a store costs as much as reading some 100 kB: in pieces of 512 KiB, 128 in a window, an epoch takes
0.3 s of CPU time per GB more than in whole chunks. On 200,000 x 784 rows of a slow random walk, 16 stretches left
R2 0.8 points below that of the shuffled store, 64 left 0.3, and 128 nothing.
"""

_PIECE_BYTES = 512 << 10
_MOST_CHUNK_ROWS = 4096

# Identifiers of the random streams, far from the small numbers that other parts of a fit use with the same seed.
_PARTS, _ROWS, _WINDOWS, _BATCHES = 0xDA7A_0001, 0xDA7A_0002, 0xDA7A_0003, 0xDA7A_0004


@dataclass(frozen=True)
class BatchPlan:
    """The assignment of rows to batches, and the order of the batches in an epoch.

    Attributes
    ----------
    n_rows, chunk_rows : int
        Sizes of the rows to be read.
    batch_size : int
        Maximum number of rows of a batch. Within a window, sizes differ by at most one row.
    seed : int
        Seed of the whole order.
    window_rows : int
        Approximate number of rows of a window. A window has at least one part and room for at least one batch;
        when all rows fit in one window, the order is a full shuffle.
    piece_rows : int
        Rows of a part, where chunks are read in pieces; 0 means that parts are chunks.
    reshuffle : bool
        Whether rows are reassigned to batches in every epoch.
    same_order : bool
        Whether every epoch visits windows and batches in the order of epoch 0.
    edges : ChunkEdges or None
        Where chunks of unequal size begin and end. Windows then consist of whole chunks, the same ones in every epoch.
    """

    n_rows: int
    chunk_rows: int
    batch_size: int
    seed: int = 0
    window_rows: int = 1 << 16
    piece_rows: int = 0
    reshuffle: bool = False
    edges: ChunkEdges | None = None
    same_order: bool = False

    def __post_init__(self) -> None:
        if min(self.n_rows, self.chunk_rows, self.batch_size, self.window_rows) < 1 or self.seed < 0:
            raise SpecError(
                "batches need at least one row, chunks, batches and windows of at least one row and a seed of 0 or "
                f"more; got {self}"
            )
        if not 0 <= self.piece_rows <= self.chunk_rows:
            raise SpecError(f"got pieces of {self.piece_rows} rows; expected 1 to {self.chunk_rows}, or 0")

    @classmethod
    def for_rows(
        cls,
        rows: Rows,
        batch_size: int,
        seed: int = 0,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        *,
        reshuffle: bool = False,
        same_order: bool = False,
    ) -> "BatchPlan":
        """Return the plan for `rows` whose windows hold about `window_bytes` of float32 features.

        Windows of fewer than 128 chunks consist of pieces of chunks, where `rows` can be read in pieces at little cost.
        Chunks that are decoded whole are cut into as few as possible: windows of at least 16 of them have whole ones,
        so that each is decoded once per epoch, and larger ones are decoded :attr:`chunk_reads` times.
        """
        window_rows = max(1, window_bytes // rows.row_bytes)
        plan = cls(
            rows.n_rows, rows.chunk_rows, batch_size, seed, window_rows, reshuffle=reshuffle, edges=rows.chunk_edges,
            same_order=same_order,
        )  # fmt: skip
        held = max(batch_size, window_rows)
        piece = max(held // STRETCHES, min(held // LEAST_STRETCHES, _PIECE_BYTES // rows.row_bytes), 1)
        if rows.decodes_chunks:
            piece = max(held // LEAST_STRETCHES, 1)
        if not rows.reads_pieces or plan.n_windows == 1 or piece >= rows.chunk_rows:
            return plan
        return replace(plan, piece_rows=_divided(rows.chunk_rows, piece))

    @property
    def part_rows(self) -> int:
        """Number of rows of a part; the last one, and with `edges` any, may have fewer."""
        return self.piece_rows or self.chunk_rows

    @property
    def chunk_reads(self) -> int:
        """Most windows of an epoch that have rows of the same chunk, unless pieces straddle chunks."""
        return min(self.n_windows, -(-self.chunk_rows // self.part_rows))

    @property
    def n_parts(self) -> int:
        """Number of parts of all rows."""
        return -(-self.n_rows // self.part_rows) if self.edges is None else self.edges.n_chunks

    @property
    def n_batches(self) -> int:
        """Number of batches of an epoch."""
        return int(self._first_batch[-1])

    @property
    def n_windows(self) -> int:
        """Number of windows of an epoch."""
        rows = self.part_rows if self.edges is None else -(-self.n_rows // self.n_parts)  # of a part, on average
        per_window = max(1, self.window_rows // rows, -(-self.batch_size // rows))
        return -(-self.n_parts // per_window)

    @property
    def most_window_rows(self) -> int:
        """Maximum number of rows of a window, counted in whole parts."""
        if self.edges is not None:
            return int(self._window_sizes.max())
        return self.part_rows * -(-self.n_parts // self.n_windows)

    @cached_property
    def batch_sizes(self) -> IntArray:
        """Number of rows of every batch (n_batches,)."""
        sizes = [np.diff(self._cuts(window)) for window in range(self.n_windows)]
        return np.concatenate(sizes)

    def order(self, epoch: int) -> IntArray:
        """Return the batch numbers of epoch `epoch`, from 0, in visiting order; those of a window are consecutive."""
        epoch = 0 if self.same_order else epoch
        rank = np.argsort(self.windows(epoch))  # of each window
        keys = generator(self.seed, _BATCHES, epoch).bit_generator.random_raw(self.n_batches)
        return np.lexsort((keys, np.repeat(rank, np.diff(self._first_batch)))).astype(np.int64)

    def windows(self, epoch: int) -> IntArray:
        """Return the numbers of the windows (n_windows,) in the order in which epoch `epoch` visits them."""
        return permutation(self.n_windows, self.seed, _WINDOWS, 0 if self.same_order else epoch)

    def window_of(self, batch: int) -> int:
        """Return the window that batch number `batch` belongs to."""
        if not 0 <= batch < self.n_batches:
            raise SpecError(f"got batch {batch}, but there are {self.n_batches} batches")
        return int(np.searchsorted(self._first_batch, batch, side="right")) - 1

    def batches_of(self, window: int) -> range:
        """Return the numbers of the batches of a window."""
        return range(int(self._first_batch[window]), int(self._first_batch[window + 1]))

    def parts_of(self, window: int, epoch: int = 0) -> IntArray:
        """Return the numbers of the parts of a window, ascending: one from every stretch of the order."""
        return _window_parts(self, *self._part_draw(*self._draw(epoch)))[window, : self._counts[window]]

    def positions(self, batch: int, epoch: int = 0) -> IntArray:
        """Return the global row positions of batch number `batch`, int64, in the order of its rows."""
        window = self.window_of(batch)
        within = self.slice_in_window(batch)
        return window_positions(self, window, epoch)[within]

    def slice_in_window(self, batch: int) -> slice:
        """Return the slice of :func:`window_positions` of its window that holds the rows of batch number `batch`."""
        window = self.window_of(batch)
        first, end = int(self._first_batch[window]), int(self._first_batch[window + 1])
        size, number = int(self._window_sizes[window]), batch - first
        return slice(number * size // (end - first), (number + 1) * size // (end - first))

    def rows_of(self, parts: IntArray) -> IntArray:
        """Return the global positions of the rows of parts (k,), int64, part after part."""
        if self.edges is not None:
            return self.edges.rows_of(parts)
        rows = (parts[:, None] * self.part_rows + np.arange(self.part_rows)).ravel()  # (parts * part_rows,)
        return rows[rows < self.n_rows]

    def bounds_of(self, part: int) -> tuple[int, int]:
        """Return the first row of a part, and the one after its last."""
        if self.edges is not None:
            return self.edges.bounds_of(part)
        return part * self.part_rows, min((part + 1) * self.part_rows, self.n_rows)

    @cached_property
    def _counts(self) -> IntArray:
        """Parts of each window (n_windows,); windows that also get one of the last, incomplete stretch come first."""
        whole, rest = divmod(self.n_parts, self.n_windows)
        return whole + (np.arange(self.n_windows) < rest).astype(np.int64)

    @cached_property
    def _window_sizes(self) -> IntArray:
        if self.edges is not None:
            parts = _window_parts(self)
            return np.array([self.edges.sizes[row[:k]].sum() for row, k in zip(parts, self._counts, strict=True)])
        sizes = self._counts * self.part_rows
        sizes[(self.n_parts - 1) % self.n_windows] -= self.n_parts * self.part_rows - self.n_rows
        return sizes

    @cached_property
    def _first_batch(self) -> IntArray:
        """Number of the first batch of each window, and the number of batches at the end (n_windows + 1,)."""
        counts = -(-self._window_sizes // self.batch_size)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _draw(self, epoch: int) -> tuple[int, ...]:
        """Return what the random streams of the batch composition depend on in addition to the seed."""
        return (epoch,) if self.reshuffle else ()

    def _part_draw(self, *draw: int) -> tuple[int, ...]:
        """Return what the windows of parts depend on: chunks of unequal size stay in theirs, whose sizes are fixed."""
        return draw if self.edges is None else ()

    def _cuts(self, window: int) -> IntArray:
        n_batches = len(self.batches_of(window))
        size = int(self._window_sizes[window])
        return np.arange(n_batches + 1, dtype=np.int64) * size // n_batches


def window_positions(plan: BatchPlan, window: int, epoch: int = 0) -> IntArray:
    """Return the global positions of the rows of a window, batch after batch. Read-only."""
    return _positions(plan, window, *plan._draw(epoch))[0]


def places_in_window(plan: BatchPlan, window: int, epoch: int = 0) -> IntArray:
    """Return the places of a window's rows, in storage order, in :func:`window_positions`. Read-only."""
    return _positions(plan, window, *plan._draw(epoch))[1]


@lru_cache(maxsize=4)
def _positions(plan: BatchPlan, window: int, *draw: int) -> tuple[IntArray, IntArray]:
    parts = _window_parts(plan, *plan._part_draw(*draw))[window, : plan._counts[window]]
    rows = plan.rows_of(parts)  # ascending, as the parts are
    drawn = permutation(rows.size, plan.seed, _ROWS, window, *draw)
    positions, places = rows[drawn], np.empty_like(drawn)
    places[drawn] = np.arange(drawn.size)
    positions.setflags(write=False)
    places.setflags(write=False)
    return positions, places


@lru_cache(maxsize=4)
def _window_parts(plan: BatchPlan, *draw: int) -> IntArray:
    """Return the numbers of the parts of each window (n_windows, stretches), one column a stretch.

    The last part, which may be short, always goes to the same window: sizes do not depend on the draw.
    """
    n_windows, n_stretches = plan.n_windows, -(-plan.n_parts // plan.n_windows)
    keys = generator(plan.seed, _PARTS, *draw).bit_generator.random_raw(n_windows * n_stretches)
    keys = keys.reshape(n_stretches, n_windows)
    last = plan.n_parts - (n_stretches - 1) * n_windows  # parts of the last stretch
    found = np.argsort(keys, axis=1, kind="stable").T.astype(np.int64)
    found[: last - 1, -1] = np.argsort(keys[-1, : last - 1], kind="stable")
    found[last - 1 :, -1] = np.arange(last - 1, n_windows)
    return found + n_windows * np.arange(n_stretches)


def fair_chunk_rows(row_bytes: int) -> int:
    """Return the rows of chunks for rows in memory: 4096, fewer where a window would hold less than 128 of them."""
    return max(1, min(_MOST_CHUNK_ROWS, DEFAULT_WINDOW_BYTES // STRETCHES // row_bytes))


def _divided(chunk_rows: int, most: int) -> int:
    """Return the rows of the largest equal pieces of a chunk of at most `most` rows.

    Chunks that have no divisor near that are cut into pieces that may straddle two of them.
    """
    fewest = -(-chunk_rows // most)
    for count in range(fewest, 2 * fewest + 1):
        if chunk_rows % count == 0:
            return chunk_rows // count
    return most
