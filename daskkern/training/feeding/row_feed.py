"""The batches of a rank with distributed rows: its own rows of each, prefetched in the order of the store."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import starmap
from types import ModuleType

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.shares import Shares
from daskkern.backend.uploads import Arrived, Uploads, begun_ahead
from daskkern.basis import KernelPart
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.data.rows.rows import Fields, RowBlock, Rows, row_fields
from daskkern.data.rows.sweep import SweepPlan
from daskkern.events import Listener, StageFinished
from daskkern.solvers import Batch
from daskkern.training.feeding.block_cache import keep_blocks
from daskkern.training.feeding.targets import Targets
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.settings import FitSettings

AHEAD = 2
"""Batches read ahead of the one in use, by as many threads."""


@dataclass(frozen=True)
class _Share:
    """A rank's rows of one batch."""

    index: int
    pieces: tuple[slice, ...]
    total_size: int
    last: bool

    @property
    def rows(self) -> slice:
        """The range of all pieces, which are consecutive."""
        return slice(self.pieces[0].start, self.pieces[-1].stop) if self.pieces else slice(0, 0)


class RowFeed:
    """The source of batches on one rank for a solver whose rows are distributed.

    Parameters
    ----------
    memory : MemoryPlan
        Decides what is cached: rows, and kernel values of the rank's own rows with all columns.
    plan, targets : SweepPlan, Targets
    settings : FitSettings
    rows : Rows
        The training rows.
    whole : KernelPart or None
        All columns, for cached kernel values; None caches none.
    comm : TimedCommunicator
        Determines which rows are the rank's, and measures the time spent waiting for them.
    emit : callable
    xp : module
    shares : tuple of int
        Those of the ranks in the rows of every batch; () where they are equal.
    """

    def __init__(
        self,
        memory: MemoryPlan,
        plan: SweepPlan,
        targets: Targets,
        settings: FitSettings,
        rows: Rows,
        whole: KernelPart | None,
        comm: TimedCommunicator,
        emit: Listener,
        xp: ModuleType,
        shares: Shares = (),
    ) -> None:
        self.plan = plan
        self._settings, self._targets, self._rows, self._whole = settings, targets, rows, whole
        self._uploads = Uploads(xp)
        self._emit, self._reading = emit, comm.reading
        self._shares = [self._share(index, comm, shares) for index in range(plan.n_batches)]
        self._blocks = keep_blocks(memory if whole is not None else replace(memory, kept=0, disk=0), settings, xp)
        self._kept: dict[int, Batch] | None = {} if memory.keeps_rows else None
        self._on_host = memory.rows_on_host
        self._failure_reported = False

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the rank's rows of the batches of epoch number `epoch`, from batch number `start` of it on."""
        sweeps, n = self._settings.solver.sweeps(epoch, self._settings.loss), self.plan.n_batches
        for sweep in range(start // n, sweeps):
            yield from self._sweep(self._shares[max(0, start - sweep * n) :])

    def close(self) -> None:
        """Release cached kernel values, and their file."""
        self._uploads.close()
        self._blocks.close()

    def _share(self, index: int, comm: Communicator, shares: Shares) -> _Share:
        pieces = tuple(self.plan.pieces(index, comm.rank, comm.size, shares))
        return _Share(index, pieces, int(self.plan.batch_sizes[index]), index == self.plan.n_batches - 1)

    def _sweep(self, shares: list[_Share]) -> Iterator[Batch]:
        self._blocks.begin([share.index for share in shares])
        if self._blocks.failed and not self._failure_reported:
            self._failure_reported = True
            self._emit(StageFinished("kept blocks", 0.0, "the disk is full: the other blocks are computed again"))
        pending: deque[tuple[_Share, Future[RowBlock] | None]] = deque()
        with ThreadPoolExecutor(AHEAD, "daskkern-read") as pool:

            def begin_reading(share: _Share) -> Future[RowBlock]:
                return pool.submit(copy_context().run, self._read, share) if len(shares) > 1 else self._read_now(share)

            def begun() -> Iterator[tuple[_Share, Batch, Arrived]]:
                for share in shares:
                    known = self._kept is not None and share.index in self._kept
                    pending.append((share, None if known else begin_reading(share)))
                    if len(pending) > AHEAD:
                        yield self._begin(*pending.popleft())
                while pending:
                    yield self._begin(*pending.popleft())

            try:
                yield from starmap(self._batch, begun_ahead(begun(), self._uploads.ahead))
            finally:
                for _, future in pending:
                    if future is not None:
                        future.cancel()

    def _read_now(self, share: _Share) -> "Future[RowBlock]":
        """Read the only batch in this thread: there is nothing to do meanwhile."""
        done: Future[RowBlock] = Future()
        with self._reading():
            done.set_result(self._read(share))
        return done

    def _read(self, share: _Share) -> RowBlock:
        fields = row_fields(self._rows)
        if self._blocks.has(share.index):
            fields &= ~Fields.X
        return self._rows.read(share.rows.start, share.rows.stop, fields)

    def _begin(self, share: _Share, reading: "Future[RowBlock] | None") -> tuple[_Share, Batch, Arrived]:
        """Return a batch in host memory or as cached, and the upload of its X, targets and weights to the device."""
        if reading is not None:
            with self._reading():
                block = reading.result()
            batch = self._encode(share, block)
            return share, batch, self._uploads.begin(batch.X, batch.y, batch.weight)
        assert self._kept is not None
        batch = self._kept[share.index]
        if not self._on_host:
            return share, batch, lambda: (batch.X, batch.y, batch.weight)
        return share, batch, self._uploads.begin(batch.X, batch.y, batch.weight)

    def _batch(self, share: _Share, begun: Batch, arrived: Arrived) -> Batch:
        X, y, weight = arrived()
        batch = replace(begun, X=X, y=y, weight=weight)
        if self._kept is not None and share.index not in self._kept:
            self._kept[share.index] = begun if self._on_host else batch
        return replace(batch, phi=self._block(share, batch))

    def _encode(self, share: _Share, block: RowBlock) -> Batch:
        """Return rows in the form of the solver, in host memory and without kernel values."""
        assert block.y is not None
        if block.X is not None and self._uploads.ahead:
            self._settings.kernel.check_rows(block.X)
        first = share.rows.start
        return Batch(
            X=block.X,
            y=self._targets.encode(block.y),
            weight=self._targets.weight(block),
            positions=np.arange(first, share.rows.stop),
            phi=None,
            last=share.last,
            parts=tuple(slice(piece.start - first, piece.stop - first) for piece in share.pieces),
            total_size=share.total_size,
        )

    def _block(self, share: _Share, batch: Batch) -> Array | None:
        """Return the kernel values of the rank's rows where they are cached, or will be."""
        if self._whole is None or not share.pieces:
            return None
        if self._blocks.has(share.index):
            with self._reading():
                return self._blocks.get(share.index)
        out = self._blocks.place((share.rows.stop - share.rows.start, self._whole.points.size))
        if out is None:
            return None
        for part in batch.parts:  # piece by piece, so that not all prepared left sides are in memory at once
            assert batch.X is not None
            self._whole.block(batch.X[part], out[part])
        self._blocks.put(share.index, out)
        return out
