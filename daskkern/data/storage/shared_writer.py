"""Writing one store by several processes: one creates and joins, the others write parts that begin at a chunk."""

import zarr

from daskkern.arrays import IntArray
from daskkern.data.storage.csr_store import State, part_of
from daskkern.data.storage.writer import StoreWriter


class SharedWriter(StoreWriter):
    """A :class:`StoreWriter` of dense rows that other processes write.

    The process that enters it calls :meth:`make_room`, and when the others are done :meth:`join_part` for each of
    them in the order of the rows. Another process creates a writer for the same folder, which it does not enter, and
    calls :meth:`write_part`, appends its rows, and calls :meth:`leave_part`.
    """

    def make_room(self, n_rows: int) -> None:
        """Create arrays of `n_rows` rows, into which other processes write parts."""
        self._arrays.make(n_rows)

    def write_part(self, group: zarr.Group, start: int) -> None:
        """Append rows from row `start` on, where a chunk begins, into the group of another process. Not entered."""
        self._group = group
        self._open_arrays()
        self._arrays.go_on_at(start)

    def leave_part(self) -> State:
        """Write the rest of a part and return what :meth:`join_part` needs."""
        sums = {f"arrays/{key}": value for key, value in self._arrays.leave().items()}
        return {**self.state(), **sums}

    def join_part(self, state: State, rows: int, recode: IntArray | None) -> None:
        """Count the next `rows` rows, which another process wrote; their class code c becomes ``recode[c]``."""
        first = self._arrays.n_rows
        self._arrays.join(part_of(state, "arrays"), rows)
        self._observed.add(state)
        if recode is not None:
            self._arrays.recode("y", recode, first)

    def sum_classes(self) -> None:
        """Recompute the checksums of the class codes, when all parts have joined."""
        self._arrays.sum_again("y")
