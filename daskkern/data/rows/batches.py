"""Batches of rows with prefetching: two windows at a time, each read by any number of threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.tiles import slices
from daskkern.data.rows.batch_plan import BatchPlan, places_in_window, window_positions
from daskkern.data.rows.rows import ALL, Fields, Gathering, NewArray, RowBlock, Rows
from daskkern.errors import SpecError

__all__ = ["BatchPlan", "RowBatch", "Visit", "cut_window", "iter_batches", "numbered", "read_window", "visits_of"]

_THREADS = 2  # measured: two threads hide the decoding of compressed chunks behind the step; more bring no gain


@dataclass(frozen=True)
class RowBatch:
    """One batch: its number in the plan, the global positions of its rows, and the rows, in that order.

    A dense block is a view of its window: to retain a few rows, copy them.
    """

    index: int
    positions: IntArray
    block: RowBlock


@dataclass(frozen=True)
class Visit:
    """One window of an epoch: its remaining batches, in order, and those whose X is needed."""

    epoch: int
    window: int
    batches: tuple[int, ...]
    with_features: frozenset[int]


def visits_of(
    plan: BatchPlan, epoch: int, fields: Fields, start: int = 0, wanted_X: Callable[[int], bool] | None = None
) -> Iterator[Visit]:
    """Yield the windows of an epoch from batch number `start` of its order on; `wanted_X` as in :func:`iter_batches`.

    Raises
    ------
    SpecError
        At the first of them, when `start` is not a number of batches.
    """
    if not 0 <= start <= plan.n_batches:
        raise SpecError(f"got start {start} of {plan.n_batches} batches; expected 0 or more, and at most all")
    order = plan.order(epoch)[start:].tolist()
    for window, group in groupby(order, plan.window_of):
        batches = tuple(group)
        wanted = [b for b in batches if wanted_X is None or wanted_X(b)] if Fields.X in fields else []
        yield Visit(epoch, window, batches, frozenset(wanted))


def iter_batches(
    rows: Rows,
    plan: BatchPlan,
    epoch: int,
    *,
    fields: Fields = ALL,
    prefetch: int = 2,
    start: int = 0,
    wanted_X: Callable[[int], bool] | None = None,
    readers: int = 1,
    empty: NewArray = np.empty,
) -> Iterator[RowBatch]:
    """Yield the batches of one epoch, in the order of ``plan.order(epoch)``.

    Parameters
    ----------
    rows : Rows
        The rows that `plan` was made for.
    fields : Fields
        The fields to read.
    prefetch : int
        Windows read ahead of the one in use, by at most two threads. With 0, reading happens in this thread.
    start : int
        Batches of the epoch's order to skip, to continue an interrupted epoch.
    wanted_X : callable or None
        Called with each batch number, in this thread, before its window is read: returns whether the batch needs X.
        For other batches ``block.X`` is None, and X of a window without such a batch is not read. None means all.
    readers : int
        Threads that read parts of one window at the same time, where windows are read ahead.
    empty : callable
        Makes the arrays that dense features of a window are read into. It is called by the threads that read.

    Notes
    -----
    Holds at most ``prefetch + 1`` windows and one chunk per thread, and the window of a batch that the caller still
    holds. The threads end when the iterator is exhausted, closed, collected or raises; their errors are raised here.
    """
    if plan.n_rows != rows.n_rows:
        raise SpecError(f"the batch plan is for {plan.n_rows} rows, but there are {rows.n_rows}")
    if prefetch < 0 or not 0 <= start <= plan.n_batches:
        raise SpecError(f"got prefetch {prefetch} and start {start} of {plan.n_batches} batches; expected 0 or more")
    visits = visits_of(plan, epoch, fields, start, wanted_X)
    if prefetch == 0:
        return _serial(rows, plan, visits, fields, empty)
    return _ahead(rows, plan, visits, fields, prefetch, readers, empty)


def _serial(
    rows: Rows, plan: BatchPlan, visits: Iterator[Visit], fields: Fields, empty: NewArray
) -> Iterator[RowBatch]:
    running = threading.Event()
    for visit in visits:
        yield from cut_window(plan, visit, read_window(rows, plan, visit, fields, running, empty=empty))


def _ahead(
    rows: Rows,
    plan: BatchPlan,
    visits: Iterator[Visit],
    fields: Fields,
    prefetch: int,
    readers: int,
    empty: NewArray,
) -> Iterator[RowBatch]:
    stop = threading.Event()
    pending: deque[tuple[Visit, Future[RowBlock]]] = deque()
    helpers = ThreadPoolExecutor(readers, thread_name_prefix="daskkern-read-part") if readers > 1 else None
    pool = ThreadPoolExecutor(min(prefetch, _THREADS), thread_name_prefix="daskkern-read")

    def fill(limit: int) -> None:
        while len(pending) < limit and (visit := next(visits, None)) is not None:
            # Rows may belong to a worker, which its threads identify by their context.
            read = partial(read_window, rows, plan, visit, fields, stop, helpers, readers, empty)
            reading = pool.submit(copy_context().run, read)
            pending.append((visit, reading))

    try:
        fill(prefetch)
        while pending:
            visit, future = pending.popleft()
            block = future.result()
            del future  # holds the block, too
            fill(prefetch)
            yield from cut_window(plan, visit, block)
            del block
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        if helpers is not None:
            helpers.shutdown(wait=True, cancel_futures=True)


def read_window(
    rows: Rows,
    plan: BatchPlan,
    visit: Visit,
    fields: Fields,
    stop: threading.Event,
    helpers: ThreadPoolExecutor | None = None,
    readers: int = 1,
    empty: NewArray = np.empty,
) -> RowBlock:
    """Read a window part by part, each row straight to its place in the permuted window.

    The block is incomplete when `stop` was set meanwhile. With `helpers`, their threads read `readers` shares of it.
    """
    if not visit.with_features:
        fields &= ~Fields.X
    slots = places_in_window(plan, visit.window, visit.epoch)
    gathering = Gathering(rows, len(slots), fields, empty)

    def read(share: Share) -> None:
        places = slots[share.first : share.first + share.n_rows]
        for found, part in _parts(rows, plan, visit, fields, share):
            gathering.put(places[found], part)
            if stop.is_set():
                break  # the block will not be used

    shares = _shares(plan, visit, readers)
    if helpers is None or len(shares) == 1:
        for share in shares:
            read(share)
    else:
        for done in [helpers.submit(copy_context().run, read, share) for share in shares]:
            done.result()
    return gathering.block()


@dataclass(frozen=True)
class Share:
    """Parts of a window that one thread reads.

    Attributes
    ----------
    parts : (k,) int64
        Their numbers in the plan, ascending.
    first, n_rows : int
        The place of their first row in the window's storage order, and how many they have.
    """

    parts: IntArray
    first: int
    n_rows: int


def _shares(plan: BatchPlan, visit: Visit, count: int) -> list[Share]:
    """Return the parts of a window in at most `count` shares of about equal size."""
    parts = plan.parts_of(visit.window, visit.epoch)
    edges = np.cumsum([0, *(last - first for first, last in map(plan.bounds_of, parts.tolist()))]).tolist()
    return [
        Share(parts[part], edges[part.start], edges[part.stop] - edges[part.start])
        for part in slices(parts.size, -(-parts.size // count))
    ]


def _parts(rows: Rows, plan: BatchPlan, visit: Visit, fields: Fields, share: Share) -> Iterator[tuple[slice, RowBlock]]:
    """Yield places of a share, in storage order, and the rows there."""
    if plan.piece_rows:
        yield from rows.parts_at(plan.rows_of(share.parts), fields)
        return
    done = 0
    for chunk in share.parts.tolist():
        first, last = plan.bounds_of(chunk)
        yield slice(done, done + last - first), rows.read(first, last, fields)
        done += last - first


def numbered(blocks: Iterable[RowBlock]) -> Iterator[RowBatch]:
    """Yield consecutive blocks of rows as batches that have the numbers -1, -2 and so on, none of a plan's."""
    start = 0
    for number, block in enumerate(blocks, 1):
        assert block.y is not None
        yield RowBatch(-number, np.arange(start, start + len(block.y)), block)
        start += len(block.y)


def cut_window(plan: BatchPlan, visit: Visit, block: RowBlock) -> Iterator[RowBatch]:
    """Yield the batches of a visit from the block of its window."""
    positions = window_positions(plan, visit.window, visit.epoch)
    for batch in visit.batches:
        part = plan.slice_in_window(batch)
        yield RowBatch(
            index=batch,
            positions=positions[part],
            block=RowBlock(
                X=None if block.X is None or batch not in visit.with_features else block.X[part],
                y=None if block.y is None else block.y[part],
                weight=None if block.weight is None else block.weight[part],
            ),
        )
