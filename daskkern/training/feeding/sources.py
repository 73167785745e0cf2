"""Sources of rows: values that are sent to workers and opened there."""

import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from dask.base import compute
from dask.delayed import delayed
from distributed import Client, Future, get_client, get_worker, wait

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.current import current
from daskkern.backend.task_names import task_name
from daskkern.data.remote.stores import is_url, name_of_place, public
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import fair_chunk_rows
from daskkern.data.rows.csr import FeatureRows, first_not_finite, is_sparse, stack_rows
from daskkern.data.rows.rows import Fields, Rows, mean_row_bytes
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.data.storage.store import StoreSource as StoreLocation
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import ClusterError, DaskkernError, DataError, SpecError

_CACHED_BLOCKS = 8
_PATIENCE_S = (3.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class SourceInfo:
    """The metadata of a source, known without reading rows."""

    n_rows: int
    n_features: int
    task: str | None
    classes: tuple[ClassLabel, ...] | None
    scaling: Scaling
    feature_names: tuple[str, ...] | None
    n_targets: int
    single_target: bool
    n_stored: int | None = None
    """Number of stored entries of sparse rows; None for dense rows."""
    target_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    """How the columns of the original table became features."""


class RowSource(ABC):
    """Rows that can be opened, here or on a worker."""

    info: SourceInfo

    @abstractmethod
    def open(self, dtype: str) -> Rows:
        """Return the rows, which are read in `dtype`."""

    @abstractmethod
    def for_cluster(self, client: Client) -> "tuple[RowSource, tuple[Future[Any], ...]]":
        """Return a source that workers can open, and the futures to keep while they read it.

        Data of this process is scattered block by block; Dask schedules the blocks of dask arrays.
        """


@dataclass(frozen=True)
class StoreSource(RowSource):
    """A daskkern store."""

    location: StoreLocation
    info: SourceInfo

    @classmethod
    def at(cls, location: StoreLocation) -> "StoreSource":
        """Open the store once to read its metadata. A local path is made absolute. Raises StoreError."""
        if not isinstance(location, zarr.Group) and not is_url(location):
            location = os.path.abspath(location)
        store = open_store(location)
        info = store.info
        known = SourceInfo(
            info.n_rows,
            info.n_features,
            info.task,
            info.classes,
            info.scaling,
            info.feature_names,
            info.n_targets,
            info.n_targets == 1,
            int(store.array("X/data").shape[0]) if info.is_sparse else None,
            info.target_names,
            info.encoding,
        )
        return cls(location, known)

    def open(self, dtype: str) -> Rows:
        return StoreRows(open_store(self.location), dtype, self.info.scaling)

    def for_cluster(self, client: Client) -> "tuple[RowSource, tuple[Future[Any], ...]]":
        del client
        store = getattr(getattr(self.location, "store", None), "__class__", None)
        if store is not None and store.__name__ == "MemoryStore":
            raise SpecError(
                "got a store in the memory of this process for a fit on a cluster, whose workers cannot reach it; "
                "write it to a folder or URL, or pass dask or NumPy arrays"
            )
        return self, ()


@dataclass(frozen=True, eq=False)
class ArraySource(RowSource):
    """NumPy arrays of this process."""

    X: FeatureRows
    y: HostArray | None
    weight: HostArray | None
    info: SourceInfo

    def open(self, dtype: str) -> Rows:
        info = self.info
        return ArrayRows(
            self.X,
            self.y,
            weight=self.weight,
            classes=info.classes,
            dtype=dtype,
            chunk_rows=self._block_rows(),
            scaling=info.scaling,
        )

    def for_cluster(self, client: Client) -> "tuple[RowSource, tuple[Future[Any], ...]]":
        step = self._block_rows()
        parts = [slice(at, min(at + step, self.info.n_rows)) for at in range(0, self.info.n_rows, step)]
        named = {task_name("rows"): _triple(self, part) for part in parts}
        futures = list(client.scatter(named, hash=False).values())
        sizes = tuple(part.stop - part.start for part in parts)
        return BlockSource(_remote(futures), sizes, self.weight is not None, self.info), tuple(futures)

    def _block_rows(self) -> int:
        """Return the rows of a chunk: the same here and on a cluster, so that batches are the same."""
        return fair_chunk_rows(mean_row_bytes(self.info.n_rows, self.info.n_features, self.info.n_stored))


@dataclass(frozen=True, eq=False)
class LazyBlock:
    """A block of rows of dask arrays, and the function that makes a triple of its parts."""

    parts: tuple[Any, Any, Any]
    encode: Callable[[Any, Any, Any], Any]

    def __call__(self) -> Any:
        """Compute the block in this thread."""
        return self.encode(*compute(*self.parts, scheduler="synchronous"))

    def delayed(self) -> Any:
        """Return the block as a task, whose inputs Dask schedules and computes once for all blocks."""
        return delayed(self.encode, pure=False)(*self.parts, dask_key_name=task_name("rows"))


@dataclass(frozen=True)
class RemoteValue:
    """The key of a finished result on the cluster; unlike a Future it can be sent within a record."""

    key: str

    def fetch(self) -> Any:
        """Return the value, copied to this worker from one that has it. Raises the error of its task.

        Raises
        ------
        ClusterError
            When no worker sends it, because those that had it are gone.
        """
        try:
            outcome: Any = get_worker().data[self.key]
        except KeyError:
            outcome = self._gathered()
        if isinstance(outcome, DaskkernError):
            raise outcome
        return outcome

    def _gathered(self) -> Any:
        """Retry with timeouts: when a worker is lost during the transfer, Dask may wait forever."""
        for patience_s in _PATIENCE_S:
            # A Future constructed here needs the state of its finished task; else it waits forever.
            future: Future[Any] = Future(self.key, get_client(), state="memory")  # type: ignore[arg-type]
            try:
                return future.result(timeout=patience_s)
            except TimeoutError:
                continue
        raise ClusterError(
            f"worker {get_worker().address} requested {self.key}, but no worker sent it in {sum(_PATIENCE_S):g} s: "
            "those that had it are gone; fit again"
        )


def _remote(futures: Sequence[Future[Any]]) -> tuple[RemoteValue, ...]:
    return tuple(RemoteValue(str(future.key)) for future in futures)


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

    def open(self, dtype: str) -> Rows:
        return BlockRows(self, dtype)

    def for_cluster(self, client: Client) -> "tuple[RowSource, tuple[Future[Any], ...]]":
        futures = client.compute([block.delayed() for block in self.blocks])
        with current(client):
            wait(futures)
        for future in futures:
            if future.status == "error":
                raise DataError(f"a block of the dask arrays cannot be computed: {future.exception()}")
        return BlockSource(_remote(futures), self.sizes, self.has_weight, self.info), tuple(futures)


class BlockRows(Rows):
    """The rows of a :class:`BlockSource`; the last few blocks are cached."""

    def __init__(self, source: BlockSource, dtype: str) -> None:
        info = source.info
        self.n_rows, self.n_features, self.n_targets = info.n_rows, info.n_features, info.n_targets
        self.chunk_rows = max(source.sizes)
        self.task = info.task  # type: ignore[assignment]
        self.classes, self.has_weight = info.classes, source.has_weight
        self.dtype = np.dtype(dtype)
        self.n_stored = info.n_stored
        self._blocks, self._scaling = source.blocks, info.scaling
        self._starts: IntArray = np.concatenate([[0], np.cumsum(source.sizes)]).astype(np.int64)
        self._cache: OrderedDict[int, Triple] = OrderedDict()
        self._lock = threading.Lock()

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


def describe(source: RowSource) -> str:
    """Return a short description of the origin of the rows, without the secrets of a URL."""
    if isinstance(source, StoreSource) and not isinstance(source.location, zarr.Group):
        return public(os.fspath(source.location))
    return f"{source.info.n_rows:,} rows x {source.info.n_features} features in memory"


def data_description(source: RowSource) -> dict[str, Any]:
    """Return a description of the rows as JSON values for the saved model, without folders and secrets."""
    info = source.info
    is_stored = isinstance(source, StoreSource) and not isinstance(source.location, zarr.Group)
    return {
        "name": name_of_place(describe(source)) if is_stored else "arrays in memory",
        "rows": int(info.n_rows),
        "features": int(info.n_features),
        "stored_entries": None if info.n_stored is None else int(info.n_stored),
        "task": info.task,
        "classes": None if info.classes is None else len(info.classes),
        "targets": int(info.n_targets),
        "scaling": info.scaling.kind,
    }


def check_finite(X: Any, first_row: int = 0, name: str = "X") -> None:
    """Raise DataError with row and column of the first NaN or infinity of a float table."""
    if is_sparse(X):
        bad = first_not_finite(X)
        if bad is not None:
            row, column, value = bad
            raise DataError(
                f"{name} has {value} in row {first_row + row}, column {column}; remove or fill such rows first"
            )
        return
    if X.dtype.kind != "f" or bool(np.isfinite(X).all()):
        return
    row, column = np.argwhere(~np.isfinite(X.reshape(X.shape[0], -1)))[0]
    value = X.reshape(X.shape[0], -1)[row, column]
    raise DataError(
        f"{name} has {'NaN' if np.isnan(value) else 'infinity'} ({value}) in row {first_row + row}, column {column}; "
        "remove or fill such rows first"
    )


def row_fields(rows: Rows) -> Fields:
    """Return the fields that a training step reads: all that the rows have."""
    return Fields.X | Fields.y | Fields.weight if rows.has_weight else Fields.X | Fields.y


def _triple(source: ArraySource, part: slice) -> Triple:
    y = None if source.y is None else source.y[part]
    if y is not None and y.ndim == 1 and source.info.task == "regression":
        y = y[:, None]
    return source.X[part], y, None if source.weight is None else source.weight[part]
