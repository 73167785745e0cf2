"""Rows exactly as stored, without scaling or cast, for copies of stores."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.schema import StoreInfo
from daskkern.data.storage.csr_store import CsrReader
from daskkern.data.storage.store import Store, read_array

Selection: TypeAlias = Any
"""A selection of rows: a mask (m,), positions (k,), or a slice."""


@dataclass(frozen=True)
class StoredBlock:
    """Rows as stored: X (m, d) dense or CSR, y (m,) or (m, t) or None, weight (m,) or None."""

    X: FeatureRows
    y: HostArray | None
    weight: HostArray | None

    @property
    def n_rows(self) -> int:
        """Number of rows of the block."""
        return int(self.X.shape[0])

    def take(self, rows: Selection) -> "StoredBlock":
        """Return some of the rows."""
        return StoredBlock(
            self.X[rows],
            None if self.y is None else self.y[rows],
            None if self.weight is None else self.weight[rows],
        )


class StoredRows:
    """Rows of an open store, as stored.

    Attributes
    ----------
    info : StoreInfo
    dtype : dtype
        Of ``X`` as stored.
    row_bytes : int
        Bytes of a row with its targets and weight; the average for sparse rows.
    """

    def __init__(self, store: Store) -> None:
        self.info: StoreInfo = store.info
        where = f"X of the store {store.path}"
        self._csr = CsrReader(store.csr_parts(), store.info.n_features, where) if store.info.is_sparse else None
        self._X = store.array("X/data" if self._csr else "X")
        self._y = store.array("y") if store.info.task is not None else None
        self._weight = store.array("weight") if store.info.has_weight else None
        self.dtype: np.dtype[np.generic] = self._X.dtype
        self.row_bytes = self._feature_bytes() + 8 * self.info.n_targets + 8 * self.info.has_weight

    def read(self, start: int, stop: int) -> StoredBlock:
        """Return the rows from `start` to `stop` (excluded). Raises StoreError when they cannot be read."""
        return StoredBlock(
            read_array(self._X, start, stop) if self._csr is None else self._csr.read(start, stop),
            None if self._y is None else read_array(self._y, start, stop),
            None if self._weight is None else read_array(self._weight, start, stop),
        )

    def blocks(self, n_bytes: int) -> Iterator[tuple[int, StoredBlock]]:
        """Yield all rows in order, in whole chunks of about `n_bytes`, with the number of their first row."""
        chunk = self.info.chunk_rows
        step = chunk * max(1, n_bytes // (chunk * self.row_bytes))
        for start in range(0, self.info.n_rows, step):
            yield start, self.read(start, min(start + step, self.info.n_rows))

    def _feature_bytes(self) -> int:
        if self._csr is not None:
            index = 4 if self.info.n_features < 2**31 else 8
            return 8 + self._csr.n_stored * (self.dtype.itemsize + index) // self.info.n_rows
        return self.info.n_features * self.dtype.itemsize
