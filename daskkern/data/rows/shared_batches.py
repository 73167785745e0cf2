"""Batches that are read once: one rank reads each window and sends its batches to the others.

The ranks read windows in turn. A rank reads its next window while the ones before are in use, so that W ranks read at
the rate of W; and it sends batches a little ahead of the one in use. A thread of each rank sends and receives.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace

from daskkern.backend.communicator import Channel
from daskkern.data.rows.batch_plan import BatchPlan, window_positions
from daskkern.data.rows.batches import RowBatch, Visit, cut_window, read_window, visits_of
from daskkern.data.rows.packed_rows import PackedRows
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows
from daskkern.errors import SpecError

AHEAD = 2
"""Messages that are sent ahead of the one in use."""
MESSAGE_BYTES = 1 << 20
"""Small batches are sent together, as many as fit. At least one is."""


def shared_batches(
    channel: Channel,
    rows: Rows,
    plan: BatchPlan,
    epoch: int,
    *,
    fields: Fields = ALL,
    start: int = 0,
    wanted_X: Callable[[int], bool] | None = None,
) -> Iterator[RowBatch]:
    """Yield what :func:`daskkern.data.rows.batches.iter_batches` yields, bit for bit; a window is read by one rank.

    Every rank calls it with the same arguments, and takes batches at about the same pace: a rank sends a little ahead
    of what its own caller takes.

    Parameters
    ----------
    channel : Channel
        A new one, which is closed at the end.
    rows, plan, epoch, fields, start, wanted_X
        As there; `wanted_X` must say the same on all ranks.

    Raises
    ------
    CommunicatorClosedError
        When another rank has ended, for example because its window could not be read.

    Notes
    -----
    A rank holds at most two windows that it has read, in the dtype of ``rows.encoded()``, one chunk, and on its way to
    the caller :data:`AHEAD` messages and the one in use, of 1 MB or one batch each. The threads end when the iterator
    is exhausted, closed, collected or raises; their errors are raised here.
    """
    if plan.n_rows != rows.n_rows:
        raise SpecError(f"the batch plan is for {plan.n_rows} rows, but there are {rows.n_rows}")
    visits = list(visits_of(plan, epoch, fields, start, wanted_X))
    exchange = _Exchange(channel, rows, plan, fields, visits)
    try:
        exchange.start()
        for _ in range(exchange.n_messages):
            batches = exchange.take()
            while batches:
                yield batches.popleft()
    finally:
        exchange.close()


def messages_of(plan: BatchPlan, visit: Visit, row_bytes: int) -> list[Visit]:
    """Return the parts of a visit whose batches are sent together."""
    most = MESSAGE_BYTES // max(1, row_bytes)
    groups: list[list[int]] = []
    filled = 0
    for batch in visit.batches:
        part = plan.slice_in_window(batch)
        if not groups or filled + part.stop - part.start > most:
            groups.append([])
            filled = 0
        groups[-1].append(batch)
        filled += part.stop - part.start
    return [replace(visit, batches=tuple(group)) for group in groups]


class _Exchange:
    """The thread of one rank that sends the windows of the rank and receives those of others, and what it brings."""

    def __init__(self, channel: Channel, rows: Rows, plan: BatchPlan, fields: Fields, visits: list[Visit]) -> None:
        self._channel, self._plan, self._fields = channel, plan, fields
        self._rows, self._encoded = rows, rows.encoded()
        self._format = PackedRows.of(self._encoded, fields)
        row_bytes = rows.n_features * self._encoded.dtype.itemsize if not rows.is_sparse else rows.row_bytes
        self._visits = [messages_of(plan, visit, row_bytes) for visit in visits]
        self._mine = iter(visits[channel.rank :: channel.size])
        self.n_messages = sum(map(len, self._visits))
        self._brought: deque[deque[RowBatch] | BaseException] = deque()
        self._sent, self._taken = 0, 0  # messages: by any rank, and by the caller
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._reader = ThreadPoolExecutor(1, "daskkern-read")
        self._reading: Future[RowBlock] | None = None
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name="daskkern-share", daemon=True
        )

    def start(self) -> None:
        self._read_next()
        self._thread.start()

    def take(self) -> deque[RowBatch]:
        """Return the batches of the next message; wait for them."""
        with self._changed:
            if not self._brought:
                self._channel.starving(True)
                self._changed.wait_for(lambda: self._brought)
                self._channel.starving(False)
            self._taken += 1
            self._changed.notify_all()
            found = self._brought.popleft()
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the threads, whatever they wait for."""
        self._stop.set()
        self._channel.close()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._brought.clear()

    def _run(self) -> None:
        try:
            for number, messages in enumerate(self._visits):
                owner = number % self._channel.size
                going_on = self._send(messages) if owner == self._channel.rank else self._receive(messages, owner)
                if not going_on:
                    return
        except BaseException as error:  # raised where the batches are taken
            self._bring(error)

    def _send(self, messages: list[Visit]) -> bool:
        """Send the batches of this rank's window in time; return False once no more are needed."""
        block = self._window()
        for message in messages:
            with self._changed:
                self._changed.wait_for(lambda: self._stop.is_set() or self._sent < self._taken + AHEAD)
            if self._stop.is_set():
                return False
            batches = list(cut_window(self._plan, message, block))
            self._channel.send([part for batch in batches for part in self._format.pack(batch.block)])
            self._bring(deque(replace(batch, block=self._decoded(batch.block)) for batch in batches))
        return True

    def _receive(self, messages: list[Visit], owner: int) -> bool:
        """Receive the batches of another rank's window; return False once no more are needed."""
        for message in messages:
            data = self._channel.receive(owner)
            if self._stop.is_set():
                return False
            positions = window_positions(self._plan, message.window, message.epoch)
            cuts = [self._plan.slice_in_window(index) for index in message.batches]
            sizes = [
                (cut.stop - cut.start, index in message.with_features)
                for index, cut in zip(message.batches, cuts, strict=True)
            ]
            blocks = map(self._decoded, self._format.unpack(data, sizes))
            self._bring(
                deque(
                    RowBatch(index, positions[cut], block)
                    for index, cut, block in zip(message.batches, cuts, blocks, strict=True)
                )
            )
        return True

    def _decoded(self, block: RowBlock) -> RowBlock:
        return block if block.X is None else replace(block, X=self._rows.decoded(block.X))

    def _bring(self, found: "deque[RowBatch] | BaseException") -> None:
        with self._changed:
            self._sent += 1
            self._brought.append(found)
            self._changed.notify_all()

    def _window(self) -> RowBlock:
        """Return the next of this rank's windows, and begin to read the one after it."""
        assert self._reading is not None
        block = self._reading.result()
        self._read_next()
        return block

    def _read_next(self) -> None:
        visit = next(self._mine, None)
        self._reading = None
        if visit is not None:  # rows may belong to a worker, which its threads identify by their context
            context, stop = copy_context(), self._stop
            self._reading = self._reader.submit(
                context.run, read_window, self._encoded, self._plan, visit, self._fields, stop
            )
