"""The state of a run as named arrays: the content of a checkpoint, and the unit of redistribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import to_host
from daskkern.errors import DataError


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows `values` (k, ...) of an array that is split over the ranks; `ids` (k,) int64 are their global numbers."""

    ids: IntArray
    values: Array


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A state between two windows.

    Attributes
    ----------
    shards : mapping from name to Shard
        Arrays by row. On a rank, its own rows; in a whole snapshot, all rows in the order of their numbers.
    whole : mapping from name to array
        Arrays that every rank has.
    numbers : mapping from name to float
        Counters and factors, the same on every rank.
    """

    shards: Mapping[str, Shard] = field(default_factory=dict)
    whole: Mapping[str, Array] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    def gather_to(self, comm: Communicator, holders: Sequence[int]) -> "Snapshot | None":
        """Return the whole snapshot on the ranks `holders`, in host memory; None on the others. A collective."""
        shards = {name: _gathered_to(shard, comm, holders) for name, shard in sorted(self.shards.items())}
        if comm.rank not in holders:
            return None
        found = {name: shard for name, shard in shards.items() if shard is not None}
        return Snapshot(found, {name: np.array(to_host(array)) for name, array in self.whole.items()}, self.numbers)

    def rows(self, name: str, ids: IntArray) -> HostArray:
        """Return the rows (k, ...) of a whole snapshot's array with these global numbers; a copy.

        Raises
        ------
        DataError
            When some of them are missing.
        """
        shard = self.shards.get(name)
        if shard is None:
            raise DataError(f"a saved state has no array {name!r}; it was written by another solver or version")
        at = np.minimum(np.searchsorted(shard.ids, ids), max(len(shard.ids) - 1, 0))
        if len(ids) and not (len(shard.ids) and np.array_equal(shard.ids[at], ids)):
            raise DataError(f"the array {name!r} of a saved state lacks rows of this run: its basis was another one")
        return to_host(shard.values)[at]

    def rows_or_zeros(self, name: str, ids: IntArray) -> HostArray:
        """Return :meth:`rows`, with 0 for numbers that are missing: those of the additional columns of a longer run."""
        shard = self.shards[name]
        known = np.flatnonzero(np.isin(ids, shard.ids))
        values = np.zeros((len(ids), *shard.values.shape[1:]), shard.values.dtype)
        values[known] = self.rows(name, ids[known])
        return values


def _gathered_to(shard: Shard, comm: Communicator, holders: Sequence[int]) -> Shard | None:
    ids = comm.gather_to(np.asarray(shard.ids, np.int64), holders)
    values = comm.gather_to(shard.values, holders)
    if ids is None or values is None:
        return None
    numbers = np.concatenate([to_host(part) for part in ids])
    rows = np.concatenate([to_host(part) for part in values])
    order = np.argsort(numbers, kind="stable")
    return Shard(numbers[order], rows[order])
