"""Columns of HDF5 and Zarr files: plain arrays, strings, and AnnData's categorical and nullable columns."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError

_NULLABLE = {"nullable-integer", "nullable-boolean", "nullable-string-array"}


@dataclass(frozen=True)
class Annotation:
    """A column of a file: `read(start, stop)` returns values; `dtype` is theirs, for strings of any width."""

    name: str
    shape: tuple[int, ...]
    dtype: "np.dtype[np.generic]"
    read: Callable[[int, int], HostArray]


def annotation(node: Any, name: str, where: str) -> Annotation:
    """Return the column that a group or an array of h5py or Zarr holds."""
    if not hasattr(node, "shape"):
        return _encoded(node, name, where)
    if _is_text(node):
        return Annotation(name, tuple(node.shape), np.dtype("U1"), lambda start, stop: texts(node, start, stop))
    dtype = np.dtype(node.dtype).newbyteorder("=")
    refuse_packed(node, name, where)
    return Annotation(
        name, tuple(node.shape), dtype, lambda start, stop: np.asarray(node[start:stop]).astype(dtype, copy=False)
    )


def refuse_packed(node: Any, name: str, where: str) -> None:
    """Raise DataError for an array whose values mean others, by the attributes of the CF conventions."""
    attributes = dict(getattr(node, "attrs", {}))
    found = [key for key in ("scale_factor", "add_offset") if key in attributes]
    found += [key for key in ("_FillValue", "missing_value") if _marks_gaps(attributes.get(key), node.dtype)]
    if found:
        raise DataError(
            f"{name!r} of {where} holds packed values (attribute {', '.join(found)}), which an ingestion would take as "
            "they are; write the unpacked values, or fit a Zarr store of xarray without ingestion, which unpacks them"
        )


def _marks_gaps(fill: Any, dtype: "np.dtype[np.generic]") -> bool:
    """Return whether a fill value is a number; NaN is none, also in the Base64 that xarray writes for Zarr 3."""
    if fill is None:
        return False
    try:
        if isinstance(fill, str):
            fill = np.frombuffer(base64.b64decode(fill, validate=True), dtype.newbyteorder("<"))
        return not np.isnan(np.asarray(fill, np.float64)).all()
    except (TypeError, ValueError):  # no number
        return False


def texts(array: Any, start: int, stop: int) -> HostArray:
    """Return the strings of an array as NumPy strings of a fixed width."""
    values = np.asarray(array[start:stop])
    decoded = [item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in values.tolist()]
    return np.asarray(decoded, dtype=str) if decoded else np.empty(0, "U1")


def _encoded(group: Any, name: str, where: str) -> Annotation:
    encoding = group.attrs.get("encoding-type")
    if encoding == "categorical" or {"codes", "categories"} <= set(map(str, group)):
        return _categorical(group, name, where)
    if encoding in _NULLABLE:
        return _nullable(group, name, where)
    raise DataError(f"{name!r} of {where} is a group of encoding {encoding!r}; expected an array of one value per row")


def _categorical(group: Any, name: str, where: str) -> Annotation:
    codes = group["codes"]
    categories = annotation(group["categories"], f"{name}/categories", where)
    labels = categories.read(0, categories.shape[0])

    def read(start: int, stop: int) -> HostArray:
        found = np.asarray(codes[start:stop])
        if found.size and (found.min() < 0 or found.max() >= len(labels)):
            row = int(np.argmax((found < 0) | (found >= len(labels))))
            raise _missing(start + row, name, where)
        return labels[found]

    return Annotation(name, tuple(codes.shape), categories.dtype, read)


def _nullable(group: Any, name: str, where: str) -> Annotation:
    values = annotation(group["values"], name, where)

    def read(start: int, stop: int) -> HostArray:
        gaps = np.asarray(group["mask"][start:stop]).astype(bool)
        if gaps.any():
            raise _missing(start + int(np.argmax(gaps)), name, where)
        return values.read(start, stop)

    return Annotation(name, values.shape, values.dtype, read)


def _missing(row: int, name: str, where: str) -> DataError:
    return DataError(f"row {row} of {where} (counted from 0) has no value in {name!r}; remove such rows")


def _is_text(array: Any) -> bool:
    return array.dtype.kind in "OTSU"
