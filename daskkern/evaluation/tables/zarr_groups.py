"""Predictions as the arrays of a Zarr group."""

from typing import Any

import numpy as np
import pyarrow as pa
import zarr

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.evaluation.tables.blocks import BlockResult
from daskkern.evaluation.tables.columns import PredictedArrays
from daskkern.models import KernelModel

_CHUNK_ROWS = 4096


class GroupWriter:
    """Appends predictions to a group: `prediction`, `scores`, `probability`, `std`, `interval`, `in_set`, kept columns.

    Labels that are texts are written as codes, whose meaning is in the attribute ``classes``.
    """

    def __init__(self, group: zarr.Group, model: KernelModel, n_rows: int | None) -> None:
        self._group, self._model, self._n_rows = group, model, n_rows
        self._coded = model.classes is not None and isinstance(model.classes[0], str)
        self._arrays: dict[str, zarr.Array[Any]] = {}
        self._done = 0

    def write(self, result: BlockResult) -> None:
        """Append the next rows."""
        assert result.arrays is not None
        values = self._named(result.arrays)
        for name, column in () if result.kept is None else _columns(result.kept):
            if name in values:
                raise SpecError(f"got the column {name!r} to keep, which predictions have, too; leave it out")
            values[name] = column
        stop = self._done + result.n_rows
        for name, value in values.items():
            array = self._arrays.get(name)
            if array is None:
                array = self._arrays[name] = self._made(name, value)
            if array.shape[0] < stop:
                array.resize((stop, *array.shape[1:]))
            array[self._done : stop] = value
        self._done = stop

    def finish(self) -> str:
        """Write the attributes, and return a short summary."""
        model, classes = self._model, self._model.classes
        self._group.update_attributes(
            {
                "version": 1,
                "task": model.task,
                "classes": None if classes is None else list(classes),
                "coded": self._coded,
            }
        )
        what = {"classification": "labels", "multilabel": "a label of 0 or 1 in each column"}.get(model.task, "values")
        what = "codes of 'classes' in its attributes" if self._coded else what
        return f"arrays {', '.join(self._arrays)}; prediction holds {what}"

    def _named(self, found: PredictedArrays) -> dict[str, HostArray]:
        labelled = self._model.classes is not None and not self._coded
        prediction = self._model.class_array()[found.prediction] if labelled else found.prediction
        values = {
            "prediction": prediction,
            "scores": found.scores,
            "probability": found.probability,
            "std": found.std,
            "interval": found.interval,
            "in_set": found.inside,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _made(self, name: str, value: HostArray) -> zarr.Array[Any]:
        n = len(value) if self._n_rows is None else self._n_rows
        rows = _CHUNK_ROWS if self._n_rows is None else min(_CHUNK_ROWS, n)
        dtype = str if value.dtype.kind == "O" else value.dtype
        chunks = (rows, *value.shape[1:])
        return self._group.create_array(name, shape=(n, *value.shape[1:]), chunks=chunks, dtype=dtype, compressors=None)


def _columns(kept: pa.RecordBatch) -> list[tuple[str, HostArray]]:
    """Return kept columns as arrays that Zarr holds: numbers, booleans, dates and texts without gaps."""
    found = []
    for name, column in zip(kept.schema.names, kept.columns, strict=True):
        values = column.to_numpy(zero_copy_only=False)
        gaps = column.null_count and values.dtype.kind not in "fM"
        texts = values.dtype.kind == "O" and all(isinstance(value, str) for value in values)
        if gaps or (values.dtype.kind not in "biufM" and not texts):
            what = "misses values" if gaps else f"holds {column.type} values"
            raise SpecError(
                f"column {name!r} {what}, which a Zarr array does not hold; write the predictions to a .parquet file"
            )
        found.append((name, np.ascontiguousarray(values)))
    return found
