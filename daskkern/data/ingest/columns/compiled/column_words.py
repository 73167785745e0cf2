"""The words by which compiled loops find a column: addresses in Arrow's buffers, whose sizes are checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray
from daskkern.data.ingest.columns.compiled.kinds import KINDS
from daskkern.errors import DataError

_KINDS = {
    **{kind.id: str(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind.id: str(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.float32().id: "float32",
    pa.float64().id: "float64",
    pa.bool_().id: "boolean",
    pa.date32().id: "int32",
    pa.timestamp("s").id: "time",
    pa.date64().id: "time",
}
_PER_DAY = {"s": 86400.0, "ms": 86400e3, "us": 86400e6, "ns": 86400e9}


def kind_of(kind: pa.DataType) -> str | None:
    """Return the one of :data:`KINDS` that columns of an Arrow type are; None of those that need more than a loop."""
    return _KINDS.get(kind.id)


def divisor_of(kind: pa.DataType) -> int:
    """Return the bits of the float64 by which times of an Arrow type are divided; 0 of other types."""
    if pa.types.is_timestamp(kind):
        return int(np.float64(_PER_DAY[kind.unit]).view(np.int64))
    return int(np.float64(_PER_DAY["ms"]).view(np.int64)) if pa.types.is_date64(kind) else 0


def fill_bits(fills: Sequence[float | None]) -> list[int]:
    """Return the bits of the float32 that replaces the missing values of each column; NaN where nothing does."""
    with np.errstate(over="ignore"):
        values = np.array([np.nan if fill is None else fill for fill in fills], np.float64).astype(np.float32)
    bits: list[int] = values.view(np.uint32).tolist()
    return bits


@dataclass
class ColumnMemory:
    """Finds values and bitmaps of columns, and holds those bitmaps that had to be copied."""

    held: list[HostArray] = field(default_factory=list)

    def of(self, array: pa.Array, kind: str, name: str) -> tuple[int, int]:
        """Return the addresses of the values, and of the bitmap of present ones, 0 where all are.

        Raises
        ------
        DataError
            When a buffer is smaller than the rows need.
        """
        validity, values = array.buffers()
        size = KINDS[kind][1]
        start, stop = array.offset, array.offset + len(array)
        if values is None or not values.is_cpu or values.size < (size * stop or -(-stop // 8)):
            raise _damaged(name)
        address = values.address + size * start if size else self._bits(values, start, stop)
        if not array.null_count:
            return address, 0
        if validity is None or not validity.is_cpu or validity.size < -(-stop // 8):
            raise _damaged(name)
        return address, self._bits(validity, start, stop)

    def _bits(self, bitmap: pa.Buffer, start: int, stop: int) -> int:
        """Return the address of bits of which the first is that of row `start`, the lowest of its byte."""
        if start % 8 == 0:
            return int(bitmap.address) + start // 8
        used = np.frombuffer(bitmap, np.uint8)[start // 8 : -(-stop // 8)]
        bits = np.unpackbits(used, bitorder="little")[start % 8 : start % 8 + stop - start]
        moved: HostArray = np.packbits(bits, bitorder="little")
        self.held.append(moved)
        return int(moved.ctypes.data)


def _damaged(name: str) -> DataError:
    return DataError(f"column {name!r} is damaged: its memory is smaller than its rows; make the data again")
