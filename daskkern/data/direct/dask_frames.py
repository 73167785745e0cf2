"""A Dask dataframe as a table, read one partition at a time: of pandas, or of cuDF on GPUs.

A partition is computed where a rank needs it, with the columns that are read. Where a partition on a GPU has numbers
only, and none is missing, a rank on a GPU takes its features from there. Otherwise it becomes an Arrow table, whose
numbers are copied to the host.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from dask.base import compute, is_dask_collection, tokenize
from distributed import futures_of

from daskkern.arrays import Array
from daskkern.data.ingest.readers.arrow import is_number
from daskkern.data.ingest.readers.tables import Parts, Request
from daskkern.data.ingest.readers.typed_tables import TypedFile, after, open_typed
from daskkern.errors import DataError

_NAME = "the dask dataframe"
_SEEN_ROWS = 1000  # of the first partition with rows, to learn the types of its columns


def is_dask_frame(X: Any) -> bool:
    """Return whether `X` is a dataframe of dask, dask-cudf or dask-expr."""
    return is_dask_collection(X) and hasattr(X, "partitions") and hasattr(X, "columns") and hasattr(X, "map_partitions")


def frame_key(frame: Any) -> str:
    """Return a digest of what the frame computes."""
    return str(tokenize(frame))


def open_dask_frame(frame: Any, request: Request) -> Parts:
    """Return the rows of a dask dataframe. Every partition is computed once, for its length.

    Raises
    ------
    DataError
        For a frame that the workers of a cluster hold, and one without rows.
    """
    if futures_of(frame):
        raise DataError(
            "got a dask dataframe that persist() holds on a cluster, whose partitions no other process can compute; "
            "give it as it was before persist()"
        )
    lengths = frame.map_partitions(len)
    sizes = [int(np.asarray(size).sum()) for size in compute(*lengths.to_delayed())]
    there = [number for number, size in enumerate(sizes) if size]
    if not there:
        raise DataError("the dask dataframe has no rows; at least one is needed")
    first = _computed(frame.partitions[there[0]])
    schema = _arrow(first.head(_SEEN_ROWS), None).schema.remove_metadata()
    files = [_Partition(frame, number, schema) for number in there]
    typed = [TypedFile(Path(_NAME), sizes[file.number], schema, file.batches, (0,)) for file in files]
    parts = open_typed(typed, request)
    if not hasattr(first, "to_cupy") or not _has_numbers(parts, schema):
        return parts
    names = list(parts.train.feature_names or ())

    def features_on(dtype: npt.DTypeLike) -> Iterator[Array]:
        return (file.features(names, dtype) for file in files)

    return replace(parts, train=replace(parts.train, features_on=features_on))


def _has_numbers(parts: Parts, schema: pa.Schema) -> bool:
    """Return whether the features of a table are columns of numbers as they are, without missing ones."""
    table = parts.train
    if table.encoding is not None or parts.missing != "refuse":
        return False
    return all(name in schema.names and is_number(schema.field(name).type) for name in table.feature_names or ())


@dataclass(frozen=True, eq=False)
class _Partition:
    """A partition of a frame."""

    frame: Any
    number: int
    schema: pa.Schema

    def batches(self, names: Sequence[str], rows: int, start: int) -> Iterator[pa.RecordBatch]:
        chosen = self.frame[list(names)].partitions[self.number]
        wanted = pa.schema([self.schema.field(name) for name in names])
        try:
            table = _arrow(_computed(chosen), wanted)
        except (pa.ArrowException, TypeError) as error:
            raise DataError(
                f"partition {self.number} of the dask dataframe does not have the column types of the first ({error}); "
                "make them the same with astype"
            ) from error
        yield from after(table.combine_chunks().to_batches(max_chunksize=rows), start)

    def features(self, names: Sequence[str], dtype: npt.DTypeLike) -> Array:
        """Return columns of numbers of a frame of cuDF as an array (m, d) on its GPU."""
        part = _computed(self.frame[list(names)].partitions[self.number])
        try:
            return part.to_cupy(dtype=np.dtype(dtype))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"partition {self.number} of the dask dataframe has missing values, or no numbers, where it had some "
                f"when the fit began ({error}); do not change the data during a fit"
            ) from error


def _computed(part: Any) -> Any:
    return part.compute(scheduler="synchronous")


def _arrow(part: Any, schema: pa.Schema | None) -> pa.Table:
    """Return a frame as an Arrow table in host memory, without its index."""
    if hasattr(part, "to_arrow"):  # as frames of cuDF have
        table = part.to_arrow(preserve_index=False)
        return table if schema is None else table.cast(schema)
    return pa.Table.from_pandas(part, schema=schema, preserve_index=False)
