"""Passes over the rows of a fit, in this process or on a cluster: sums, and values in row order.

Rows are cut into the same shares wherever they are summed, and the sums of shares are added in their order, so that a
result does not depend on the number of workers.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from distributed import CancelledError, Client, get_worker

from daskkern.arrays import HostArray
from daskkern.backend.concurrency import all_cores
from daskkern.backend.task_names import task_name
from daskkern.backend.tiles import slices
from daskkern.cluster.connect.clients import ClusterLike, client_of
from daskkern.cluster.connect.membership import live_workers
from daskkern.data.rows.rows import Rows
from daskkern.data.schema.schema import Scaling
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.setup.scaling import with_scaling

SHARE = 32_768
"""Rows of a share."""
T = TypeVar("T")
Totals = tuple[HostArray, ...]
RowSums = Callable[[Rows, slice], Totals]
"""A function of rows and a share of them; the arrays that it returns are added over the shares."""
RowValues = Callable[[Rows, slice], HostArray]
"""A function of rows and a share of them, with a value for each row of the share."""


@dataclass(frozen=True, eq=False)
class RowPasses:
    """Rows that are read again and again.

    Attributes
    ----------
    source : RowSource
        As the process or the workers that read it can open it.
    dtype : "float32" or "float64"
    client : Client or None
        None reads in this process.
    """

    source: RowSource
    dtype: str
    client: Client | None

    def scaled(self, scaling: Scaling) -> "RowPasses":
        """Return passes over the same rows with `scaling` applied as they are read."""
        return replace(self, source=with_scaling(self.source, scaling))

    def once(self, work: Callable[[RowSource], T]) -> T:
        """Return what `work` makes of the source: in this process, or in one task of the cluster.

        An interrupt cancels the task, which ends where it calls :func:`leave_if_cancelled`.
        """
        if self.client is None:
            return work(self.source)
        key = task_name("unsupervised_setup")
        future = self.client.submit(work, self.source, key=key, pure=False, retries=2)
        try:
            found: T = future.result()
        except BaseException:
            future.cancel()
            raise
        return found

    def totals(self, work: RowSums) -> Totals:
        """Return the sums of `work` over all rows. Memory: theirs, twice, in each process that works."""
        parts = self._results(work)
        total = next(parts)
        for part in parts:
            total = tuple(a + b for a, b in zip(total, part, strict=True))
        return total

    def values(self, work: RowValues) -> HostArray:
        """Return the values of `work` for all rows, in their order, (n, ...) in host memory."""
        return np.concatenate(list(self._results(work)))

    def _results(self, work: Callable[[Rows, slice], Any]) -> Iterator[Any]:
        shares = slices(self.source.info.n_rows, SHARE)
        if self.client is None:
            rows = self.source.open(self.dtype)
            yield from (work(rows, share) for share in shares)
            return
        client, name = self.client, task_name("unsupervised_sums")
        sent = client.scatter({name: work}, broadcast=True, hash=False)[name]
        waiting: deque[Any] = deque()
        most = 2 * max(1, len(live_workers(client)))
        try:
            for share in shares:
                key = task_name("unsupervised_rows")
                waiting.append(
                    client.submit(_share, sent, self.source, self.dtype, share, key=key, pure=False, retries=2)
                )
                if len(waiting) >= most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def row_passes(source: RowSource, dtype: str, cluster: ClusterLike) -> Iterator[RowPasses]:
    """Yield passes over the rows of `source`, on `cluster`, or for None in this process on all its cores.

    Rows of this process and blocks of dask arrays are held by the workers within the context.
    """
    with client_of(cluster) as client:
        if client is None:
            with all_cores():
                yield RowPasses(source, dtype, None)
            return
        remote, futures = source.for_cluster(client, dtype=dtype)
        try:
            yield RowPasses(remote, dtype, client)
        finally:
            for future in futures:
                future.release()


def leave_if_cancelled() -> None:
    """Raise CancelledError in a task that its client has cancelled; do nothing elsewhere."""
    try:
        worker, key = get_worker(), get_worker().get_current_task()
    except ValueError:
        return
    task = worker.state.tasks.get(key)
    if task is None or task.state == "cancelled":
        raise CancelledError(key)


def _share(work: Callable[[Rows, slice], T], source: RowSource, dtype: str, share: slice) -> T:
    """The body of a task."""
    return work(source.open(dtype), share)
