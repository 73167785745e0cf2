"""Rows of an open store."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from types import ModuleType

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.data.rows.array_rows import check_codes, float_dtype
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import ALL, Fields, RowBlock, Rows, take
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.storage.csr_store import CsrReader
from daskkern.data.storage.local_chunks import DIRECT_FAILURES, DirectReads, LocalChunks, with_direct_storage
from daskkern.data.storage.random_access import gives_ranges, has_plain_chunks, local_chunks_of, parts_at, rows_at
from daskkern.data.storage.sizes import ZarrArray
from daskkern.data.storage.store import Store, read_array

DIRECT_BYTES = 8 << 20
"""Bytes of the features that are read to a GPU at once, by whole chunks; at least one."""


class StoreRows(Rows):
    """Rows of an open store, with its recorded scaling applied.

    Parameters
    ----------
    store : Store
        From :func:`daskkern.data.storage.store.open_store`.
    dtype : dtype
        Dtype of the blocks of ``X``: float32 or float64.
    scaling : Scaling or None
        Applied in place of the recorded one.
    """

    def __init__(self, store: Store, dtype: npt.DTypeLike = np.float32, scaling: Scaling | None = None) -> None:
        info = store.info
        self.dtype = float_dtype(dtype)
        self.n_rows, self.n_features, self.n_targets = info.n_rows, info.n_features, info.n_targets
        self.chunk_rows = info.chunk_rows
        self.task, self.classes, self.has_weight = info.task, info.classes, info.has_weight
        self._scaling, self._path = info.scaling if scaling is None else scaling, store.path
        self._ranges: bool | None = None  # checked once, when it is needed
        self._csr = (
            CsrReader(store.csr_parts(), info.n_features, f"X of the store {store.path}") if info.is_sparse else None
        )
        self.n_stored = None if self._csr is None else self._csr.n_stored
        self.reads_pieces = self._csr is None
        self._arrays = {
            Fields.X: None if info.is_sparse else store.array("X"),
            Fields.y: store.array("y") if info.task is not None else None,
            Fields.weight: store.array("weight") if info.has_weight else None,
        }
        stored = self._arrays[Fields.X]
        self.decodes_chunks = stored is not None and not has_plain_chunks(stored)

    def encoded(self) -> "StoreRows":
        stored = self._arrays[Fields.X]
        # Other scalings may round a number in one way among its neighbours, and in another alone.
        if stored is None or not self._scaling.is_affine or stored.dtype.kind not in "iuf":
            return self
        if stored.dtype.itemsize >= self.dtype.itemsize:
            return self
        same = copy(self)
        same.dtype, same._scaling = stored.dtype.newbyteorder("="), Scaling()
        return same

    def decoded(self, X: FeatureRows) -> FeatureRows:
        # Bytes that were sent cannot be overwritten.
        return self._scaling.apply(X, self.dtype) if X.dtype != self.dtype else X

    def blocks_on(self, xp: ModuleType) -> Iterator[RowBlock] | None:
        """Return the rows as read to a GPU by GPUDirect Storage; None where there is none for them."""
        stored = self._arrays[Fields.X]
        if xp is np or stored is None or self.decodes_chunks:
            return None
        chunks, kvikio = local_chunks_of(stored), with_direct_storage()
        return None if chunks is None or kvikio is None else self._read_by(kvikio, chunks, xp)

    def _read_by(self, kvikio: ModuleType, chunks: LocalChunks, xp: ModuleType) -> Iterator[RowBlock]:
        """Yield blocks of rows, of which the next is on its way; by the host where that fails."""
        row_bytes = chunks.array.dtype.itemsize * self.n_features
        step = self.chunk_rows * max(1, DIRECT_BYTES // (self.chunk_rows * row_bytes))
        begun: tuple[Array, DirectReads] | None = None
        direct = True

        def begin(start: int) -> tuple[Array, DirectReads] | None:
            if not direct or start >= self.n_rows:
                return None
            rows = xp.empty((min(step, self.n_rows - start), self.n_features), chunks.array.dtype)
            xp.cuda.get_current_stream().synchronize()  # kvikio does not know what was queued on this memory
            with suppress(*DIRECT_FAILURES):
                return rows, chunks.begin_direct(kvikio, start, rows)
            return None

        try:
            begun = begin(0)
            for start in range(0, self.n_rows, step):
                X, begun = _arrived(begun), begin(start + step)
                direct = X is not None
                here = np.arange(start, min(start + step, self.n_rows))  # by positions: a missing chunk is an error
                rest = take(self, here, ALL & ~Fields.X if direct else ALL)
                X = xp.asarray(rest.X) if X is None else self._scaling.apply(X, self.dtype, overwrite=True)
                yield RowBlock(X, rest.y, rest.weight)
        finally:
            _arrived(begun)  # not into memory that is used again

    def parts_at(self, positions: IntArray, fields: Fields = ALL) -> Iterator[tuple[slice, RowBlock]]:
        """Yield slices of positions and their rows; uncompressed chunks are read only at and close to these rows."""
        wanted = {field: array for field, array in self._arrays.items() if field in fields and array is not None}
        sparse = self._csr is not None and Fields.X in fields
        if sparse or not all(has_plain_chunks(array) for array in wanted.values()) or not self._gives_ranges(wanted):
            yield from super().parts_at(positions, fields)
        elif Fields.X not in wanted:
            yield slice(0, positions.size), self._block({f: rows_at(array, positions) for f, array in wanted.items()})
        else:
            others = {field: array for field, array in wanted.items() if field is not Fields.X}
            for places, X in parts_at(wanted[Fields.X], positions):
                read: dict[Fields, HostArray] = {f: rows_at(array, positions[places]) for f, array in others.items()}
                yield places, self._block({**read, Fields.X: X})

    def _gives_ranges(self, arrays: Mapping[Fields, ZarrArray]) -> bool:
        if self._ranges is None and arrays:
            self._ranges = gives_ranges(next(iter(arrays.values())))
        return bool(self._ranges)

    def _block(self, stored: Mapping[Fields, HostArray]) -> RowBlock:
        X, y = stored.get(Fields.X), stored.get(Fields.y)
        return RowBlock(
            None if X is None else self._scaling.apply(X, self.dtype, overwrite=True),
            None if y is None else self._checked(y),
            stored.get(Fields.weight),
        )

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        if self._csr is not None:
            return self._scaling.apply(self._csr.read(start, stop), self.dtype)
        X = read_array(self._stored(Fields.X), start, stop)
        return self._scaling.apply(X, self.dtype, overwrite=bool(X.flags.owndata))

    def _read_targets(self, start: int, stop: int) -> HostArray:
        return self._checked(read_array(self._stored(Fields.y), start, stop))

    def _checked(self, y: HostArray) -> HostArray:
        if self.classes is not None:
            check_codes(y, len(self.classes), f"y of the store {self._path}")
        return y

    def _read_weight(self, start: int, stop: int) -> HostArray:
        return read_array(self._stored(Fields.weight), start, stop)

    def _stored(self, field: Fields) -> ZarrArray:
        array = self._arrays[field]
        assert array is not None
        return array


def _arrived(begun: tuple[Array, DirectReads] | None) -> Array | None:
    """Return rows on a GPU once they are read; None where they cannot be."""
    if begun is None:
        return None
    with suppress(*DIRECT_FAILURES):
        begun[1].wait()
        return begun[0]
    return None
