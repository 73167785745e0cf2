"""A store with the rows of another one in another order: the same layout, statistics and attributes.

What does not depend on the order is taken from the other store. So the bytes of the new one depend on the order alone,
not on how, or by how many processes, it was written.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import zarr

from daskkern.data.rows.csr import is_sparse
from daskkern.data.schema.layout import stored_dtype
from daskkern.data.schema.schema import SOURCE_KEY, STATISTICS
from daskkern.data.storage.checksums import Checksum
from daskkern.data.storage.chunk_buffers import Incoming
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.csr_store import CsrWriter
from daskkern.data.storage.raw_rows import StoredBlock
from daskkern.data.storage.recorded_checksums import write_records
from daskkern.data.storage.store import Store
from daskkern.data.storage.whole_arrays import write_whole


class ReorderedWriter:
    """Writes the rows of a store, in any order and in blocks of any size, to a new group.

    Parameters
    ----------
    group : zarr.Group
        Where to write; it is empty, and marked as incomplete.
    like : Store
        The store that the rows are from.
    """

    def __init__(self, group: zarr.Group, like: Store) -> None:
        layout = layout_of(like)
        self._group, self._like = group, like
        self._buffers = layout.buffers(like.info.chunk_rows)
        self._arrays = ChunkedArrays(group, self._buffers, like.info.chunk_rows)
        entries = like.array("X/data").chunks[0] if layout.sparse else 0
        self._csr = CsrWriter(group, layout.n_features, layout.dtype, entries) if layout.sparse else None

    def append(self, block: StoredBlock) -> None:
        """Add rows as stored. Raises StoreError when they cannot be written."""
        done = 0
        while done < block.n_rows:
            fill, step = self._arrays.fill, min(block.n_rows - done, self._arrays.room)
            for name, buffer in self._buffers.items():
                buffer[fill : fill + step] = getattr(block, name)[done : done + step]
            self._arrays.commit(step)
            done += step
        if self._csr is not None and is_sparse(block.X):
            self._csr.append(block.X)

    def complete(self, provenance: Mapping[str, Any]) -> None:
        """Write what is left, and the attributes, when all rows were added."""
        self._arrays.settle()
        sums = dict(self._arrays.sums)
        if self._csr is not None:
            self._csr.settle()
            sums |= self._csr.sums()
        write_attributes(self._group, self._like, sums, provenance)


def layout_of(store: Store) -> Incoming:
    """Return the layout in which the rows of a store are written again."""
    info = store.info
    dtype = stored_dtype(store.array("X/data" if info.is_sparse else "X").dtype)
    return Incoming(info.n_features, dtype, info.task, info.n_targets, info.has_weight, info.is_sparse)


def write_attributes(
    group: zarr.Group,
    like: Store,
    sums: Mapping[str, Checksum],
    provenance: Mapping[str, Any],
    key: str | None = None,
) -> None:
    """Record everything that does not depend on the order of the rows, and the checksums of all chunks by array.

    A `key` is recorded as that of the sources.
    """
    if like.info.statistics.is_wide:
        write_whole(group, STATISTICS, like.info.statistics.table(), overwrite=True)
    info = replace(like.info, checksums={name: total.whole for name, total in sums.items()})
    keyed = {} if key is None else {SOURCE_KEY: key}
    attributes = {**info.to_attributes(), **keyed, "provenance": dict(provenance)}
    group.update_attributes({**attributes, "records": write_records(group, sums, attributes)})
