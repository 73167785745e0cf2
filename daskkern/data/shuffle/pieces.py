"""Pieces: rows sorted by their keys, each piece one temporary object, of which any interval of keys is read by range.

A piece begins with the offsets of its intervals, as uint32: of the rows, and of the entries where rows are sparse. Its
rows follow, each with its key, features, target and weight side by side; a sparse row has the number of its entries in
place of the features, and the entries of all rows follow in the same order.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from daskkern.arrays import HostArray, IntArray
from daskkern.data.remote.group import remove_remote
from daskkern.data.remote.stores import RemoteStore, for_each, is_url
from daskkern.data.rows.csr import CsrRows, is_sparse
from daskkern.data.shuffle.buckets import Keys, interval_of
from daskkern.data.storage.chunk_buffers import Incoming
from daskkern.data.storage.raw_rows import StoredBlock
from daskkern.errors import StoreError

_FOLDER = "pieces"
_AT_ONCE = 16  # requests in transit
_STEP_BYTES = 4 << 20  # of rows copied at once


@dataclass(frozen=True)
class PieceFormat:
    """The layout of pieces: the dtypes of a row and of an entry (None for dense rows), and the number of intervals."""

    row: np.dtype[Any]
    entry: np.dtype[Any] | None
    n_intervals: int = 0

    @classmethod
    def of(cls, layout: Incoming, n_intervals: int = 0) -> "PieceFormat":
        """Return the format for rows of this layout."""
        fields: list[Any] = [("key", "<u8")]
        for name, buffer in layout.buffers(0).items():
            fields.append((name, buffer.dtype, buffer.shape[1:]))
        if not layout.sparse:
            return cls(np.dtype(fields), None, n_intervals)
        index = "<i4" if layout.n_features < 2**31 else "<i8"
        return cls(
            np.dtype([*fields, ("length", "<i8")]), np.dtype([("index", index), ("value", layout.dtype)]), n_intervals
        )

    @property
    def head_bytes(self) -> int:
        """Bytes before the first row."""
        return 4 * (self.n_intervals + 1) * (1 if self.entry is None else 2)

    def n_bytes(self, n_rows: int, n_entries: int) -> int:
        """Return the bytes of some rows and entries, without a head."""
        return n_rows * self.row.itemsize + (0 if self.entry is None else n_entries * self.entry.itemsize)


def encoded(form: PieceFormat, keys: Keys, block: StoredBlock) -> HostArray:
    """Return the bytes of the piece with the rows of a block, as an array of uint8."""
    order = np.argsort(keys, kind="stable")
    lengths = _lengths(block.X)[order] if is_sparse(block.X) else np.zeros(0, np.int64)
    n_entries = int(lengths.sum())
    piece = np.empty(form.head_bytes + form.n_bytes(len(keys), n_entries), np.uint8)
    ends = np.searchsorted(interval_of(keys[order], form.n_intervals), np.arange(form.n_intervals + 1))
    offsets = [ends] if form.entry is None else [ends, np.concatenate([[0], np.cumsum(lengths)])[ends]]
    piece[: form.head_bytes] = np.concatenate(offsets).astype("<u4").view(np.uint8)
    rows = piece[form.head_bytes :][: form.n_bytes(len(keys), 0)].view(form.row)
    rows["key"] = keys[order]
    step = max(1, _STEP_BYTES // form.row.itemsize)
    for name in [name for name in ("X", "y", "weight") if name in (form.row.names or ())]:
        values = getattr(block, name)
        for at in range(0, len(order), step):
            rows[name][at : at + step] = values[order[at : at + step]]
    if form.entry is not None and is_sparse(block.X):
        rows["length"] = lengths
        _put_entries(piece[form.head_bytes + rows.nbytes :].view(form.entry), block.X, order)
    return piece


def _lengths(X: CsrRows) -> IntArray:
    return np.diff(X.indptr).astype(np.int64)


def entry_positions(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the positions of all entries of some rows, of which row i has `lengths[i]` from `starts[i]` on."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def row_steps(lengths: IntArray, n_entries: int) -> list[tuple[int, int]]:
    """Return ranges of rows that have about `n_entries` entries together, at least one row each."""
    before = np.concatenate([[0], np.cumsum(lengths)])
    steps, start = [], 0
    while start < len(lengths):
        stop = max(start + 1, int(np.searchsorted(before, before[start] + n_entries, side="right")) - 1)
        steps.append((start, stop))
        start = stop
    return steps


def _put_entries(entries: HostArray, X: CsrRows, order: IntArray) -> None:
    starts, lengths = X.indptr[:-1].astype(np.int64)[order], _lengths(X)[order]
    at = 0
    for first, last in row_steps(lengths, _STEP_BYTES // entries.itemsize):
        positions = entry_positions(starts[first:last], lengths[first:last])
        entries["index"][at : at + len(positions)] = X.indices[positions]
        entries["value"][at : at + len(positions)] = X.data[positions]
        at += len(positions)


class Pieces:
    """The pieces of a shuffle in the folder, or below the URL, of the new store."""

    def __init__(self, place: str, form: PieceFormat) -> None:
        self._form = form
        self._place = f"{place}/{_FOLDER}"
        if is_url(place):
            self._store = RemoteStore.at(self._place, read_only=False)
        else:
            self._store = RemoteStore(LocalStore(self._place), self._place)

    def remove(self) -> None:
        """Remove all pieces."""
        if is_url(self._place):
            remove_remote(self._place)
        else:
            shutil.rmtree(self._place)

    def write(self, name: str, piece: HostArray) -> None:
        """Write a piece. Raises StoreError."""
        sync(self._store.set(name, default_buffer_prototype().buffer.from_array_like(piece)))

    def offsets(self, name: str) -> HostArray | None:
        """Return the offsets (1 or 2, intervals + 1) of a piece; None unless it is complete."""
        form = self._form
        try:
            head = sync(self._store.get(name, default_buffer_prototype(), RangeByteRequest(0, form.head_bytes)))
            size = 0 if head is None else sync(self._store.getsize(name))
        except FileNotFoundError:
            return None
        if head is None or len(head) != form.head_bytes:
            return None
        found = head_offsets(form, head.as_numpy_array().view(np.uint8))
        return found if size == form.head_bytes + form.n_bytes(*_ends(found)) else None

    def read(self, names: Sequence[str], bounds: HostArray, totals: HostArray, *, entries: bool) -> list[HostArray]:
        """Return the rows of some intervals, piece after piece, and their entries if `entries`.

        Parameters
        ----------
        names : sequence of str
            The pieces, in the order of their rows.
        bounds : array of int (pieces, 1 or 2, 2)
            First and last offset of the rows, and of the entries, in each piece.
        totals : array of int (pieces,)
            The rows of each piece: where its entries begin.
        entries : bool

        Raises
        ------
        StoreError
            When a piece is missing or cannot be read.
        """
        form = self._form
        found: list[HostArray] = []
        requests: list[tuple[str, int, HostArray]] = []
        for kind, dtype in enumerate((form.row, form.entry) if entries else (form.row,)):
            assert dtype is not None
            counts = bounds[:, kind, 1] - bounds[:, kind, 0]
            values = np.empty(int(counts.sum()), dtype)
            starts = form.head_bytes + kind * totals * form.row.itemsize + bounds[:, kind, 0] * dtype.itemsize
            to = values.view(np.uint8)
            ends = np.cumsum(counts) * dtype.itemsize
            for name, start, end, count in zip(names, starts, ends, counts, strict=True):
                if count:
                    requests.append((name, int(start), to[end - count * dtype.itemsize : end]))
            found.append(values)
        sync(for_each(self._fetch, requests, _AT_ONCE))
        return found

    async def _fetch(self, request: tuple[str, int, HostArray]) -> None:
        name, start, to = request
        wanted = RangeByteRequest(start, start + len(to))
        found = await self._store.get(name, default_buffer_prototype(), wanted)
        if found is None or len(found) != len(to):
            raise StoreError(
                f"the temporary object {self._place}/{name} of the shuffle is "
                f"{'gone' if found is None else 'too short'}; does another process write or remove there? Start over"
            )
        to[:] = found.as_numpy_array().view(np.uint8)


def head_offsets(form: PieceFormat, piece: HostArray) -> HostArray:
    """Return the offsets (1 or 2, intervals + 1) of the piece with these bytes."""
    return piece[: form.head_bytes].view("<u4").reshape(-1, form.n_intervals + 1).astype(np.uint32)


def _ends(offsets: HostArray) -> tuple[int, int]:
    return int(offsets[0, -1]), int(offsets[-1, -1])
