"""Arrays of one Zarr group that grow together, one chunk of rows at a time."""

from collections.abc import Mapping

import numpy as np
import zarr
from zarr.core.sync import sync

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.machine_code.crc32 import crc32
from daskkern.data.storage.checksums import Checksum, combine
from daskkern.data.storage.csr_store import State, reopened
from daskkern.data.storage.local_chunks import LocalChunks
from daskkern.data.storage.sizes import ZarrArray
from daskkern.data.storage.whole_arrays import unwritten
from daskkern.errors import DataError

_GROWTH, _LATER_GROWTH = 8, 2
_SMALL = 64  # chunks up to which arrays grow fast: a resumed one asks for each chunk that it has grown by too much


class ChunkedArrays:
    """Named arrays with the same rows. Rows are put into `buffers` and written when a chunk is full.

    Parameters
    ----------
    group : zarr.Group
        The group in which the arrays are created, when their first chunk is written.
    buffers : mapping of str to array
        One chunk (chunk_rows, ...) of each array. The caller fills rows from `fill` on and calls :meth:`commit`.
    chunk_rows : int
        Rows of a chunk, also where there are no arrays and rows stored elsewhere are only counted.
    at_once : int
        Chunks that the buffers hold, and that are written side by side; for arrays of :meth:`continue_at` alone.
    """

    def __init__(self, group: zarr.Group, buffers: Mapping[str, HostArray], chunk_rows: int, at_once: int = 1) -> None:
        self.buffers = buffers
        self.fill = 0
        self.n_rows = 0
        """Rows written; those in the buffers are not yet."""
        self.sums = {name: Checksum() for name in buffers}
        self._group = group
        self._arrays: dict[str, ZarrArray] = {}
        self._is_continued = False
        self._chunk_rows, self._buffer_rows = chunk_rows, chunk_rows * at_once

    @property
    def room(self) -> int:
        """Rows that the buffers still hold."""
        return self._buffer_rows - self.fill

    def commit(self, rows: int) -> None:
        """Accept another `rows` rows from the buffers, and write them when they complete a chunk."""
        self.fill += rows
        if self.fill == self._buffer_rows:
            self._flush()

    def settle(self) -> None:
        """Write the rest of the buffers and truncate the arrays to the rows that were added."""
        self._flush()
        if self.n_rows == 0:
            raise DataError("the data has no rows; at least one is needed")
        for array in self._arrays.values():
            shape = (self.n_rows, *array.shape[1:])
            # Zarr asks for each chunk of the shape before, of which none was written but by a dead process.
            sync(array.async_array.resize(shape, delete_outside_chunks=self._is_continued))

    def read(self, name: str, start: int) -> HostArray:
        """Return the chunk of an array that begins at row `start`, after :meth:`settle`."""
        return np.asarray(self._arrays[name][start : min(start + self._chunk_rows, self.n_rows)])

    def starts(self) -> range:
        """Return the first rows of the chunks."""
        return range(0, self.n_rows, self._chunk_rows)

    def recode(self, name: str, recode: IntArray, first: int = 0) -> None:
        """Replace every code c of an array by ``recode[c]``, from row `first` on, where a chunk begins."""
        for start in range(first, self.n_rows, self._chunk_rows):
            codes = self.read(name, start)
            self._arrays[name][start : start + len(codes)] = recode[codes]

    def recompute_checksums(self, name: str) -> None:
        """Recompute the checksums of an array from the stored chunks."""
        self.sums[name] = Checksum()
        for start in self.starts():
            self.sums[name].add(self.read(name, start))

    def counts(self, name: str, n_classes: int) -> tuple[int, ...]:
        """Return the rows of each class code of an array, after :meth:`settle`. Raises DataError for other codes."""
        counts = np.zeros(n_classes, np.int64)
        for start in self.starts():
            codes = self.read(name, start)
            if codes.min() < 0 or codes.max() >= n_classes:
                raise DataError(f"got class codes from {codes.min()} to {codes.max()}; expected 0 to {n_classes - 1}")
            counts += np.bincount(codes, minlength=n_classes)
        return tuple(int(count) for count in counts)

    @property
    def stored_chunk_rows(self) -> int:
        """Rows of a chunk on disk: fewer than requested when all rows fit in less."""
        if not self._arrays:
            return min(self._chunk_rows, self.n_rows)
        return int(next(iter(self._arrays.values())).chunks[0])

    def state(self) -> State:
        """Return what :meth:`restore` needs in addition to the written chunks."""
        state = {f"buffer:{name}": buffer[: self.fill].copy() for name, buffer in self.buffers.items()}
        sums = {f"sums:{name}": total.state() for name, total in self.sums.items()}
        return {**state, **sums, "counts": np.array([self.n_rows, self.fill], np.int64)}

    def restore(self, state: State) -> None:
        """Continue from a :meth:`state` of an earlier process, in the same group."""
        self.n_rows, self.fill = (int(value) for value in state["counts"])
        self._is_continued = True
        self.sums = {name: Checksum.restored(state[f"sums:{name}"]) for name in self.buffers}
        for name, buffer in self.buffers.items():
            buffer[: self.fill] = state[f"buffer:{name}"]
            array = reopened(self._group, name, self.n_rows)
            if array is not None:
                self._arrays[name] = array

    def make(self, n_rows: int) -> None:
        """Create the arrays for rows that other processes will write; see :meth:`continue_at`."""
        rows = min(n_rows, self._chunk_rows)
        for name, buffer in self.buffers.items():
            self._arrays[name] = self._create(name, buffer[:rows])
            self._arrays[name].resize((n_rows, *buffer.shape[1:]))

    def continue_at(self, start: int) -> None:
        """Write from row `start` on, where a chunk begins, into arrays that another process created."""
        self.n_rows = start
        self.reopen()

    def reopen(self) -> None:
        """Open arrays that another process created."""
        self._is_continued = True
        self._arrays = {name: array for name in self.buffers if (array := reopened(self._group, name, 1)) is not None}

    def leave(self) -> State:
        """Write what is in the buffers, and return what :meth:`join` needs of these rows."""
        self._flush()
        return {f"sums:{name}": total.state() for name, total in self.sums.items()}

    def join(self, state: State, rows: int) -> None:
        """Count the next `rows` rows, which another process wrote."""
        for name, buffer in self.buffers.items():
            part, total = Checksum.restored(state[f"sums:{name}"]), self.sums[name]
            total.chunks.extend(part.chunks)
            total.whole = combine(total.whole, part.whole, rows * buffer[0].nbytes)
        self.n_rows += rows

    def _flush(self) -> None:
        if self.fill == 0:
            return
        try:
            for name, buffer in self.buffers.items():
                self._write(name, buffer[: self.fill])
        except OSError as error:
            raise unwritten(self._group, error) from error
        self.n_rows += self.fill
        self.fill = 0

    def _write(self, name: str, rows: HostArray) -> None:
        if name not in self._arrays:
            self._arrays[name] = self._create(name, rows)
        array, stop = self._arrays[name], self.n_rows + len(rows)
        if array.shape[0] < stop:  # growing by a factor limits the number of metadata writes
            factor = _GROWTH if array.shape[0] <= _SMALL * self._chunk_rows else _LATER_GROWTH
            array.resize((max(stop, factor * array.shape[0]), *array.shape[1:]))
        size = self._chunk_rows
        found = _wrote_chunks(array, self.n_rows, rows)
        if found is None:
            array[self.n_rows : stop] = rows
            found = [crc32(rows[at : at + size]) for at in range(0, len(rows), size)]
        for at, crc in zip(range(0, len(rows), size), found, strict=True):
            self.sums[name].add_sum(crc, rows[at : at + size].nbytes)

    def _create(self, name: str, rows: HostArray) -> ZarrArray:
        return self._group.create_array(
            name,
            shape=rows.shape,
            chunks=rows.shape,
            dtype=rows.dtype,
            compressors=None,  # raw chunks read four times faster than zstd from the page cache
            fill_value=0,
            overwrite=True,  # written by a dead process after its last state
            # Chunks of zeros are written too, so that a missing chunk means a damaged store. The setting lives
            # in this object alone, therefore an array is never opened a second time to write to it.
            config={"write_empty_chunks": True},
        )


def _wrote_chunks(array: ZarrArray, first: int, rows: HostArray) -> list[int] | None:
    """Write the rows from `first` on where they are whole chunks of an array in a local folder; return their CRC-32."""
    size = array.chunks[0]
    files = LocalChunks.of(array, array.dtype.newbyteorder("<"))
    if files is None or first % size or len(rows) % size or not rows.flags.c_contiguous:
        return None
    return [files.write((first + at) // size, rows[at : at + size]) for at in range(0, len(rows), size)]
