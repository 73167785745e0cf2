"""The order of mini-batches: seeded, the same on every machine, and friendly to disks.

Single rows are never sampled from disk. Chunks are dealt once to windows; the rows of a window are permuted
once and cut into batches; an epoch visits the windows, and the batches of each, in an order of its own. So a
batch holds the same rows in every epoch, and what was computed for its rows can be kept.

Every draw is an argsort of raw Philox numbers, whose stream is fixed by its definition rather than by a
version of NumPy: a fit can be resumed elsewhere.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.random import generator
from daskkern.data.rows import Rows
from daskkern.errors import SpecError

DEFAULT_WINDOW_BYTES = 64 << 20

# Names of the random streams; far from the small numbers that other parts of a fit use with the same seed.
_CHUNKS, _ROWS, _WINDOWS, _BATCHES = 0xDA7A_0001, 0xDA7A_0002, 0xDA7A_0003, 0xDA7A_0004


@dataclass(frozen=True)
class BatchPlan:
    """Which rows make up which batch, and in which order the batches of an epoch come.

    Attributes
    ----------
    n_rows, chunk_rows : int
        Of the rows to be read.
    batch_size : int
        Most rows of a batch. Within a window, sizes differ by at most one row.
    seed : int
        Of the whole order.
    window_rows : int
        Rows of a window, about. A window has at least one chunk and at least room for one batch; when all
        rows fit in one window, the order is a full shuffle.
    """

    n_rows: int
    chunk_rows: int
    batch_size: int
    seed: int = 0
    window_rows: int = 1 << 16

    def __post_init__(self) -> None:
        if min(self.n_rows, self.chunk_rows, self.batch_size, self.window_rows) < 1 or self.seed < 0:
            raise SpecError(
                "batches need at least one row, chunks, batches and windows of at least one row and a seed of 0 or "
                f"more; got {self}"
            )

    @classmethod
    def for_rows(
        cls, rows: Rows, batch_size: int, seed: int = 0, window_bytes: int = DEFAULT_WINDOW_BYTES
    ) -> "BatchPlan":
        """Return the plan for `rows` whose windows hold about `window_bytes` of float32 features."""
        window_rows = max(1, window_bytes // rows.row_bytes)
        return cls(rows.n_rows, rows.chunk_rows, batch_size, seed, window_rows)

    @property
    def n_batches(self) -> int:
        """Batches of an epoch."""
        return int(self._first_batch[-1])

    @property
    def n_windows(self) -> int:
        """Windows of an epoch."""
        return len(self._window_chunks)

    @cached_property
    def batch_sizes(self) -> IntArray:
        """Rows of every batch (n_batches,)."""
        sizes = [np.diff(self._cuts(window)) for window in range(self.n_windows)]
        return np.concatenate(sizes)

    def order(self, epoch: int) -> IntArray:
        """Return the batch numbers of epoch `epoch`, from 0, in visiting order; those of a window are together."""
        rank = np.argsort(_permutation(self.n_windows, self.seed, _WINDOWS, epoch))  # of each window
        keys = generator(self.seed, _BATCHES, epoch).bit_generator.random_raw(self.n_batches)
        return np.lexsort((keys, np.repeat(rank, np.diff(self._first_batch)))).astype(np.int64)

    def window_of(self, batch: int) -> int:
        """Return the window that batch number `batch` belongs to."""
        self._check_batch(batch)
        return int(np.searchsorted(self._first_batch, batch, side="right")) - 1

    def batches_of(self, window: int) -> range:
        """Return the numbers of the batches of a window."""
        return range(int(self._first_batch[window]), int(self._first_batch[window + 1]))

    def chunks_of(self, window: int) -> IntArray:
        """Return the numbers of the row chunks of a window, ascending."""
        return self._window_chunks[window]

    def positions(self, batch: int) -> IntArray:
        """Return the global row positions of batch number `batch`, int64, in the order of its rows."""
        window = self.window_of(batch)
        within = self.slice_in_window(batch)
        return window_positions(self, window)[within]

    def slice_in_window(self, batch: int) -> slice:
        """Return where the rows of batch number `batch` lie among :func:`window_positions` of its window."""
        window = self.window_of(batch)
        cuts = self._cuts(window)
        number = batch - int(self._first_batch[window])
        return slice(int(cuts[number]), int(cuts[number + 1]))

    @cached_property
    def _window_chunks(self) -> list[IntArray]:
        n_chunks = -(-self.n_rows // self.chunk_rows)
        per_window = max(1, self.window_rows // self.chunk_rows, -(-self.batch_size // self.chunk_rows))
        shuffled = _permutation(n_chunks, self.seed, _CHUNKS)
        return [np.sort(part) for part in np.array_split(shuffled, -(-n_chunks // per_window))]

    @cached_property
    def _window_sizes(self) -> IntArray:
        last = self.n_rows - (-(-self.n_rows // self.chunk_rows) - 1) * self.chunk_rows  # rows of the last chunk
        end = self.n_rows // self.chunk_rows if last < self.chunk_rows else -1
        short = self.chunk_rows - last
        sizes = [len(chunks) * self.chunk_rows - short * bool(chunks[-1] == end) for chunks in self._window_chunks]
        return np.asarray(sizes, np.int64)

    @cached_property
    def _first_batch(self) -> IntArray:
        """Number of the first batch of each window, and the number of batches at the end (n_windows + 1,)."""
        counts = -(-self._window_sizes // self.batch_size)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def _cuts(self, window: int) -> IntArray:
        n_batches = len(self.batches_of(window))
        size = int(self._window_sizes[window])
        return np.arange(n_batches + 1, dtype=np.int64) * size // n_batches

    def _check_batch(self, batch: int) -> None:
        if not 0 <= batch < self.n_batches:
            raise SpecError(f"batch {batch} was asked, but there are {self.n_batches} batches")


@lru_cache(maxsize=4)
def window_positions(plan: BatchPlan, window: int) -> IntArray:
    """Return the global positions of the rows of a window, batch after batch. Read-only."""
    chunks = plan.chunks_of(window)
    rows = (chunks[:, None] * plan.chunk_rows + np.arange(plan.chunk_rows)).ravel()  # (chunks * chunk_rows,)
    rows = rows[rows < plan.n_rows]
    positions = rows[_permutation(len(rows), plan.seed, _ROWS, window)]
    positions.setflags(write=False)
    return positions


def _permutation(n: int, seed: int, *stream: int) -> IntArray:
    keys = generator(seed, *stream).bit_generator.random_raw(n)
    return np.argsort(keys, kind="stable").astype(np.int64)
