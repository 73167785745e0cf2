"""Tables from dask arrays and dask dataframes, a block of rows at a time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from dask.base import compute

from daskkern.arrays import HostArray
from daskkern.data.ingest.readers.tables import Parts, Piece, Request, Table, kind_of
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.csr import is_sparse
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.schema.layout import stored_dtype
from daskkern.errors import DataError

_SOURCE = "the dask arrays"
_SEEN_ROWS = 1000  # of the first partition, to learn the types of its columns


@dataclass(frozen=True, eq=False)
class DaskArrays:
    """Rows in dask arrays: `X` (n, d), its blocks dense or sparse, `y` (n,) or (n, t), `weight` (n,).

    Chunks of unknown length are allowed when all arrays have as many of them.
    """

    X: Any
    y: Any = None
    weight: Any = None


def open_arrays(arrays: DaskArrays, request: Request) -> Parts:
    """Return the rows of dask arrays. Each block of X is computed together with its y and weight."""
    if request.target or request.weight or request.drop:
        raise DataError(
            "target, weight and drop name columns, which dask arrays do not have; give DaskArrays(X, y, weight)"
        )
    fix_places(arrays.X, arrays.y, arrays.weight)
    X = arrays.X
    for name in ("X", "y", "weight"):
        refuse_masks(getattr(arrays, name), name)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise DataError(
            f"got X of dtype {X.dtype} and shape {X.shape}; expected a dask array of real numbers (rows, features)"
        )
    if math.isnan(X.shape[1]):
        raise DataError("X has an unknown number of columns; call its compute_chunk_sizes() first")
    y, weight = _aligned(arrays.y, X, "y"), _aligned(arrays.weight, X, "weight")
    if y is None and request.target is None and request.like is None:
        raise DataError("y is missing; give DaskArrays(X, y), or pass target=() for rows without targets")
    table = Table(
        source=_SOURCE,
        n_rows=None if math.isnan(X.shape[0]) else int(X.shape[0]),
        n_features=int(X.shape[1]),
        dtype=stored_dtype(X.dtype),
        target_kind=None if y is None else "text" if y.dtype.kind == "O" else kind_of(y.dtype, "y"),
        n_targets=0 if y is None else 1 if y.ndim == 1 else int(y.shape[1]),
        has_weight=weight is not None,
        pieces=lambda: _pieces(X, y, weight),
        is_sparse=is_sparse(X._meta),
    )
    return Parts(table)


def open_frame(frame: Any, request: Request) -> Parts:
    """Return the rows of a dask dataframe, columns by name."""
    if not hasattr(frame, "partitions") or not hasattr(frame, "columns"):
        raise DataError(f"got a {type(frame).__name__}; give a dask dataframe, or DaskArrays(X, y)")
    first = frame.partitions[0].compute()
    schema = pa.Schema.from_pandas(first.head(_SEEN_ROWS), preserve_index=False)

    def batches(names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        chosen, wanted = frame[list(names)], pa.schema([schema.field(name) for name in names])
        for number in range(frame.npartitions):
            part = chosen.partitions[number].compute()
            try:
                table = pa.Table.from_pandas(part, schema=wanted, preserve_index=False)
            except (pa.ArrowException, TypeError) as error:
                raise DataError(
                    f"partition {number} of the dask dataframe does not have the column types of the first ({error}); "
                    "make them the same with astype"
                ) from error
            yield from after(table.combine_chunks().to_batches(max_chunksize=rows), start)
            start = max(0, start - table.num_rows)

    parts = open_typed([TypedFile(Path("the dask dataframe"), None, schema, batches)], request)
    return replace(parts, train=replace(parts.train, targets=None))  # another pass would compute everything twice


def _aligned(array: Any, X: Any, name: str) -> Any:
    """Return `array` in the row blocks of X."""
    if array is None:
        return None
    if any(math.isnan(length) for length in (*X.chunks[0], *array.chunks[0])):
        if array.numblocks[0] != X.numblocks[0]:
            raise DataError(
                f"{name} has {array.numblocks[0]} row chunks and X has {X.numblocks[0]}, of unknown lengths; call "
                "compute_chunk_sizes() on both"
            )
        return array
    if array.shape[0] != X.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, but {name} has {array.shape[0]}: rows must agree")
    return array.rechunk({0: X.chunks[0]})


def _pieces(X: Any, y: Any, weight: Any) -> Iterator[Piece]:
    first = 0
    for number in range(X.numblocks[0]):
        block, labels, weights = compute(
            X.blocks[number], None if y is None else y.blocks[number], None if weight is None else weight.blocks[number]
        )
        for name, part in (("y", labels), ("weight", weights)):
            if part is not None and len(part) != block.shape[0]:
                raise DataError(
                    f"row chunk {number} of X has {block.shape[0]} rows, but that of {name} has {len(part)}"
                )
        yield Piece(_SOURCE, first, block, _labels(labels), weights)
        first += block.shape[0]


def _labels(y: HostArray | None) -> HostArray | None:
    if y is None:
        return None
    if y.dtype.kind == "O":
        y = np.asarray([str(label) for label in y.ravel().tolist()]).reshape(y.shape)
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
