"""Writing one store from several processes: one creates and joins it, the others write parts aligned to chunks."""

import zarr

from daskkern.arrays import IntArray
from daskkern.data.remote.stores import is_url
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.csr_store import State, part_of
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.part_record import RecordPlace

_AT_ONCE, _AT_ONCE_BYTES = 8, 32 << 20
"""Chunks that are written side by side to a remote store, and their bytes at most."""


class SharedWriter(StoreWriter):
    """A :class:`StoreWriter` of dense rows that other processes write.

    The process that enters it calls :meth:`make_room`, and when the others are done :meth:`join_part` for each of
    them in the order of the rows. Another process creates a writer for the same place, which it does not enter, and
    calls :meth:`write_part`, appends its rows, and calls :meth:`leave_part`. With a resume key, what a killed process
    left is taken up (`found`).
    """

    @property
    def place(self) -> str:
        """The folder or URL at which parts are written, once entered."""
        assert self.partial is not None
        return self.partial.place

    @property
    def found(self) -> bool:
        """Whether the arrays, and a record of finished parts, were found."""
        return self.partial is not None and self.partial.found

    @property
    def record_place(self) -> RecordPlace | None:
        """Where to record finished parts; None without a resume key."""
        return None if self.partial is None else self.partial.record

    def make_room(self, n_rows: int, *, has_parts: bool) -> None:
        """Create arrays of `n_rows` rows, into which other processes write parts; or open those that have parts."""
        if has_parts:
            self._arrays.reopen()
        else:
            self._arrays.make(n_rows)

    def write_part(self, group: zarr.Group, start: int) -> None:
        """Append rows from row `start` on, where a chunk begins, into the group of another process. Not entered."""
        self._group = group
        rows, chunk = self._chunk_rows, self._incoming.n_features * self._incoming.dtype.itemsize * self._chunk_rows
        at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // chunk)) if is_url(self.path) else 1
        self._buffers = self._incoming.buffers(rows * at_once)
        self._arrays = ChunkedArrays(group, self._buffers, rows, at_once)
        self._arrays.continue_at(start)

    def leave_part(self) -> State:
        """Write the rest of a part and return what :meth:`join_part` needs."""
        sums = {f"arrays/{key}": value for key, value in self._arrays.leave().items()}
        return {**self._observed.state(), **sums}

    def join_part(self, state: State, rows: int, recode: IntArray | None) -> None:
        """Count the next `rows` rows, which another process wrote; their class code c becomes ``recode[c]``."""
        first = self._arrays.n_rows
        self._arrays.join(part_of(state, "arrays"), rows)
        self._observed.add(state)
        if recode is not None:
            self._arrays.recode("y", recode, first)

    def sum_classes(self) -> None:
        """Recompute the checksums of the class codes, when all parts have joined."""
        self._arrays.recompute_checksums("y")
