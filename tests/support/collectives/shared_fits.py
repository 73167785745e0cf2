"""Ranks that read rows of a store, by turns or each for itself. In a module of its own, which the workers import."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from zarr.storage import LocalStore

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import ALL, Fields, RowBlock
from daskkern.data.rows.shared_batches import shared_batches
from daskkern.data.storage.local_chunks import LocalChunks
from daskkern.data.storage.store_rows import StoreRows
from daskkern.training.run.rank import run_rank
from daskkern.training.run.rank_task import RankTask


@dataclass(frozen=True)
class Read:
    """What a rank had in the end: its coefficients, and the bytes of chunks of X that its process read."""

    coef: HostArray
    bytes_read: int


def fitted(comm: Communicator, task: RankTask, context: RankContext) -> Read | Regroup:
    """Run a rank of a fit, and count what its process reads."""
    sizes: list[int] = []
    get, read = LocalStore.get, LocalChunks.read

    async def counted(self: LocalStore, key: str, *arguments: Any, **named: Any) -> Any:
        found = await get(self, key, *arguments, **named)
        if found is not None and key.startswith("X/c/"):
            sizes.append(len(found))
        return found

    def counted_directly(self: LocalChunks, first: int, rows: HostArray) -> None:
        read(self, first, rows)
        sizes.append(rows.nbytes * (Path(self.folder).name == "X"))

    with mock.patch.object(LocalStore, "get", counted), mock.patch.object(LocalChunks, "read", counted_directly):
        result = run_rank(comm, task, context)
    return result if isinstance(result, Regroup) else Read(result.coef, sum(sizes))


def fitted_by_one_who_dies(comm: Communicator, order: tuple[RankTask, str], context: RankContext) -> Read | Regroup:
    """Run a rank of a fit; the process that comes to read the 30th part of a window is killed, once."""
    task, flag = order
    reads, read = [0], StoreRows.read

    def deadly(self: StoreRows, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        reads[0] += Fields.y in fields
        if reads[0] >= 30 and comm.rank == 1 and not Path(flag).exists():
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, start, stop, fields)

    with mock.patch.object(StoreRows, "read", deadly):
        return fitted(comm, task, context)


class SlowRows(ArrayRows):
    """Rows whose parts take a while, on one rank."""

    pause_s = 0.0

    def read(self, start: int, stop: int, fields: Fields = ALL) -> RowBlock:
        time.sleep(self.pause_s)
        return super().read(start, stop, fields)


def batches_of_slow_ranks(comm: Communicator, pauses: tuple[float, float], context: RankContext) -> list[float]:
    """Go through batches, in step; the last rank reads and works slowly. Return what was seen."""
    X = np.arange(400.0).reshape(200, 2)
    rows, slow = SlowRows(X, X[:, 0], chunk_rows=20), comm.rank == comm.size - 1
    rows.pause_s = pauses[0] if slow else 0.0
    with _stream(comm, rows) as stream:
        seen = []
        for batch in stream:
            time.sleep(pauses[1] if slow and len(seen) == 2 else 0.0)
            assert batch.block.y is not None
            seen.append(float(comm.allreduce(np.array([batch.block.y.sum()]))[0]) / comm.size)
    return seen


def reader_that_is_gone(comm: Communicator, payload: object, context: RankContext) -> int:
    """Wait for rows of rank 0, which has left."""
    X = np.zeros((200, 2))
    if comm.rank == 0:
        return 0
    with _stream(comm, ArrayRows(X, X[:, 0], chunk_rows=20)) as stream:
        return sum(1 for _ in stream)


@contextmanager
def _stream(comm: Communicator, rows: ArrayRows) -> Iterator[Iterator[object]]:
    channel = comm.channel()
    assert channel is not None
    stream = shared_batches(channel, rows, BatchPlan(200, 20, 10, window_rows=40), 1)
    try:
        yield stream
    finally:
        stream.close()  # type: ignore[attr-defined]
