"""Serialization of arrays between workers: bytes, dtype and shape, without pickle.

Dask's own serializers send a pickled type with every buffer. The family registered here carries only the raw
bytes; dtype and shape travel as plain values in the message and are checked on arrival.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from distributed.protocol.serialize import Serialized, register_serialization_family

from daskkern.arrays import HostArray
from daskkern.errors import SpecError

DTYPES = ("float32", "float64", "int64")
"""Dtypes that a collective accepts."""

BYTES = ("uint8",)
"""Dtype of the messages of a channel, which carries bytes."""

_FAMILY = "daskkern-bytes"


def _dump(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    return {"serializer": _FAMILY}, [data]


def _load(header: Mapping[str, Any], frames: Sequence[Any]) -> memoryview:
    del header
    if len(frames) != 1:
        raise ValueError(f"got an array in {len(frames)} frames; expected 1")
    return memoryview(frames[0]).cast("B")


register_serialization_family(_FAMILY, _dump, _load)


def pack(array: HostArray, dtypes: Sequence[str] = DTYPES) -> dict[str, Any]:
    """Return the fields of a message that carries a snapshot of `array`.

    The bytes are copied: Dask queues a message and returns, and the caller may write into `array` meanwhile.

    Raises
    ------
    SpecError
        When the dtype is not one of `dtypes`.
    """
    if array.dtype.name not in dtypes:
        raise SpecError(f"got a {array.dtype} array in a collective; expected one of {', '.join(dtypes)}")
    header, frames = _dump(array.tobytes())
    return {"dtype": array.dtype.name, "shape": array.shape, "data": Serialized(header, frames)}


def unpack(dtype: str, shape: Sequence[int], data: Any) -> HostArray:
    """Rebuild the array of :func:`pack`. The result may be a read-only or unaligned view of a receive buffer.

    Raises
    ------
    ValueError
        When the fields do not describe an array, or the number of bytes does not match.
    """
    if dtype not in (*DTYPES, *BYTES):
        raise ValueError(f"a message carries the dtype {dtype!r}, which no collective sends")
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"a message carries the shape {tuple(shape)!r}")
    if not isinstance(data, memoryview):
        raise ValueError(f"a message carries a {type(data).__name__} where the bytes of an array belong")
    expected = prod(shape) * np.dtype(dtype).itemsize
    if data.nbytes != expected:
        raise ValueError(f"a message of {data.nbytes} bytes was announced as {dtype} {tuple(shape)}")
    if expected == 0:  # frombuffer refuses an empty buffer
        return np.empty(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape)


def owned(array: HostArray) -> HostArray:
    """Return an independent copy of `array`: writable, aligned, contiguous."""
    return np.array(array, order="C", copy=True)
