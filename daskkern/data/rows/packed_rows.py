"""Blocks of rows serialised to bytes, each field in the smallest type that holds its values."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import CsrRows, csr_rows
from daskkern.data.rows.rows import Fields, RowBlock, Rows

_ALIGNMENT = 8  # of the arrays in a message


@dataclass(frozen=True)
class PackedRows:
    """The arrays of a block of rows, which need no description, as sender and receiver both know them.

    Attributes
    ----------
    n_features : int
    dtype : dtype
        Of X as it is sent.
    is_sparse : bool
    code_type : dtype or None
        Of class codes; None for regression targets.
    n_targets : int
    fields : Fields
        Those that the rows have, of the ones that are read.
    """

    n_features: int
    dtype: np.dtype[Any]
    is_sparse: bool
    code_type: np.dtype[Any] | None
    n_targets: int
    fields: Fields

    @classmethod
    def of(cls, rows: Rows, fields: Fields) -> "PackedRows":
        """Return the format of blocks of `rows`."""
        there = fields if rows.has_weight else fields & ~Fields.weight
        if rows.task is None:
            there &= ~Fields.y
        codes = np.min_scalar_type(max(0, len(rows.classes) - 1)) if rows.classes is not None else None
        if rows.task != "classification":
            codes = None
        return cls(rows.n_features, np.dtype(rows.dtype), rows.is_sparse, codes, rows.n_targets, there)

    def pack(self, block: RowBlock) -> list[HostArray]:
        """Return the arrays of a block, contiguous. X may be None; dense fields are views where they can be."""
        parts: list[HostArray] = []
        if Fields.X in self.fields and block.X is not None:
            parts += self._sparse(block.X) if self.is_sparse else [block.X]
        if Fields.y in self.fields and block.y is not None:
            parts.append(block.y if self.code_type is None else block.y.astype(self.code_type))
        if Fields.weight in self.fields and block.weight is not None:
            parts.append(block.weight)
        return [np.ascontiguousarray(part) for part in parts]

    def unpack(self, data: HostArray, blocks: Sequence[tuple[int, bool]]) -> Iterator[RowBlock]:
        """Yield the blocks of a message (n,), uint8: for each its number of rows, and whether X was sent.

        Dense rows and regression targets are views of the message.

        Raises
        ------
        DataError
            When sparse rows are inconsistent.
        """
        cursor = _Cursor(data)
        for m, with_X in blocks:
            X, y, weight = None, None, None
            if Fields.X in self.fields and with_X:
                X = self._csr(cursor, m) if self.is_sparse else cursor.take((m, self.n_features), self.dtype)
            if Fields.y in self.fields:
                if self.code_type is None:
                    y = cursor.take((m, self.n_targets), np.float64)
                else:
                    y = cursor.take((m,), self.code_type).astype(np.int64)
            if Fields.weight in self.fields:
                weight = cursor.take((m,), np.float64)
            yield RowBlock(X, y, weight)

    @property
    def _index_type(self) -> np.dtype[Any]:
        return np.min_scalar_type(max(0, self.n_features - 1))

    def _sparse(self, X: CsrRows) -> list[HostArray]:
        return [np.diff(X.indptr).astype(np.uint32), X.indices.astype(self._index_type), X.data]

    def _csr(self, cursor: "_Cursor", m: int) -> CsrRows:
        lengths = cursor.take((m,), np.uint32)
        indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        count = int(indptr[-1])
        indices = cursor.take((count,), self._index_type).astype(np.int64)
        return csr_rows(
            cursor.take((count,), self.dtype), indices, indptr, self.n_features, "a message of another rank"
        )


class _Cursor:
    """A place in a message."""

    def __init__(self, data: HostArray) -> None:
        self._data, self._at = data, 0

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> HostArray:
        """Return the next array, a view."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        part = self._data[self._at : self._at + size]
        self._at += -(-size // _ALIGNMENT) * _ALIGNMENT
        return part.view(dtype).reshape(shape)
