"""The choice between reading every window on each rank and reading it once for all, as set or as measured."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import HostArray
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import RowBatch, iter_batches
from daskkern.data.rows.packed_rows import PackedRows
from daskkern.data.rows.rows import Fields, NewArray, Rows, take
from daskkern.data.rows.shared_batches import shared_batches
from daskkern.events import Listener, StageFinished
from daskkern.training.run.settings import FitSettings

SAMPLE_BYTES = 4 << 20
"""Bytes of decoded features whose reading and sending is timed, or one part of a window if that is more."""


@dataclass(frozen=True)
class ReadingTimes:
    """Seconds of a sample of rows on the slowest rank: read by all ranks at once, and sent by one to all others.

    All ranks have the same numbers.
    """

    each: float
    sent: float
    n_ranks: int

    @property
    def once(self) -> float:
        """Seconds where the ranks read in turn, at the same time, and every rank receives all rows."""
        return self.each / self.n_ranks + self.sent

    @property
    def once_pays(self) -> bool:
        return self.once < self.each


class SharedReading:
    """How the ranks of a fit whose columns are distributed read rows: each for itself, or in turn for all.

    Parameters
    ----------
    comm : TimedCommunicator
    settings : FitSettings
    blocks_differ : bool
        Whether ranks may need X of different batches, because they cache kernel blocks.
    emit : callable
        Takes the event that reports the choice.
    readers : int
        Threads that read a window, where every rank reads for itself.
    """

    def __init__(
        self, comm: TimedCommunicator, settings: FitSettings, blocks_differ: bool, emit: Listener, readers: int = 1
    ) -> None:
        comm, self._readers = comm.whole, readers
        self._comm, self._way, self._blocks_differ, self._emit = comm, settings.reading, blocks_differ, emit
        self._once: bool | None = False if comm.size == 1 or settings.reading == "each" else None

    def agreed(self, places: bool, rows: Rows) -> bool:
        """Return whether all ranks put their rows on their GPUs by themselves. A collective where rows lie on GPUs.

        Others read in turn for all, or find out whether they do: none may be missing. Several ranks read a store once
        for all.
        """
        if self._comm.size == 1:
            return places
        return rows.on_gpus and int(np.asarray(self._comm.allreduce(np.array([not places], np.int64)))[0]) == 0

    def batches(
        self,
        rows: Rows,
        plan: BatchPlan,
        epoch: int,
        fields: Fields,
        start: int,
        wanted_X: Callable[[int], bool],
        empty: NewArray = np.empty,
    ) -> Iterator[RowBatch]:
        """Yield the batches of a pass from number `start` on, with X where this rank needs it. A collective.

        They are the same, bit for bit, whichever rank reads them. Where each reads for itself, `empty` makes the arrays
        that it reads into.
        """
        if self._once is None:
            self._once = self._choose(rows, plan, epoch, fields)
        channel = self._comm.channel() if self._once else None
        if channel is None:
            return iter_batches(
                rows, plan, epoch, fields=fields, start=start, wanted_X=wanted_X, readers=self._readers, empty=empty
            )
        someone = self._wanted_by_any(plan, wanted_X)
        shared = shared_batches(channel, rows, plan, epoch, fields=fields, start=start, wanted_X=someone)
        return shared if someone is None else _without_features(shared, wanted_X)

    def _choose(self, rows: Rows, plan: BatchPlan, epoch: int, fields: Fields) -> bool:
        if self._way == "once":
            self._emit(StageFinished("reading", 0.0, f"each window by one of {self._comm.size} ranks, as requested"))
            return True
        if plan.n_windows == 1:  # a short epoch, during which nothing could be read ahead
            return False
        begun = time.perf_counter()
        times = reading_times(self._comm, rows, plan, epoch, fields)
        if times is None:
            return False
        self._emit(StageFinished("reading", time.perf_counter() - begun, _described(times)))
        return times.once_pays

    def _wanted_by_any(self, plan: BatchPlan, wanted_X: Callable[[int], bool]) -> Callable[[int], bool] | None:
        """Return which batches any rank needs X of, None for all."""
        if not self._blocks_differ:
            return None
        mine = np.array([wanted_X(index) for index in range(plan.n_batches)], np.int64)
        anyone = self._comm.allreduce(mine) > 0
        return lambda index: bool(anyone[index])


def reading_times(
    comm: TimedCommunicator, rows: Rows, plan: BatchPlan, epoch: int, fields: Fields
) -> ReadingTimes | None:
    """Measure on rows of the first window of an epoch; None where the ranks have no channel. A collective."""
    channel = comm.channel()
    if channel is None:
        return None
    try:
        window, encoded = int(plan.windows(epoch)[0]), rows.encoded()
        parts = plan.parts_of(window, epoch)
        count = max(1, SAMPLE_BYTES // (plan.part_rows * rows.row_bytes))
        take(encoded, _rows_of(plan, parts[:1])[:1], fields)  # opens files
        positions = _rows_of(plan, parts[1 : 1 + count] if parts.size > 1 else parts)
        shape = PackedRows.of(encoded, fields)
        comm.barrier()
        with comm.reading():
            begun = time.perf_counter()
            block = take(encoded, positions, fields)
            rows.decoded(block.X)
            each = time.perf_counter() - begun
        comm.barrier()
        with comm.reading():
            begun = time.perf_counter()
            if comm.rank == 0:
                channel.send(shape.pack(block))
            else:
                (received,) = shape.unpack(channel.receive(0), [(positions.size, True)])
                rows.decoded(received.X)
            sent = time.perf_counter() - begun
        slowest = np.stack([np.asarray(part) for part in comm.allgather(np.array([each, sent]))]).max(axis=0)
    finally:
        channel.close()
    return ReadingTimes(float(slowest[0]), float(slowest[1]), comm.size)


def _rows_of(plan: BatchPlan, parts: HostArray) -> HostArray:
    """Return the positions of the rows of parts (k,), in an order in which no two of them follow each other."""
    rows = plan.rows_of(parts)
    return np.concatenate([rows[::2], rows[1::2]])


def _without_features(batches: Iterator[RowBatch], wanted_X: Callable[[int], bool]) -> Iterator[RowBatch]:
    """Yield batches, without X of those that this rank does not need."""
    for batch in batches:
        yield batch if wanted_X(batch.index) else replace(batch, block=replace(batch.block, X=None))
        del batch


def _described(times: ReadingTimes) -> str:
    once, each = f"{1e3 * times.once:.3g} ms", f"{1e3 * times.each:.3g} ms"
    if times.once_pays:
        return f"each window by one of {times.n_ranks} ranks: {once} for a sample of rows, {each} if all read it"
    return f"each window by all {times.n_ranks} ranks: {each} for a sample of rows, {once} if one reads and sends it"
