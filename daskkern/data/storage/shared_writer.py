"""Writing one store from several processes: one creates and joins it, the others write parts aligned to chunks."""

from typing import Self

import zarr

from daskkern.arrays import IntArray
from daskkern.data.remote.group import PROGRESS as REMOTE_PROGRESS
from daskkern.data.remote.group import resumable_remote_group
from daskkern.data.remote.stores import is_url
from daskkern.data.schema.schema import FORMAT
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.csr_store import State, part_of
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.part_record import RecordPlace
from daskkern.data.transactions.resumable import PROGRESS

_AT_ONCE, _AT_ONCE_BYTES = 8, 32 << 20
"""Chunks that are written side by side to a remote store, and their bytes at most."""


class SharedWriter(StoreWriter):
    """A :class:`StoreWriter` of dense rows that other processes write.

    The process that enters it calls :meth:`make_room`, and when the others are done :meth:`join_part` for each of
    them in the order of the rows. Another process creates a writer for the same place, which it does not enter, and
    calls :meth:`write_part`, appends its rows, and calls :meth:`leave_part`. With a resume key, what a killed process
    left is taken up (`found`), also at a URL.
    """

    place: str
    """The folder or URL at which parts are written, once entered."""
    found = False
    """Whether the arrays, and a record of finished parts, were found."""

    def __enter__(self) -> Self:
        if not is_url(self.path):
            super().__enter__()
            assert self.partial is not None
            self.place, self.found = str(self.partial.folder), self.partial.found
            return self
        remote = self._stack.enter_context(
            resumable_remote_group(self.path, kind=FORMAT, key=self.resume_key, overwrite=self._overwrite)
        )
        self._group, self.place, self.found = remote.group, remote.url, remote.found
        self._open_arrays()
        return self

    @property
    def record_place(self) -> RecordPlace | None:
        """Where to record finished parts; None without a resume key."""
        if self.resume_key is None:
            return None
        if is_url(self.place):
            return RecordPlace(self.place, REMOTE_PROGRESS)
        assert self.partial is not None
        return RecordPlace(self.partial.folder, PROGRESS)

    def make_room(self, n_rows: int) -> None:
        """Create arrays of `n_rows` rows, into which other processes write parts; or open those that were found."""
        if self.found:
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
