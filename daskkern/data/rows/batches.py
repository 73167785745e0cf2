"""Batches of rows, prefetched by at most two threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from daskkern.arrays import IntArray
from daskkern.data.rows.batch_plan import BatchPlan, window_positions
from daskkern.data.rows.rows import ALL, Fields, Gathering, RowBlock, Rows
from daskkern.errors import SpecError

__all__ = ["BatchPlan", "RowBatch", "Visit", "cut_window", "iter_batches", "read_window", "visits_of"]

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
    return _serial(rows, plan, visits, fields) if prefetch == 0 else _ahead(rows, plan, visits, fields, prefetch)


def _serial(rows: Rows, plan: BatchPlan, visits: Iterator[Visit], fields: Fields) -> Iterator[RowBatch]:
    running = threading.Event()
    for visit in visits:
        yield from cut_window(plan, visit, read_window(rows, plan, visit, fields, running))


def _ahead(rows: Rows, plan: BatchPlan, visits: Iterator[Visit], fields: Fields, prefetch: int) -> Iterator[RowBatch]:
    stop = threading.Event()
    pending: deque[tuple[Visit, Future[RowBlock]]] = deque()
    pool = ThreadPoolExecutor(min(prefetch, _THREADS), thread_name_prefix="daskkern-read")

    def fill(limit: int) -> None:
        while len(pending) < limit and (visit := next(visits, None)) is not None:
            # Rows may belong to a worker, which its threads identify by their context.
            reading = pool.submit(copy_context().run, read_window, rows, plan, visit, fields, stop)
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


def read_window(rows: Rows, plan: BatchPlan, visit: Visit, fields: Fields, stop: threading.Event) -> RowBlock:
    """Read a window part by part, each row straight to its place in the permuted window.

    The block is incomplete when `stop` was set meanwhile.
    """
    if not visit.with_features:
        fields &= ~Fields.X
    positions = window_positions(plan, visit.window, visit.epoch)
    slots = np.argsort(positions)  # rows in storage order -> places in the window
    gathering = Gathering(rows, len(positions), fields)
    parts = rows.parts_at(positions[slots], fields) if plan.piece_rows else _chunks(rows, plan, visit, fields)
    for places, part in parts:
        gathering.put(slots[places], part)
        if stop.is_set():
            break  # the block will not be used
    return gathering.block()


def _chunks(rows: Rows, plan: BatchPlan, visit: Visit, fields: Fields) -> Iterator[tuple[slice, RowBlock]]:
    """Yield places in storage order and the rows there, chunk by chunk."""
    done = 0
    for chunk in plan.parts_of(visit.window, visit.epoch).tolist():
        first, last = plan.bounds_of(chunk)
        yield slice(done, done + last - first), rows.read(first, last, fields)
        done += last - first


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
