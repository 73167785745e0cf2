"""A cache of all rows after the first whole pass, for batches that are reshuffled in every epoch.

In host memory the cache takes the place of the source; on a GPU, batches are gathered where the rows lie.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan, window_positions
from daskkern.data.rows.batches import RowBatch, Visit, visits_of
from daskkern.data.rows.rows import Fields, Gathering, Rows, row_fields
from daskkern.linalg import even_slices
from daskkern.solvers import Batch

_GATHERED_BYTES = 8 << 20
"""Most bytes of the features that are gathered at once, unless a batch has more."""


class RowCache:
    """All rows in the order of their source, after a pass has read them.

    Parameters
    ----------
    rows : Rows
        The source that the first whole pass reads.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kept: ArrayRows | None = None
        self._gathering: Gathering | None = None
        self._seen = 0

    @property
    def is_full(self) -> bool:
        """Whether passes read the cache."""
        return self._kept is not None

    def begin(self, *, whole: bool) -> Rows:
        """Return the rows for a pass to read. Only a `whole` pass, from its first batch on, can fill the cache."""
        self._gathering, self._seen = None, 0
        if self._kept is None and whole:
            self._gathering = Gathering(self._rows, self._rows.n_rows, row_fields(self._rows))
        return self._rows if self._kept is None else self._kept

    def add(self, batch: RowBatch) -> None:
        """Add the rows of a batch of the pass."""
        if self._gathering is None:
            return
        self._gathering.put(batch.positions, batch.block)
        self._seen += len(batch.positions)
        if self._seen < self._rows.n_rows:
            return
        block, rows = self._gathering.block(), self._rows
        assert block.X is not None
        self._gathering = None
        self._kept = ArrayRows(
            block.X, block.y, weight=block.weight, classes=rows.classes, dtype=rows.dtype, chunk_rows=rows.chunk_rows
        )


class DeviceRowCache:
    """All rows on a GPU, in the order of their source, after a pass has read them, or before the first.

    Parameters
    ----------
    n_rows : int
    xp : module
        CuPy.
    """

    def __init__(self, n_rows: int, xp: ModuleType) -> None:
        self._n_rows, self._xp = n_rows, xp
        self._X: Array | None = None
        self._y: Array | None = None
        self._weight: Array | None = None
        self._excess: FloatArray | None = None
        self._seen = -1

    @property
    def is_full(self) -> bool:
        """Whether it has all rows."""
        return self._seen == self._n_rows

    @property
    def is_filling(self) -> bool:
        """Whether the pass can fill it."""
        return self._seen >= 0

    def begin(self, *, whole: bool) -> None:
        """Begin a pass that reads rows. Only a `whole` pass, from its first batch on, can fill the cache."""
        self._seen = 0 if whole else -1

    def add(self, batch: Batch, excess: FloatArray | None) -> None:
        """Add the rows of a batch of the pass, and their excess squared norms (m,), empty where none has one.

        See :mod:`daskkern.training.setup.row_sizes`.
        """
        assert self.is_filling
        assert batch.X is not None
        if self._X is None:
            self._X, self._y = self._like(batch.X), self._like(batch.y)
            self._weight = None if batch.weight is None else self._like(batch.weight)
        places = self._xp.asarray(batch.positions)
        for kept, values in ((self._X, batch.X), (self._y, batch.y), (self._weight, batch.weight)):
            if kept is not None:
                kept[places] = values
        if excess is not None and excess.any():
            self._excess = np.zeros(self._n_rows) if self._excess is None else self._excess
            self._excess[batch.positions] = excess
        self._seen += batch.size

    def batches(self, plan: BatchPlan, epoch: int, start: int = 0) -> Iterator[tuple[int, Batch]]:
        """Yield the numbers and batches of an epoch, from number `start` of its order on.

        The order of the next window is drawn meanwhile, in a thread.
        """
        visits = list(visits_of(plan, epoch, Fields.X, start))
        with ThreadPoolExecutor(1, thread_name_prefix="daskkern-order") as pool:

            def draw(number: int) -> Future[IntArray] | None:
                if number == len(visits):
                    return None
                return pool.submit(window_positions, plan, visits[number].window, visits[number].epoch)

            ahead = draw(0)
            for number, visit in enumerate(visits, 1):
                assert ahead is not None
                positions, ahead = ahead.result(), draw(number)
                yield from self._of_window(plan, visit, positions, number == len(visits))

    def _of_window(self, plan: BatchPlan, visit: Visit, positions: IntArray, ends: bool) -> Iterator[tuple[int, Batch]]:
        assert self._X is not None
        each = max(1, _GATHERED_BYTES // (plan.batch_size * max(1, int(self._X[:1].nbytes))))
        for some in even_slices(len(visit.batches), each):
            indices = visit.batches[some]
            parts = [positions[plan.slice_in_window(index)] for index in indices]
            edges = np.cumsum([0, *map(len, parts)]).tolist()
            chosen = self._xp.asarray(np.concatenate(parts))
            gathered = [
                None if kept is None else self._xp.take(kept, chosen, axis=0)
                for kept in (self._X, self._y, self._weight)
            ]
            for index, here, (start, stop) in zip(indices, parts, pairwise(edges), strict=True):
                X, y, weight = (None if rows is None else rows[start:stop] for rows in gathered)
                excess = 0.0 if self._excess is None else float(self._excess[here].sum())
                last = ends and index == visit.batches[-1]
                yield index, Batch(X=X, y=y, weight=weight, positions=here, phi=None, last=last, excess=excess)

    def _like(self, values: Array) -> Array:
        return self._xp.empty((self._n_rows, *values.shape[1:]), values.dtype)
