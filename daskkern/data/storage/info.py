"""A description of a store: sizes, targets, columns, layout and provenance, as text and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.schema.provenance import recorded
from daskkern.data.schema.schema import ClassLabel, StoreInfo
from daskkern.data.shuffle.detection import target_order
from daskkern.data.storage.sizes import stored_bytes
from daskkern.data.storage.store import Store, StoreLocation, open_store
from daskkern.data.storage.store_rows import StoreRows

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

_VALUES = 4 << 20  # of targets or weights to read at most
_BINS = 12


@dataclass(frozen=True)
class ArrayDescription:
    """One Zarr array: its layout, and its bytes in memory and on disk."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    n_chunks: int
    compressors: tuple[str, ...]
    n_bytes: int
    stored_bytes: int


@dataclass(frozen=True)
class TargetDescription:
    """One regression target: moments of all rows, quantiles at QUANTILES and a histogram of `n_sampled` rows."""

    name: str
    mean: float
    std: float
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    n_sampled: int


@dataclass(frozen=True)
class ColumnDescription:
    """One feature as stored, before scaling: what is subtracted from it, and then what it is divided by, comes last."""

    name: str
    mean: float
    std: float
    min: float
    max: float
    shift: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class WeightDescription:
    """The weights of `n_sampled` rows."""

    mean: float
    min: float
    max: float
    n_zero: int
    n_sampled: int


@dataclass(frozen=True)
class StoreDescription:
    """Everything :func:`describe_store` found.

    Attributes
    ----------
    density : float or None
        Share of entries that sparse rows store; None for dense rows.
    sorted_share : float
        How far the target follows the order of the rows, see :mod:`daskkern.data.shuffle.detection`.
    columns : tuple of ColumnDescription
        Every feature.
    encoding : tuple of ColumnEncoding or None
        How the columns of the source became features; None where all were used unchanged.
    provenance : mapping
        The recorded provenance of the store.
    """

    path: str
    version: int
    n_rows: int
    n_features: int
    n_targets: int
    dtype: str
    task: str | None
    classes: tuple[ClassLabel, ...] | None
    class_counts: tuple[int, ...] | None
    targets: tuple[TargetDescription, ...]
    weight: WeightDescription | None
    chunk_rows: int
    arrays: tuple[ArrayDescription, ...]
    density: float | None
    scaling: str
    columns: tuple[ColumnDescription, ...]
    encoding: tuple[ColumnEncoding, ...] | None
    n_constant: int
    sorted_share: float
    is_sorted: bool
    provenance: Mapping[str, Any]

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(array.n_bytes for array in self.arrays)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all arrays on disk."""
        return sum(array.stored_bytes for array in self.arrays)


def describe_store(source: StoreLocation, max_values: int = _VALUES) -> StoreDescription:
    """Describe a store. Reads its attributes and at most some million targets and weights, never features.

    Parameters
    ----------
    max_values : int
        Targets, and weights, to read at most: of evenly spaced chunks of rows, of one at least.

    Raises
    ------
    StoreError
        When the store cannot be opened, or its targets cannot be read.
    """
    store = open_store(source)
    rows, info = StoreRows(store), store.info
    arrays = tuple(_array(store, name) for name in store.array_names())
    order = target_order(rows)
    return StoreDescription(
        path=store.path,
        version=int(info.to_attributes()["version"]),
        n_rows=info.n_rows,
        n_features=info.n_features,
        n_targets=info.n_targets,
        dtype=arrays[0].dtype,
        task=info.task,
        classes=info.classes,
        class_counts=info.class_counts,
        targets=_targets(rows, info, max_values) if info.task == "regression" else (),
        weight=_weight(rows, max_values) if info.has_weight else None,
        chunk_rows=info.chunk_rows,
        arrays=arrays,
        density=None if rows.n_stored is None else rows.n_stored / (info.n_rows * info.n_features),
        scaling=info.scaling.kind,
        columns=_columns(info),
        encoding=info.encoding,
        n_constant=sum(std == 0 for std in info.statistics.std),
        sorted_share=order.share,
        is_sorted=order.is_sorted,
        provenance=recorded(store.group),
    )


def _array(store: Store, name: str) -> ArrayDescription:
    array = store.array(name)
    compressors = tuple(type(codec).__name__.removesuffix("Codec").lower() for codec in array.compressors)
    return ArrayDescription(
        name=name,
        shape=array.shape,
        dtype=str(array.dtype),
        chunks=array.chunks,
        n_chunks=array.nchunks,
        compressors=compressors,
        n_bytes=array.nbytes,
        stored_bytes=stored_bytes(array),
    )


def _columns(info: StoreInfo) -> tuple[ColumnDescription, ...]:
    names = info.feature_names or tuple(f"column {number}" for number in range(info.n_features))
    kept = info.statistics
    shift, scale = info.scaling.shift or np.zeros(len(names)), info.scaling.scale or np.ones(len(names))
    columns = zip(names, kept.mean, kept.std, kept.min, kept.max, shift, scale, strict=True)
    return tuple(ColumnDescription(name, *(float(value) for value in values)) for name, *values in columns)


def _targets(rows: Rows, info: StoreInfo, max_values: int) -> tuple[TargetDescription, ...]:
    statistics = info.target_statistics
    assert statistics is not None
    y = _sample(rows, Fields.y, info.n_targets, max_values)
    names = info.target_names or tuple(f"target {number}" for number in range(info.n_targets))
    return tuple(
        _target(name, y[:, j], float(statistics.mean[j]), float(statistics.std[j])) for j, name in enumerate(names)
    )


def _target(name: str, values: FloatArray, mean: float, std: float) -> TargetDescription:
    counts, edges = _histogram(values)
    return TargetDescription(
        name=name,
        mean=mean,
        std=std,
        quantiles=tuple(np.quantile(values, QUANTILES).tolist()),
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        n_sampled=len(values),
    )


def _histogram(values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return counts and edges; of one bin where float64 has too few numbers between the least and the largest."""
    try:
        return np.histogram(values, bins=_BINS)
    except ValueError:
        return np.array([len(values)]), np.array([values.min(), values.max()])


def _weight(rows: Rows, max_values: int) -> WeightDescription:
    values = _sample(rows, Fields.weight, 1, max_values)
    low, high = float(values.min()), float(values.max())
    return WeightDescription(float(values.mean()), low, high, int((values == 0).sum()), len(values))


def _sample(rows: Rows, field: Fields, width: int, max_values: int) -> HostArray:
    """Return one field of evenly spaced chunks of rows, of all where they are not too many."""
    chunk = rows.chunk_rows
    n_chunks = -(-rows.n_rows // chunk)
    most = max(1, max_values // (chunk * width))
    starts = chunk * np.unique(np.linspace(0, n_chunks - 1, min(most, n_chunks)).round().astype(np.int64))
    blocks = [rows.read(int(start), min(int(start) + chunk, rows.n_rows), field) for start in starts]
    parts = [block.y if field is Fields.y else block.weight for block in blocks]
    return np.concatenate([part for part in parts if part is not None])
