"""Sums over the rows for all models of a grid, in this process or on the workers of a cluster."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from distributed import Client

from daskkern.arrays import IntArray
from daskkern.backend.task_names import task_name
from daskkern.backend.tiles import slices
from daskkern.cluster.connect.membership import live_workers
from daskkern.data.rows.rows import Rows
from daskkern.systems.grid import Grid, Sums
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.targets import Targets
from daskkern.training.setup.prepared import training_rows

_SHARE = 32_768
"""Rows of a share."""


def training_sums(
    grid: Grid,
    source: RowSource,
    rows: Rows,
    held: IntArray | None,
    dtype: str,
    targets: Targets,
    client: Client | None,
) -> list[Sums]:
    """Return the sums over all training rows: shares of whole blocks, added in their order."""
    shares = slices(rows.n_rows, _SHARE)
    parts: Iterator[list[Sums]]
    if client is None:
        parts = (grid.sums(rows, targets, share) for share in shares)
    else:
        name = task_name("sweep_grid")
        sent = client.scatter({name: grid}, broadcast=True, hash=False)[name]

        def submit(share: slice) -> Any:
            key = task_name("sweep_rows")
            return client.submit(_share, sent, source, held, dtype, targets, share, key=key, pure=False, retries=2)

        parts = _in_order(submit, shares, 2 * max(1, len(live_workers(client))))
    total = next(parts)
    for part in parts:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return total


def _in_order(submit: Callable[[slice], Any], shares: Sequence[slice], most: int) -> Iterator[list[Sums]]:
    """Yield the results of the shares; at most `most` are on the workers at once, because each is large."""
    waiting: deque[Any] = deque()
    try:
        for share in shares:
            waiting.append(submit(share))
            if len(waiting) >= most:
                future = waiting.popleft()
                yield future.result()
                future.release()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _share(
    grid: Grid, source: RowSource, held: IntArray | None, dtype: str, targets: Targets, share: slice
) -> list[Sums]:
    """The body of a task: the sums over a share of the rows."""
    return grid.sums(training_rows(source.open(dtype), held), targets, share)
