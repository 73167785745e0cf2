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

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import free_on_device, is_of_gpu, namespace_for, to_device, to_host
from daskkern.backend.reductions import all_finite
from daskkern.backend.task_names import task_name
from daskkern.cluster.connect.membership import ask_scheduler, live_workers, run_on
from daskkern.cluster.scheduler.task_results import await_ends, resubmitting
from daskkern.data.rows.chunk_edges import ChunkEdges
from daskkern.data.rows.csr import FeatureRows, is_sparse, stack_rows
from daskkern.data.rows.finite import check_finite
from daskkern.data.rows.rows import RowBlock, Rows
from daskkern.errors import DataError
from daskkern.training.feeding.remote_values import RemoteValue, remote_values
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Releasable, SentRows

_CACHED_BLOCKS = 8
ROWS_SHARE = 0.25
"""Share of the free memory of a GPU that rows may take which a fit computes into it."""


@dataclass(frozen=True, eq=False)
class LazyBlock:
    """A block of rows of dask arrays, and the function that makes a triple of its parts."""

    parts: tuple[Any, Any, Any]
    encode: Callable[[Any, Any, Any], Any]
    on_gpu: bool = False
    """Whether its features are an array on a GPU."""
    is_held: bool = False
    """Whether its features are a result that a cluster holds."""

    def __call__(self) -> Any:
        """Compute the block in this thread."""
        return self.encode(*compute(*self.parts, scheduler="synchronous"))

    def on_device(self) -> Any:
        """Compute the block in this thread, and leave its features on the GPU."""
        X, y, weight = compute(*self.parts, scheduler="synchronous")
        return (X, *self.encode(None, y, weight)[1:])

    def delayed(self, stays: bool = False) -> Any:
        """Return the block as a task, whose inputs Dask schedules and computes once for all blocks.

        Where it `stays`, its features are left on the GPU of the worker that computes it.
        """
        work = _StayingOnGpu(self.encode) if stays else self.encode
        return delayed(work, pure=False)(*self.parts, dask_key_name=task_name("rows"))


class DeviceFeatures:
    """Features (m, d) on the GPU of a worker. What is sent to another process, or spilled, is a copy in host memory."""

    def __init__(self, X: Array) -> None:
        self.X = X

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (to_host(self.X),)


@dataclass(frozen=True, eq=False)
class _StayingOnGpu:
    """Makes a triple of computed parts, with features of a GPU where they are."""

    encode: Callable[[Any, Any, Any], Any]

    def __call__(self, X: Any, y: Any, weight: Any) -> Any:
        if not is_of_gpu(X):  # of a worker that had it spilled
            return self.encode(X, y, weight)
        return (DeviceFeatures(X), *self.encode(None, y, weight)[1:])


Triple = tuple[FeatureRows | DeviceFeatures, HostArray | None, HostArray | None]


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
    on_gpu: bool = False
    """Whether the features of blocks on workers lie on their GPUs."""
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
        if self.on_gpu:
            stored = 0
        return int(self.spread * (stored + 8 * info.n_rows * (info.n_targets + self.has_weight)))

    def open(self, dtype: str) -> Rows:
        return BlockRows(self, dtype)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        del dtype

        stays = self._stays(client, workers)

        def computed() -> list[Any]:
            futures: list[Any] = client.compute([block.delayed(stays) for block in self.blocks])
            await_ends(client, futures, "the rows of the dask arrays")
            return futures

        futures = resubmitting(computed)
        for future in futures:
            if future.status == "error":
                raise DataError(f"a block of the dask arrays cannot be computed: {future.exception()}")
        keys = [future.key for future in futures]
        spread = _spread(client, keys, len(workers or live_workers(client)))
        return replace(self, blocks=remote_values(keys), on_gpu=stays, spread=spread), tuple(futures)

    def _stays(self, client: Client, workers: Sequence[str] | None) -> bool:
        """Return whether features stay on the GPUs of the workers: where they are already, or take a quarter or less.

        Ranks gather batches on their GPU, from a copy of all rows, which others bring through host memory.
        """
        if not all(isinstance(block, LazyBlock) and block.on_gpu for block in self.blocks):
            return False
        if all(block.is_held for block in self.blocks):
            return True
        chosen = list(workers or live_workers(client))
        least = min(run_on(client, chosen, _free_for_rows).values(), default=0)
        return self.info.n_rows * self.info.n_features * self.itemsize <= len(chosen) * least

    def digest(self) -> dict[str, Any]:
        return {"blocks": tokenize([getattr(block, "parts", block) for block in self.blocks])}


def _free_for_rows() -> int:
    """Return the bytes that rows of dask arrays may take on the GPU of this process; 0 without one."""
    xp = namespace_for("auto")
    return 0 if xp is np else int(ROWS_SHARE * free_on_device(xp))


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
        lies_there = all(isinstance(block, LazyBlock) and block.on_gpu for block in source.blocks)
        self.on_gpus = source.on_gpu or lies_there
        self._starts: IntArray = np.concatenate([[0], np.cumsum(source.sizes)]).astype(np.int64)
        self._cache: OrderedDict[int, Triple] = OrderedDict()
        self._lock = threading.Lock()

    def blocks_on(self, xp: ModuleType) -> Iterator[RowBlock] | None:
        if xp is np or not self.on_gpus:
            return None
        return (
            self._on_device(block, int(start), xp) for block, start in zip(self._blocks, self._starts, strict=False)
        )

    def _on_device(self, block: LazyBlock | RemoteValue, start: int, xp: ModuleType) -> RowBlock:
        X, y, weight = block.fetch() if isinstance(block, RemoteValue) else block.on_device()
        X = xp.ascontiguousarray(to_device(X.X if isinstance(X, DeviceFeatures) else X, xp))
        _check_finite(X, start)
        return RowBlock(self._scaling.apply(X, self.dtype), y, weight)

    def _read_features(self, start: int, stop: int) -> HostArray:
        return self._scaling.apply(self._join(start, stop, lambda triple: triple[0]), self.dtype)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[1])

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return self._join(start, stop, lambda triple: triple[2]).astype(np.float64, copy=False)

    def _join(self, start: int, stop: int, pick: Callable[[Triple], Any]) -> HostArray:
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        while start < stop:
            end = min(stop, int(self._starts[first + 1]))
            part = pick(self._block(first))
            if part is None:
                raise DataError("targets or weights were read from rows that have none; pass them together with X")
            wanted = slice(start - int(self._starts[first]), end - int(self._starts[first]))
            parts.append(to_host(part.X[wanted]) if isinstance(part, DeviceFeatures) else part[wanted])
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
        X = triple[0]
        _check_finite(X.X if isinstance(X, DeviceFeatures) else X, int(self._starts[number]))
        with self._lock:
            self._cache[number] = triple
            while len(self._cache) > _CACHED_BLOCKS:
                self._cache.popitem(last=False)
        return triple


def _check_finite(X: Any, start: int) -> None:
    """Raise DataError for the first NaN or infinity of a block, on a GPU or not, whose first row has number `start`."""
    if not is_of_gpu(X):
        check_finite(X, start)
    elif not all_finite(X):
        check_finite(to_host(X), start)
