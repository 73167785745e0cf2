"""Blocks of rows passed through a model in order, in this process or as tasks on a cluster.

Rows that workers can read are read by them; other rows, such as those of a CSV file, are read here and sent. A bounded
number of tasks is under way, so that memory does not depend on the number of rows. Tasks of a lost worker run again on
another; the model is a task's result, too, which Dask makes again where it is lost.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import dask.config
from distributed import Client

from daskkern.backend.task_names import task_name
from daskkern.data.ingest.pipeline.parallel import part_bounds
from daskkern.evaluation.tables.rows import BLOCK_ROWS, Cuts, InputBlock, InputRows
from daskkern.models import KernelModel

Value = TypeVar("Value")
Job = TypeVar("Job")

_TASK_BLOCKS = 16  # of a task; fewer where rows are wide
_TASK_BYTES = 32 << 20
_AHEAD = 2  # tasks under way for each thread of the workers


@dataclass(frozen=True)
class ScoringPlace:
    """Where scores are computed: by the workers of `client` or in this process, and there on `device`.

    `threads` is that of :meth:`daskkern.models.KernelModel.decision_function`.
    """

    client: Client | None = None
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True, eq=False)
class ScoringJob:
    """Rows of one task: those from `start` to `stop` of `rows`, or `blocks` that were read already."""

    rows: InputRows | None
    start: int
    stop: int | None
    cuts: Cuts
    blocks: tuple[InputBlock, ...] = ()

    @property
    def size(self) -> int:
        """The number of rows, where it is known."""
        return 0 if self.stop is None else self.stop - self.start

    def read(self) -> Iterator[InputBlock]:
        """Yield the rows in blocks."""
        if self.rows is None:
            return iter(self.blocks)
        return self.rows.blocks(self.cuts, self.start, self.stop)


@dataclass(frozen=True, eq=False)
class BlockTask(Generic[Value]):
    """A function of each block of a job, with the model."""

    function: Callable[[KernelModel, InputBlock], Value]

    def __call__(self, model: KernelModel, job: ScoringJob) -> list[Value]:
        return [self.function(model, block) for block in job.read()]


def scoring_jobs(rows: InputRows, model: KernelModel, cuts: Cuts, client: Client | None) -> Iterator[ScoringJob]:
    """Yield all rows as jobs, in order."""
    blocks = max(1, min(_TASK_BLOCKS, _TASK_BYTES // max(1, 4 * BLOCK_ROWS * model.n_features)))
    if client is not None and rows.n_rows and are_shared(rows, client):
        parts = max(1, rows.n_rows // (blocks * BLOCK_ROWS))
        for start, stop in part_bounds(rows.n_rows, BLOCK_ROWS, rows.starts, parts):
            yield ScoringJob(rows, start, stop, cuts)
        return
    held: list[InputBlock] = []
    for block in rows.blocks(cuts):
        held.append(block)
        if client is None or len(held) == blocks:
            yield ScoringJob(None, held[0].first, held[-1].stop, cuts, tuple(held))
            held = []
    if held:
        yield ScoringJob(None, held[0].first, held[-1].stop, cuts, tuple(held))


def are_shared(rows: InputRows, client: Client) -> bool:
    """Return whether the workers read the rows: where each can begin at a row of its own without reading others."""
    threads = sum(client.nthreads().values())
    return rows.is_shared and rows.n_rows is not None and (rows.starts is None or len(rows.starts) >= threads)


def in_order(
    work: Callable[[KernelModel, Job], Value], jobs: Iterable[Job], model: KernelModel, where: ScoringPlace
) -> Iterator[Value]:
    """Yield ``work(model, job)`` for each job, in order; the first error ends all."""
    if where.client is None:
        for job in jobs:
            yield work(model, job)
        return
    client = where.client
    threads = sum(client.nthreads().values())
    waiting: deque[Any] = deque()
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # the model is sent once
        shared = client.submit(_same, model, key=task_name("model"), pure=False)
    try:
        for job in jobs:
            key = task_name("predict_rows")
            waiting.append(client.submit(_placed_work, work, shared, job, where.device, key=key, pure=False))
            if len(waiting) >= _AHEAD * max(1, threads):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        client.cancel([*waiting, shared])


def _same(model: KernelModel) -> KernelModel:
    return model


_ON_DEVICES: "WeakKeyDictionary[KernelModel, KernelModel]" = WeakKeyDictionary()
"""Models of this worker, by the model that was sent, so that points are copied to a GPU once."""


def _placed_work(work: Callable[[KernelModel, Any], Any], model: KernelModel, job: Any, device: str) -> Any:
    placed = _ON_DEVICES.get(model)
    if placed is None:
        placed = model.on(device)
        if placed is not model:
            _ON_DEVICES[model] = placed
    return work(placed, job)
