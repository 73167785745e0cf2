"""Rows in blocks of Dask arrays, computed on reading, and of arrays held by a cluster."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
from dask.base import compute, tokenize
from dask.delayed import delayed
from distributed import Client

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.backend.reductions import all_finite
from daskkern.backend.task_names import task_name
from daskkern.cluster.connect.membership import ask_scheduler, live_workers
from daskkern.cluster.scheduler.task_results import await_ends, resubmitting
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.csr import FeatureRows, is_sparse, stack_rows
from daskkern.data.rows.finite import check_finite
from daskkern.data.rows.rows import RowBlock, Rows
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.training.feeding.remote_values import RemoteValue, remote_values
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Releasable, SentRows

_CACHED_BLOCKS = 8


@dataclass(frozen=True, eq=False)
class LazyBlock:
    """A block of rows of dask arrays, and the function that makes a triple of its parts."""

    parts: tuple[Any, Any, Any]
    encode: Callable[[Any, Any, Any], Any]
    on_gpu: bool = False
    """Whether its features are an array on a GPU."""

    def __call__(self) -> Any:
        """Compute the block in this thread."""
        return self.encode(*compute(*self.parts, scheduler="synchronous"))

    def on_device(self) -> Any:
        """Compute the block in this thread, and leave its features on the GPU."""
        X, y, weight = compute(*self.parts, scheduler="synchronous")
        return (X, *self.encode(None, y, weight)[1:])

    def delayed(self) -> Any:
        """Return the block as a task, whose inputs Dask schedules and computes once for all blocks."""
        return delayed(self.encode, pure=False)(*self.parts, dask_key_name=task_name("rows"))


Triple = tuple[FeatureRows, HostArray | None, HostArray | None]


@dataclass(frozen=True, eq=False)
class BlockSource(RowSource):
    """Blocks of rows on a cluster, or callables of this process: dask arrays, and arrays sent to a cluster.

    Attributes
    ----------
    blocks : tuple of RemoteValue or of LazyBlock
        Each returns (X, y or None, weight or None) of its rows.
    sizes : tuple of int
        Rows of each block.
    """

    blocks: tuple[Any, ...]
    sizes: tuple[int, ...]
    has_weight: bool
    info: SourceInfo
    whole_blocks: bool = False
    """Whether batches are drawn from whole blocks, as from the groups of rows in files."""
    itemsize: int = 8
    """Bytes of a number of the features, as they are in the blocks."""
    spread: float = 1.0
    """Blocks of the worker that has most of them, as a multiple of an equal share."""

    @classmethod
    def sent(
        cls,
        client: Client,
        blocks: Sequence[Callable[[], "Triple"]],
        sizes: Sequence[int],
        has_weight: bool,
        info: SourceInfo,
        workers: Sequence[str] | None,
        itemsize: int,
    ) -> tuple["BlockSource", tuple[Releasable, ...]]:
        """Send blocks of this process to `workers`, or all; return them as a source, and what keeps them there."""
        sent = SentRows(client, {task_name("rows"): block for block in blocks}, workers)
        return cls(remote_values(sent.keys), tuple(sizes), has_weight, info, itemsize=itemsize), (sent,)

    @property
    def bytes_on_workers(self) -> int:
        if not isinstance(self.blocks[0], RemoteValue):
            return 0
        info = self.info
        stored = info.n_rows * info.n_features * self.itemsize
        if info.n_stored is not None:  # values, with column numbers and row pointers of up to 8 bytes
            stored = info.n_stored * (self.itemsize + 8) + 8 * info.n_rows
        return int(self.spread * (stored + 8 * info.n_rows * (info.n_targets + self.has_weight)))

    def open(self, dtype: str) -> Rows:
        return BlockRows(self, dtype)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        del dtype

        def computed() -> list[Any]:
            futures: list[Any] = client.compute([block.delayed() for block in self.blocks])
            await_ends(client, futures, "the rows of the dask arrays")
            return futures

        futures = resubmitting(computed)
        for future in futures:
            if future.status == "error":
                raise DataError(f"a block of the dask arrays cannot be computed: {future.exception()}")
        keys = [future.key for future in futures]
        spread = _spread(client, keys, len(workers or live_workers(client)))
        return replace(self, blocks=remote_values(keys), spread=spread), tuple(futures)

    def digest(self) -> dict[str, Any]:
        return {"blocks": tokenize([getattr(block, "parts", block) for block in self.blocks])}


def _spread(client: Client, keys: Sequence[Any], n_workers: int) -> float:
    """Return the results of the worker that has most of them, as a multiple of an equal share.

    Dask does not balance them. Those that were lost meanwhile are computed again anywhere, and count as balanced.
    """
    holders = ask_scheduler(client, "who_has", keys=list(keys))
    most = Counter(address for found in holders.values() for address in found).most_common(1)
    return max(1.0, most[0][1] * n_workers / len(keys)) if most else 1.0


class BlockRows(Rows):
    """The rows of a :class:`BlockSource`; the last few blocks are cached."""

    def __init__(self, source: BlockSource, dtype: str) -> None:
        info = source.info
        self.n_rows, self.n_features, self.n_targets = info.n_rows, info.n_features, info.n_targets
        self.chunk_rows = max(source.sizes)
        if source.whole_blocks and any(size != self.chunk_rows for size in source.sizes[:-1]):
            self.chunk_edges = ChunkEdges(source.sizes)
        self.task = info.task  # type: ignore[assignment]
        self.classes, self.has_weight = info.classes, source.has_weight
        self.dtype = np.dtype(dtype)
        self.n_stored = info.n_stored
        self._blocks, self._scaling = source.blocks, info.scaling
        self._starts: IntArray = np.concatenate([[0], np.cumsum(source.sizes)]).astype(np.int64)
        self._cache: OrderedDict[int, Triple] = OrderedDict()
        self._lock = threading.Lock()

    def blocks_on(self, xp: ModuleType) -> Iterator[RowBlock] | None:
        lazy = [block for block in self._blocks if isinstance(block, LazyBlock) and block.on_gpu]
        if xp is np or len(lazy) < len(self._blocks) or self._scaling != Scaling():
            return None
        return (self._on_device(block, int(start), xp) for block, start in zip(lazy, self._starts, strict=False))

    def _on_device(self, block: LazyBlock, start: int, xp: ModuleType) -> RowBlock:
        X, y, weight = block.on_device()
        X = xp.ascontiguousarray(xp.asarray(X).astype(self.dtype, copy=False))
        if not all_finite(X):
            check_finite(to_host(X), start)
        return RowBlock(X, y, weight)

    def _read_features(self, start: int, stop: int) -> HostArray:
        return self._scaling.apply(self._join(start, stop, lambda triple: triple[0]), self.dtype)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[1])

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[2]).astype(np.float64, copy=False)

    def _join(self, start: int, stop: int, pick: Callable[[Triple], HostArray | None]) -> HostArray:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        while start < stop:
            end = min(stop, int(self._starts[first + 1]))
            part = pick(self._block(first))
            if part is None:
                raise DataError("targets or weights were read from rows that have none; pass them together with X")
            offset = int(self._starts[first])
            parts.append(part[start - offset : end - offset])
            start, first = end, first + 1
        if len(parts) == 1:
            return parts[0]
        return stack_rows(parts) if is_sparse(parts[0]) else np.concatenate(parts)

    def _block(self, number: int) -> Triple:
        with self._lock:
            if number in self._cache:
                self._cache.move_to_end(number)
                return self._cache[number]
        block = self._blocks[number]
        triple: Triple = block.fetch() if isinstance(block, RemoteValue) else block()
        check_finite(triple[0], int(self._starts[number]))
        with self._lock:
            self._cache[number] = triple
            while len(self._cache) > _CACHED_BLOCKS:
                self._cache.popitem(last=False)
        return triple
