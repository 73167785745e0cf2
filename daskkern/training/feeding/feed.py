"""The batches of a rank: prefetched and encoded rows, with their cached or recomputed kernel blocks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.concurrency import reading_threads
from daskkern.backend.uploads import Arrived, Uploads, begun_ahead
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import RowBatch, iter_batches, numbered
from daskkern.data.rows.row_samplers import DrawnRows
from daskkern.data.rows.rows import Rows, row_fields
from daskkern.events import Listener, StageFinished
from daskkern.linalg import even_slices
from daskkern.solvers import AnyProblem, Batch
from daskkern.training.feeding.block_cache import keep_blocks
from daskkern.training.feeding.group_rows import GroupRows
from daskkern.training.feeding.row_cache import DeviceRowCache, RowCache
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.shared_reading import SharedReading
from daskkern.training.feeding.stored_features import FeatureRows
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.projections import window_of
from daskkern.training.setup.row_sizes import Extremes

Item = TypeVar("Item")

_FILLED_BYTES = 8 << 20  # of features that are sent to a GPU at once, unless a batch has more
_SWEEPS = 32  # low bits of the number of an order that are the epoch; the high bits are the pass within it


class Feed:
    """The source of batches for the solver of one rank.

    Parameters
    ----------
    memory : MemoryPlan
        Decides what is cached.
    prepared : Prepared
    settings : FitSettings
    rows : Rows
        The training rows.
    problem : Problem
    features : str or None
        Path of the stored eigenfeatures of Nystrom-SGD, which take the place of rows.
    comm : TimedCommunicator
        Measures the time spent waiting for rows, and has the channel by which ranks send rows to each other.
    emit : callable
    xp : module
    """

    def __init__(
        self,
        memory: MemoryPlan,
        prepared: Prepared,
        settings: FitSettings,
        rows: Rows,
        problem: AnyProblem,
        features: str | None,
        comm: TimedCommunicator,
        emit: Listener,
        xp: ModuleType,
    ) -> None:
        assert isinstance(prepared.plan, BatchPlan)
        self.plan = prepared.plan
        self._prepared, self._problem, self._emit, self._xp = prepared, problem, emit, xp
        self._reading = comm.reading
        self._readers = reading_threads(xp)
        self._shared = SharedReading(comm, settings, bool(memory.kept or memory.disk), emit, self._readers)
        self._stored = features is not None
        self._rows = rows
        if features is not None and problem.extra.stored_columns is not None:
            self._rows = FeatureRows(rows, features, problem.extra.stored_columns, settings.dtype)
        in_tiles = prepared.basis.all_rows or settings.solver.learns_centres
        in_tiles = in_tiles or not settings.basis.has_blocks or problem.extra.computes_blocks
        self._whole = not in_tiles
        # Inner products of rows are not in the kernel block of a rank.
        products = settings.solver.row_products and prepared.basis.all_rows
        self._needs_left = window_of(prepared, memory) > 1
        self._needs_rows = self._needs_left or settings.solver.needs_rows or products
        groups = comm.across
        self._group = None if groups.size == 1 else GroupRows(groups.rank, groups.size, whole=self._needs_left)
        self._solver, self._loss = settings.solver, settings.loss
        self._blocks = keep_blocks(memory, settings, xp)
        self._uploads = Uploads(xp)
        self._on_host = memory.rows_on_host
        keeps, reshuffle = memory.keeps_rows and not self._stored, self.plan.reshuffle
        on_device = keeps and not self._on_host and self._group is None and xp is not np
        self._placed = self._shared.agreed(on_device and self._rows.blocks_on(xp) is not None, self._rows)
        on_device = on_device and (reshuffle or self._placed)
        self._batches: dict[int, Batch] | None = {} if keeps and not reshuffle and not on_device else None
        self._kept_rows = RowCache(self._rows) if keeps and reshuffle and (self._on_host or xp is np) else None
        self._device_rows = DeviceRowCache(self._rows.n_rows, xp) if on_device else None
        self.extremes = Extremes(prepared.sizes)
        self._memory: Array | None = None
        self._failure_reported = False

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the epoch's batches from number `start` of its order on, with their kernel block where needed.

        A block belongs to the caller until the next batch is requested.
        """
        n = self.plan.n_batches
        try:
            for sweep in range(start // n, self._solver.sweeps(epoch, self._loss)):
                yield from self._sweep(epoch + (sweep << _SWEEPS), max(0, start - sweep * n))
        finally:
            self._memory = None

    def _sweep(self, number: int, start: int) -> Iterator[Batch]:
        """Yield the batches of one pass over the rows in the order with this number."""
        order = self.plan.order(number)[start:].tolist()
        self._blocks.begin(order)
        if self._blocks.failed and not self._failure_reported:
            self._failure_reported = True
            self._emit(StageFinished("kept blocks", 0.0, "the disk is full: the other blocks are computed again"))
        if self._device_rows is not None and not self._device_rows.is_full:
            self._fill(self._device_rows)
        kept = self._batches
        if kept is not None and all(index in kept for index in order):
            for index, arrived in begun_ahead(((index, self._begin(kept[index])) for index in order), self._ahead):
                batch = self._with_rows(kept[index], arrived()[0])
                yield replace(self._with_block(index, batch), last=index == order[-1])
                del batch, arrived  # frees its rows before others arrive
        elif self._device_rows is not None and self._device_rows.is_full:
            for index, batch in self._timed(self._device_rows.batches(self.plan, number, start)):
                yield self._with_block(index, batch)
        else:
            yield from self._read(number, start)

    def _fill(self, cache: DeviceRowCache) -> None:
        """Put all rows on the GPU before the first batch, where they lie there or in memory: steps hide no reading."""
        rows, fields = self._rows, row_fields(self._rows)
        blocks = rows.blocks_on(self._xp) if self._placed else None
        if blocks is None:
            if not rows.in_memory:
                return
            pieces = even_slices(rows.n_rows, max(self.plan.batch_size, _FILLED_BYTES // rows.row_bytes))
            blocks = (rows.read(piece.start, piece.stop, fields) for piece in pieces)
        items = numbered(blocks)
        cache.begin(whole=True)
        for (item, found), arrived in begun_ahead(map(self._encode, self._timed(items)), self._uploads.ahead):
            excess = self.extremes.observe(item.index, found, item.positions)
            cache.add(self._batch(item, excess, arrived, last=False), found)

    @property
    def _ahead(self) -> int:
        return self._uploads.ahead if self._on_host else 0

    def _begin(self, kept: Batch) -> Arrived:
        """Begin the upload of the rows of a cached batch, where they are cached in host memory."""
        rows = kept.X if self._group is None or not self._group.whole else kept.all_features
        return self._uploads.begin(rows) if self._on_host else lambda: (rows,)

    def _with_rows(self, batch: Batch, X: Array | None) -> Batch:
        return replace(batch, X=X) if self._group is None else self._group.with_rows(batch, X)

    def close(self) -> None:
        """Release cached blocks, and their file."""
        self._uploads.close()
        self._blocks.close()

    def _read(self, sweep: int, start: int) -> Iterator[Batch]:
        """Yield batches as they are read, and cache them where the plan has room for all rows."""

        def wanted(index: int) -> bool:
            return self._stored or self._needs_rows or not self._blocks.has(index)

        fields, empty = row_fields(self._rows), self._uploads.empty
        sampling = self._prepared.sampling
        drawn = None if sampling is None else sampling.rows(self._rows, sweep)
        rows = self._rows if drawn is None else drawn
        keeping = self._kept_rows
        if keeping is not None:
            rows = keeping.begin(whole=start == 0)
        if self._device_rows is not None:
            self._device_rows.begin(whole=start == 0)
        if self._stored or (keeping is not None and keeping.is_full):  # a rank's own columns, or memory
            stream = iter_batches(
                rows, self.plan, sweep, fields=fields, start=start, wanted_X=wanted, readers=self._readers, empty=empty
            )
        else:
            stream = self._shared.batches(rows, self.plan, sweep, fields, start, wanted, empty)
        if sampling is not None and drawn is not None:
            stream = _renumbered(stream, sampling, drawn)
        count = start
        try:
            encoded = map(self._encode, self._timed(stream))
            for (item, found), arrived in begun_ahead(encoded, self._uploads.ahead):
                count += 1
                excess = self.extremes.observe(item.index, found, item.positions if sampling is None else None)
                index, batch = item.index, self._batch(item, excess, arrived, count == self.plan.n_batches)
                if keeping is not None:
                    keeping.add(item)
                if self._device_rows is not None and self._device_rows.is_filling:
                    self._device_rows.add(batch, found)
                if self._batches is not None:
                    self._batches[index] = self._with_rows(batch, self._needed(item)) if self._on_host else batch
                del item, arrived  # frees its window before the next one is read
                yield self._with_block(index, batch)
                del batch
        finally:
            close(stream)

    def _timed(self, stream: Iterator[Item]) -> Iterator[Item]:
        """Yield from the stream; the time spent waiting for it counts as reading."""
        while True:
            with self._reading():
                item = next(stream, None)
            if item is None:
                return
            yield item
            del item

    def _encode(self, item: RowBatch) -> tuple[tuple[RowBatch, FloatArray | None], Arrived]:
        """Return rows as read, the excess of each over the rows that step sizes were measured on, and their upload.

        The upload brings X, targets and weights in the form of the solver.
        """
        block, targets = item.block, self._prepared.targets
        assert block.y is not None
        sampling = self._prepared.sampling
        weight = targets.weight(block) if sampling is None else sampling.weight(block)
        found = self.extremes.each(None if self._stored else block.X, weight)
        X, y = self._needed(item), block.y
        if X is not None and not self._stored and self._xp is not np:
            self._problem.part.kernel.check_rows(X)
        if self._group is not None:
            part = self._group.part(len(item.positions))
            y, weight = y[part], None if weight is None else weight[part]
        return (item, found), self._uploads.begin(X, targets.encode(y), weight)

    def _needed(self, item: RowBatch) -> HostArray | None:
        """Return those of the rows as read that this rank needs."""
        X = item.block.X
        return X if self._group is None else self._group.needed(X, len(item.positions))

    def _batch(self, item: RowBatch, excess: float, arrived: Arrived, last: bool) -> Batch:
        """Return rows in the form of the solver, without a kernel block."""
        X, y, weight = arrived()
        if self._group is not None:
            return replace(self._group.batch(X, y, weight, item.positions, excess), last=last)
        return Batch(X=X, y=y, weight=weight, positions=item.positions, phi=None, last=last, excess=excess)

    def _with_block(self, index: int, batch: Batch) -> Batch:
        """Return the batch with its kernel block where steps need one, and its prepared rows where they need these."""
        if self._stored:
            return replace(batch, phi=batch.X)
        if self._blocks.has(index):
            with self._reading():
                return replace(batch, phi=self._blocks.get(index))
        part = self._problem.part
        shape = batch.y.shape[0], part.points.size
        out = self._blocks.place(shape)
        if out is None and not self._whole:
            return batch
        left = part.kernel.left(batch.X, part.points) if self._needs_left else None
        phi = part.block(batch.X if left is None else left, self._overwritten(shape) if out is None else out)
        if out is not None:
            self._blocks.put(index, out)
        return replace(batch, phi=phi, left=left)

    def _overwritten(self, shape: tuple[int, int]) -> Array:
        """Return memory for a block, that of the block before where it is large enough.

        The system fills newly allocated memory with zeros first, which takes up to a fifth of a step.
        """
        size = shape[0] * shape[1]
        if self._memory is None or self._memory.size < size:
            self._memory = None  # freed before the new one is allocated
            self._memory = self._xp.empty(size, self._problem.part.points.dtype)
        return self._memory[:size].reshape(shape)


def _renumbered(stream: Iterator[RowBatch], sampling: Sampling, drawn: DrawnRows) -> Iterator[RowBatch]:
    """Yield batches of drawn rows, with the numbers that these have for the solver."""
    try:
        for item in stream:
            yield replace(item, positions=sampling.positions(drawn, item.positions))
            del item
    finally:
        close(stream)


def close(stream: Iterator[Any]) -> None:
    """Close a generator now, and with it the threads that read ahead for it."""
    done: Callable[[], None] = getattr(stream, "close", lambda: None)
    done()
