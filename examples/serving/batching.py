"""Requests that arrive together are answered by one product: a queue, and one task that empties it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


class BusyError(Exception):
    """More rows wait than the queue takes."""


@dataclass(frozen=True)
class _Waiting:
    rows: Array
    answer: "asyncio.Future[Array]"


class MicroBatcher:
    """Joins the rows (m, d) of requests and computes their scores (m, c) in one call, outside the event loop.

    A batch is what has arrived while the one before was computed, so that a single request never waits; `most_rows`
    limits it. The products use all cores by themselves: one batch at a time is enough.

    Parameters
    ----------
    scores : callable
        From rows (m, d) to (m, c). What it raises for a batch is raised by the requests that cause it alone.
    most_rows : int
        Rows of a batch, unless one request has more.
    most_waiting : int
        Rows that may wait; further requests raise BusyError.
    """

    def __init__(self, scores: Callable[[Array], Array], most_rows: int = 4096, most_waiting: int = 65536) -> None:
        self._scores, self._most_rows, self._most_waiting = scores, most_rows, most_waiting
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.batches = self.rows = 0

    async def start(self) -> None:
        """Start to answer."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and cancel requests that still wait."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for request in self._waiting:
            request.answer.cancel()

    @property
    def is_running(self) -> bool:
        """Whether requests are answered."""
        return self._task is not None and not self._task.done()

    async def answer(self, rows: Array) -> Array:
        """Return the scores of the rows of one request."""
        if self._waiting and sum(len(request.rows) for request in self._waiting) + len(rows) > self._most_waiting:
            raise BusyError
        request = _Waiting(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._arrived.set()
        return await request.answer

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._next()
            try:
                parts = await asyncio.to_thread(self._scores, np.concatenate([request.rows for request in batch]))
            except Exception:
                await self._one_by_one(batch)
                continue
            self.batches, self.rows = self.batches + 1, self.rows + len(parts)
            start = 0
            for request in batch:
                if not request.answer.done():  # its client may have gone
                    request.answer.set_result(parts[start : start + len(request.rows)])
                start += len(request.rows)

    async def _one_by_one(self, batch: list[_Waiting]) -> None:
        """Answer each request by itself, so that only those with unusable rows fail."""
        for request in batch:
            try:
                found = await asyncio.to_thread(self._scores, request.rows)
            except Exception as error:
                if not request.answer.done():
                    request.answer.set_exception(error)
            else:
                if not request.answer.done():
                    request.answer.set_result(found)

    def _next(self) -> list[_Waiting]:
        """Take the requests of one batch."""
        count, rows = 0, 0
        for request in self._waiting:
            rows += len(request.rows)
            if count and rows > self._most_rows:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        if not self._waiting:
            self._arrived.clear()
        return batch
