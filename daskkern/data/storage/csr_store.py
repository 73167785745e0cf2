"""Sparse rows on disk, in AnnData's layout: a group with the arrays ``data``, ``indices`` and ``indptr``.

References
----------
AnnData's on-disk format, "Sparse arrays", encoding version 0.1.0:
https://anndata.readthedocs.io/en/stable/fileformat-prose.html
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import zarr

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import CsrRows, csr_rows
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.whole_arrays import unwritten
from daskkern.errors import DataError, StoreError

ENCODING = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
PARTS = ("data", "indices", "indptr")

POINTER_CHUNK = 1 << 16
"""Row pointers of a chunk."""

_LEAST_ENTRIES, _MOST_ENTRIES = 1 << 14, 1 << 22  # of a chunk; fewer make many files, more read too much at once


State: TypeAlias = dict[str, HostArray]
"""The progress of a writer as named arrays: counters, and the contents of its buffers."""


def part_of(state: State, name: str) -> State:
    """Return the entries of `state` under ``name/``, without that prefix."""
    return {key.removeprefix(f"{name}/"): value for key, value in state.items() if key.startswith(f"{name}/")}


def reopened(group: zarr.Group, name: str, written: int) -> "zarr.Array[Any] | None":
    """Return an array of a group for further writing; an array without valid contents is removed."""
    if name not in group:
        return None
    if written == 0:
        del group[name]
        return None
    with zarr.config.set({"array.write_empty_chunks": True}):  # read when an array is opened
        array = group[name]
    assert isinstance(array, zarr.Array)
    return array


class GrowingVector:
    """A one-dimensional Zarr array to which values are appended, a whole chunk at a time.

    Parameters
    ----------
    group : zarr.Group
        The group in which the array is created, when its first chunk is written.
    name : str
        Its name there.
    dtype : dtype
        Of its values.
    chunk : int
        Values of a chunk.
    """

    def __init__(self, group: zarr.Group, name: str, dtype: npt.DTypeLike, chunk: int) -> None:
        self._group, self._name = group, name
        self._buffer = np.empty(chunk, dtype)
        self._fill = 0
        self._written = 0
        self._array: zarr.Array[Any] | None = None
        self.sums = Checksum()

    def append(self, values: HostArray) -> None:
        """Add values, cast to the dtype of the array."""
        done = 0
        while done < len(values):
            step = min(len(values) - done, len(self._buffer) - self._fill)
            self._buffer[self._fill : self._fill + step] = values[done : done + step]
            self._fill += step
            done += step
            if self._fill == len(self._buffer):
                self._flush()

    def settle(self) -> None:
        """Write the buffer and truncate the array to the values added. Nothing may be appended afterwards."""
        if self._fill or self._array is None:
            self._flush()
        assert self._array is not None
        self._array.resize((self._written,))

    def state(self) -> State:
        """Return what :meth:`restore` needs in addition to the written chunks."""
        return {
            "written": np.array(self._written),
            "sums": self.sums.state(),
            "buffer": self._buffer[: self._fill].copy(),
        }

    def restore(self, state: State) -> None:
        """Continue from a :meth:`state` of an earlier process, in the same group."""
        self._written, self.sums = int(state["written"]), Checksum.restored(state["sums"])
        self._fill = len(state["buffer"])
        self._buffer[: self._fill] = state["buffer"]
        self._array = reopened(self._group, self._name, self._written)

    def _flush(self) -> None:
        values = self._buffer[: self._fill]
        stop = self._written + len(values)
        if self._array is None:
            self._array = self._group.create_array(
                self._name,
                shape=(max(1, stop),),
                chunks=(len(self._buffer),),
                dtype=values.dtype,
                compressors=None,
                fill_value=0,
                overwrite=True,  # written by a dead process after its last state
                config={"write_empty_chunks": True},  # a missing chunk means a damaged store
            )
        if self._array.shape[0] < stop:  # growing by doubling limits the number of metadata writes
            self._array.resize((max(stop, 2 * self._array.shape[0]),))
        self._array[self._written : stop] = values
        self.sums.add(values)
        self._written, self._fill = stop, 0


class CsrWriter:
    """Appends CSR rows to a new group ``X`` of `parent`. Holds one chunk of entries.

    Parameters
    ----------
    parent : zarr.Group
        The group of the store.
    n_features : int
        Columns of the matrix.
    dtype : dtype
        Dtype of the entries as stored.
    entries_chunk : int
        Entries of a chunk, about as many as a chunk of rows has, so that reading rows reads little else.
    """

    def __init__(self, parent: zarr.Group, n_features: int, dtype: npt.DTypeLike, entries_chunk: int) -> None:
        chunk = entries_of_chunk(entries_chunk)
        self._chunk = chunk
        self._group = parent.require_group("X")
        self._n_features, self._dtype = n_features, np.dtype(dtype)
        self._data = GrowingVector(self._group, "data", dtype, chunk)
        self._indices = GrowingVector(self._group, "indices", index_dtype(n_features), chunk)
        self._indptr = GrowingVector(self._group, "indptr", np.int64, POINTER_CHUNK)
        self._indptr.append(np.zeros(1, np.int64))
        self.n_rows = 0
        self.n_stored = 0

    def append(self, X: CsrRows) -> None:
        """Add canonical CSR rows (m, d); see :func:`daskkern.data.rows.csr.as_csr`."""
        self._data.append(X.data)
        self._indices.append(X.indices)
        self._indptr.append(X.indptr[1:].astype(np.int64) - int(X.indptr[0]) + self.n_stored)
        self.n_rows += X.shape[0]
        self.n_stored += int(X.indptr[-1]) - int(X.indptr[0])

    def state(self) -> State:
        """Return what :meth:`resumed` needs."""
        vectors = self._vectors()
        state = {f"{name}/{key}": value for name, v in vectors.items() for key, value in v.state().items()}
        return {**state, "sizes": np.array([self.n_rows, self.n_stored, self._chunk], np.int64)}

    @classmethod
    def resumed(cls, parent: zarr.Group, n_features: int, dtype: npt.DTypeLike, state: State) -> "CsrWriter":
        """Return a writer that continues from a :meth:`state` of an earlier process."""
        n_rows, n_stored, chunk = (int(value) for value in state["sizes"])
        writer = cls(parent, n_features, dtype, chunk)
        writer.n_rows, writer.n_stored = n_rows, n_stored
        for name, vector in writer._vectors().items():
            vector.restore(part_of(state, name))
        return writer

    def _vectors(self) -> dict[str, GrowingVector]:
        return {"data": self._data, "indices": self._indices, "indptr": self._indptr}

    def settle(self) -> None:
        """Write the rest, and the attributes by which AnnData and others recognize the layout."""
        try:
            for vector in self._vectors().values():
                vector.settle()
            self._group.update_attributes(csr_attributes(self.n_rows, self._n_features))
        except OSError as error:
            raise unwritten(self._group, error) from error

    def sums(self) -> Mapping[str, Checksum]:
        """Return the checksums of each part, after :meth:`settle`."""
        return {f"X/{name}": vector.sums for name, vector in self._vectors().items()}


def make_csr(
    parent: zarr.Group, n_features: int, dtype: npt.DTypeLike, entries_chunk: int, shape: tuple[int, int]
) -> None:
    """Create the group ``X`` of `parent` that a :class:`CsrWriter` would leave, for others to write to.

    `shape` has the numbers of rows and of entries.
    """
    group, (n_rows, n_entries), chunk = parent.require_group("X"), shape, entries_of_chunk(entries_chunk)
    sizes = {"data": (n_entries, chunk, dtype), "indices": (n_entries, chunk, index_dtype(n_features))}
    for name, (size, of_chunk, kind) in {**sizes, "indptr": (n_rows + 1, POINTER_CHUNK, np.dtype(np.int64))}.items():
        group.create_array(
            name, shape=(size,), chunks=(of_chunk,), dtype=kind, compressors=None, fill_value=0, overwrite=True
        )
    group.update_attributes(csr_attributes(n_rows, n_features))


def csr_attributes(n_rows: int, n_features: int) -> dict[str, Any]:
    """Return the attributes of a group of CSR parts."""
    return {**ENCODING, "shape": [n_rows, n_features]}


def index_dtype(n_features: int) -> np.dtype[np.generic]:
    """Return the dtype of stored column numbers."""
    return np.dtype(np.int32 if n_features < 2**31 else np.int64)


def entries_of_chunk(wanted: int) -> int:
    """Return the entries of a chunk, about as many as wanted."""
    return min(max(wanted, _LEAST_ENTRIES), _MOST_ENTRIES)


class CsrReader:
    """Rows of a CSR group by position; reads only the entries of the requested rows.

    Parameters
    ----------
    group : group with ``data``, ``indices`` and ``indptr``
        A Zarr or HDF5 group: both support the same slicing.
    n_features : int
    where : str
        The name of the rows in messages.
    """

    def __init__(self, group: Any, n_features: int, where: str) -> None:
        self._data, self._indices, self._indptr = (group[name] for name in PARTS)
        self._n_features, self._where = n_features, where

    @property
    def n_stored(self) -> int:
        """Entries of all rows."""
        return int(self._data.shape[0])

    def read(self, start: int, stop: int) -> CsrRows:
        """Return the rows from `start` to `stop` (excluded) as stored, checked."""
        try:
            pointers = np.asarray(self._indptr[start : stop + 1]).astype(np.int64, copy=False)
            first, last = int(pointers[0]), int(pointers[-1])
            if not 0 <= first <= last <= self.n_stored:
                raise DataError(f"{self._where} is damaged: its row pointers are out of range; write it again")
            data, indices = np.asarray(self._data[first:last]), np.asarray(self._indices[first:last])
        except DataError:  # StoreError too
            raise
        except Exception as error:  # a truncated chunk, a lost disk or network: stores have error types of their own
            raise StoreError(
                f"rows {start} to {stop} of {self._where} cannot be read ({type(error).__name__}: {error}); copy or "
                "make it again"
            ) from error
        return csr_rows(data, indices, pointers - first, self._n_features, self._where)
