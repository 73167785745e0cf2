"""Scattered rows, read by byte ranges where chunks are stored uncompressed.

Landmarks and other samples are few rows of every chunk: ten thousand rows of a 20 GB store are spread over all chunks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest
from zarr.codecs import BytesCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import ZipStore

from daskkern.arrays import HostArray, IntArray
from daskkern.data.remote.stores import for_each
from daskkern.data.storage.local_chunks import LocalChunks
from daskkern.errors import StoreError

GAP = 1 << 17
"""Bytes: ranges with smaller gaps are read together, since a request costs as much as reading some 100 kB."""
PART_BYTES = 1 << 22
"""Bytes that are read at once, or those of one range if that is more."""
_AT_ONCE = 32


@dataclass(frozen=True)
class _Range:
    """Rows from `first` to `last` (included) of one chunk, of which those at ``slots`` of the positions are needed.

    `whole` says that these are all of them, each once.
    """

    first: int
    last: int
    slots: slice
    whole: bool

    @property
    def n_rows(self) -> int:
        """Number of rows that are read."""
        return self.last - self.first + 1


def has_plain_chunks(array: "zarr.Array[Any]") -> bool:
    """Return whether rows are byte ranges of chunks: neither compressed nor sharded, and not split along columns."""
    codecs = _codecs(array)
    return len(codecs) == 1 and isinstance(codecs[0], BytesCodec) and tuple(array.chunks[1:]) == tuple(array.shape[1:])


def local_chunks_of(array: "zarr.Array[Any]") -> LocalChunks | None:
    """Return the chunk files of an array with plain chunks; None if they are not read from files."""
    return LocalChunks.of(array, array.dtype.newbyteorder(_byte_order(array)))


def rows_in_chunk(array: "zarr.Array[Any]", start: int, stop: int) -> HostArray | None:
    """Return rows that lie in one plain chunk of a local folder, read from its file alone.

    None of other rows, and where the file has another size or cannot be read: Zarr says why.
    """
    size, stop = array.chunks[0], min(stop, array.shape[0])
    if not 0 <= start < stop or start // size != (stop - 1) // size or not has_plain_chunks(array):
        return None
    local = local_chunks_of(array)
    if local is None:
        return None
    rows: HostArray = np.empty((stop - start, *array.shape[1:]), array.dtype)
    try:
        if not local.is_whole(start, rows[0].nbytes):
            return None
        local.read(start, rows)
    except OSError:
        return None
    return rows


def gives_ranges(array: "zarr.Array[Any]") -> bool:
    """Return whether parts of chunks can be read from the location of an array, at less cost than whole chunks.

    Simple web servers do not support it; from a zip file everything before a part is read, too. Requests one byte of
    the metadata. Raises StoreError when it cannot be read.
    """
    store, key = array.store_path.store, f"{array.store_path.path}/zarr.json".lstrip("/")
    if isinstance(store, ZipStore) or "zip::" in str(getattr(store, "url", "")):
        return False
    try:
        found = sync(store.get(key, default_buffer_prototype(), RangeByteRequest(0, 1)))
    except Exception as error:  # each store has error types of its own
        if any("NotSupported" in type(reason).__name__ for reason in (error, error.__cause__)):
            return False
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{array.store_path} cannot be read ({type(error).__name__}: {error})") from error
    return found is not None and len(found) == 1


def parts_at(
    array: "zarr.Array[Any]", positions: IntArray, *, gap: int = GAP, part_bytes: int = PART_BYTES
) -> Iterator[tuple[slice, HostArray]]:
    """Yield slices and the rows at ``positions[slice]`` of an array, not scaled, one part after the other.

    Rows close to each other are read together, each byte once, and up to 32 ranges at once.

    Parameters
    ----------
    array : zarr.Array
        An array for which :func:`has_plain_chunks` is true.
    positions : (k,) int64
        Ascending; repeated ones are allowed.
    gap : int
        Bytes up to which what lies between two rows is read with them.
    part_bytes : int
        Bytes of a part, at most; one range that is longer is a part by itself.

    Raises
    ------
    StoreError
        When a chunk is missing, too short or cannot be read; the message names it.

    Notes
    -----
    Memory: `part_bytes` as read, or one chunk if that is more, and the requested rows of it, twice.
    """
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    local = local_chunks_of(array)
    part: list[_Range] = []
    filled = 0
    for span in _ranges(positions, array.chunks[0], row_bytes, gap):
        size = span.n_rows * row_bytes
        if part and filled + size > part_bytes:
            yield _read(array, positions, part, local)
            part, filled = [], 0
        part.append(span)
        filled += size
    if part:
        yield _read(array, positions, part, local)


def rows_at(array: "zarr.Array[Any]", positions: IntArray) -> HostArray:
    """Return the rows at ascending positions (k,) as one array; see :func:`parts_at`."""
    rows = np.empty((positions.size, *array.shape[1:]), array.dtype.newbyteorder("="))
    for places, part in parts_at(array, positions):
        rows[places] = part
    return rows


def _ranges(positions: IntArray, chunk_rows: int, row_bytes: int, gap: int) -> Iterator[_Range]:
    """Yield the ranges of rows to read, split where chunks end, and where a gap is not worth reading."""
    if not positions.size:
        return
    steps = np.diff(positions)
    apart = (steps - 1) * row_bytes > gap
    cuts = np.flatnonzero(apart | (np.diff(positions // chunk_rows) > 0)) + 1
    starts = np.concatenate([[0], cuts])
    ends = np.concatenate([cuts, [positions.size]])
    first, last = positions[starts], positions[ends - 1]
    whole = (last - first + 1 == ends - starts) & bool((steps > 0).all())
    for span in zip(*(part.tolist() for part in (first, last, starts, ends, whole)), strict=True):
        yield _Range(span[0], span[1], slice(span[2], span[3]), span[4])


def _read(
    array: "zarr.Array[Any]", positions: IntArray, part: list[_Range], local: LocalChunks | None
) -> tuple[slice, HostArray]:
    places = slice(part[0].slots.start, part[-1].slots.stop)
    rows = np.empty((places.stop - places.start, *array.shape[1:]), array.dtype.newbyteorder("="))

    def place(span: _Range) -> HostArray:
        return rows[span.slots.start - places.start : span.slots.stop - places.start]

    async def one(span: _Range) -> None:
        block = await _rows(array, span)
        place(span)[...] = block if span.whole else block[positions[span.slots] - span.first]

    if local is None:
        sync(for_each(one, part, _AT_ONCE))
        return places, rows
    for span in part:
        try:
            if span.whole:
                local.read(span.first, place(span))
            else:
                block = np.empty((span.n_rows, *array.shape[1:]), rows.dtype)
                local.read(span.first, block)
                place(span)[...] = block[positions[span.slots] - span.first]
        except OSError as error:
            raise _damaged(array, span, str(error)) from error
    return places, rows


async def _rows(array: "zarr.Array[Any]", span: _Range) -> HostArray:
    """Return the rows of a range as stored in their chunk."""
    chunk_rows, shape = array.chunks[0], (span.n_rows, *array.shape[1:])
    stored = array.dtype.newbyteorder(_byte_order(array))
    number = span.first // chunk_rows
    key = array.metadata.encode_chunk_key((number, *(0 for _ in shape[1:])))
    path = f"{array.store_path.path}/{key}".lstrip("/")
    size = stored.itemsize * int(np.prod(shape))
    begin = (span.first - number * chunk_rows) * (size // shape[0])
    try:
        found = await array.store_path.store.get(
            path, default_buffer_prototype(), RangeByteRequest(begin, begin + size)
        )
    except StoreError:
        raise
    except Exception as error:  # a lost disk or network: stores have error types of their own
        raise _damaged(array, span, f"{type(error).__name__}: {error}") from error
    if found is None or len(found) != size:
        what = "is missing" if found is None else "is shorter than its metadata says"
        raise _damaged(array, span, f"chunk {key} {what}")
    return np.frombuffer(found.as_buffer_like(), stored).reshape(shape)


def _codecs(array: "zarr.Array[Any]") -> tuple[Any, ...]:
    return tuple(getattr(array.metadata, "codecs", ()))


def _byte_order(array: "zarr.Array[Any]") -> Any:
    endian = _codecs(array)[0].endian
    if endian is None:
        return "="
    return {"little": "<", "big": ">"}[getattr(endian, "value", endian)]  # an enumeration before zarr 3.4


def _damaged(array: "zarr.Array[Any]", span: _Range, reason: str) -> StoreError:
    return StoreError(
        f"rows {span.first} to {span.last + 1} of {array.store_path} cannot be read ({reason}); "
        "copy the store again or ingest the data again"
    )
