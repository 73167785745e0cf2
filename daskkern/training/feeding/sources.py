"""Sources of rows: stores, arrays and Dask arrays, sent to workers as descriptions and opened there."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import zarr
from distributed import Client
from zarr.storage import LocalStore, MemoryStore

from daskkern.arrays import HostArray, IntArray
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.remote.stores import absolute, is_url, name_of_place, public
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import fair_chunk_rows
from daskkern.data.rows.copies import Copies, find_copies
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows, mean_row_bytes
from daskkern.data.rows.subset import MergedRows, RowsWithout, original_numbers
from daskkern.data.schema.column_statistics import ColumnStatistics
from daskkern.data.storage.checksums import checksum_of
from daskkern.data.storage.store import Store, StoreLocation, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import SpecError, StoreError
from daskkern.training.feeding.cluster_blocks import BlockSource, Triple
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sent_rows import Releasable


@dataclass(frozen=True)
class StoreSource(RowSource):
    """A daskkern store.

    Attributes
    ----------
    location : str, path or zarr.Group
    info : SourceInfo
    opened : Store or None
        The store as this process has opened it. Copies that are sent to a worker open it there, and check that all of
        its chunks can be seen.
    """

    location: StoreLocation = field(repr=False)
    info: SourceInfo
    opened: Store | None = field(default=None, repr=False, compare=False)

    @classmethod
    def at(cls, location: StoreLocation) -> "StoreSource":
        """Open the store, once for this process. A local path is made absolute. Raises StoreError."""
        if isinstance(location, zarr.Group):
            fix_places(location)
        else:
            location = absolute(location)
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
            info.index_base,
        )
        return cls(location, known, store)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "opened": None}

    @property
    def is_local(self) -> bool:
        """Whether the store is a folder or a zip file of this machine, or in memory."""
        if isinstance(self.location, zarr.Group):
            return isinstance(self.location.store, LocalStore | MemoryStore)
        return not is_url(os.fspath(self.location))

    def store(self) -> Store:
        """Return the open store. Raises StoreError on a worker that does not see all of it."""
        return self.opened or open_store(self.location)

    @property
    def origin(self) -> str:
        if isinstance(self.location, zarr.Group):
            return super().origin
        return public(os.fspath(self.location))

    @property
    def name(self) -> str:
        return super().name if isinstance(self.location, zarr.Group) else name_of_place(self.origin)

    def open(self, dtype: str) -> Rows:
        return StoreRows(self.store(), dtype, self.info.scaling)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        del client, workers, dtype
        store = getattr(getattr(self.location, "store", None), "__class__", None)
        if store is not None and store.__name__ == "MemoryStore":
            raise SpecError(
                "got a store in the memory of this process for a fit on a cluster, whose workers cannot reach it; "
                "write it to a folder or URL, or pass dask or NumPy arrays"
            )
        return self, ()

    def digest(self) -> dict[str, Any]:
        return {"checksums": dict(self.store().info.checksums)}

    def statistics(self) -> ColumnStatistics | None:
        return self.store().info.statistics


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

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        del dtype
        step = self._block_rows()
        parts = [slice(at, min(at + step, self.info.n_rows)) for at in range(0, self.info.n_rows, step)]
        blocks = [partial(_triple, self, part) for part in parts]
        sizes = [part.stop - part.start for part in parts]
        return BlockSource.sent(
            client, blocks, sizes, self.weight is not None, self.info, workers, self.X.dtype.itemsize
        )

    def digest(self) -> dict[str, Any]:
        return {"checksums": {name: checksum_of(getattr(self, name)) for name in ("X", "y", "weight")}}

    @property
    def local_bytes(self) -> int:
        arrays = (self.X, self.y, self.weight)
        return sum(int(getattr(part, "nbytes", getattr(getattr(part, "data", None), "nbytes", 0))) for part in arrays)

    def _block_rows(self) -> int:
        """Return the rows of a chunk: the same here and on a cluster, so that batches are the same."""
        return fair_chunk_rows(mean_row_bytes(self.info.n_rows, self.info.n_features, self.info.n_stored))


@dataclass(frozen=True, eq=False)
class MergedSource(RowSource):
    """A store or arrays of which each row that occurs several times, with its targets, is one row with a weight.

    Attributes
    ----------
    source : StoreSource or ArraySource
        The rows as they are.
    copies : Copies
    info : SourceInfo
        Of the rows that remain.
    arrays : ArraySource or None
        Copies of the rows that remain, of arrays.
    """

    source: StoreSource | ArraySource
    copies: Copies = field(repr=False)
    info: SourceInfo
    arrays: ArraySource | None = field(default=None, repr=False)

    @property
    def origin(self) -> str:
        return self.source.origin

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def note(self) -> str:
        copies = self.copies.excluded.size - self.copies.n_weightless
        of_copies = f"{copies:,} more are copies of these, which count as one row with a weight"
        of_nothing = f"{self.copies.n_weightless:,} of weight 0 are left out"
        return "; ".join([of_copies] * (copies > 0) + [of_nothing] * (self.copies.n_weightless > 0))

    @property
    def local_bytes(self) -> int:
        return self.source.local_bytes

    def open(self, dtype: str) -> Rows:
        if self.arrays is not None:
            return replace(self.arrays, info=self.info).open(dtype)
        scaled = replace(self.source, info=replace(self.source.info, scaling=self.info.scaling))
        rows, excluded, weight = scaled.open(dtype), self.copies.excluded, self.copies.weight
        return RowsWithout(rows, excluded) if weight is None else MergedRows(rows, excluded, weight)

    def for_cluster(
        self, client: Client, workers: Sequence[str] | None = None, dtype: str = "float32"
    ) -> tuple[RowSource, tuple[Releasable, ...]]:
        if self.arrays is not None:
            return replace(self.arrays, info=self.info).for_cluster(client, workers, dtype)
        self.source.for_cluster(client, workers, dtype)  # refuses what workers cannot reach
        return self, ()

    def digest(self) -> dict[str, Any]:
        return self.source.digest()

    def statistics(self) -> ColumnStatistics | None:
        return self.source.statistics()

    def description(self) -> dict[str, Any]:
        nothing = self.copies.n_weightless
        left_out = {"copies": int(self.copies.excluded.size) - nothing, "weightless": nothing}
        return {**self.source.description(), **{name: count for name, count in left_out.items() if count}}

    def original_numbers(self, positions: IntArray) -> IntArray:
        return original_numbers(positions, self.copies.excluded)


def merged(source: RowSource) -> RowSource:
    """Return the source with each row that occurs several times as one row, and without rows of weight 0.

    Where each of these are a twentieth of them or more.

    See :func:`daskkern.data.rows.copies.find_copies`. Rows of other sources than stores of this machine and arrays of
    this process are not looked at: that would read them once more over a network.
    """
    if not isinstance(source, StoreSource | ArraySource) or (isinstance(source, StoreSource) and not source.is_local):
        return source
    try:
        copies = find_copies(source.open("float64"))
    except StoreError:  # is raised, with what it is about, where the rows are trained on
        return source
    if copies is None:
        return source
    info = source.info
    n_rows = info.n_rows - copies.excluded.size
    n_stored = None if info.n_stored is None else info.n_stored * n_rows // info.n_rows
    info = replace(info, n_rows=n_rows, n_stored=n_stored)
    if isinstance(source, StoreSource):
        return MergedSource(source, copies, info)
    kept = np.delete(np.arange(source.info.n_rows), copies.excluded)
    y = None if source.y is None else source.y[kept]
    return MergedSource(source, copies, info, ArraySource(source.X[kept], y, copies.weight, info))


def _triple(source: ArraySource, part: slice) -> Triple:
    y = None if source.y is None else source.y[part]
    if y is not None and y.ndim == 1 and source.info.task == "regression":
        y = y[:, None]
    return source.X[part], y, None if source.weight is None else source.weight[part]
