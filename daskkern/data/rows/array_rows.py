"""Rows of arrays in memory."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import FeatureRows, as_csr, is_sparse
from daskkern.data.rows.rows import Rows
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError, SpecError, StoreError


class ArrayRows(Rows):
    """Rows of NumPy arrays in memory. Nothing is copied; blocks are cast as they are read.

    Parameters
    ----------
    X : (n, d) array of real numbers, or sparse matrix
        Sparse matrices other than canonical CSR are converted once.
    y : None, (n,) int codes, or (n,) or (n, t) floats
        Codes when `classes` is given, regression targets otherwise.
    weight : None or (n,) array
    classes : sequence or None
        Class labels by code.
    dtype : dtype
        Dtype of the blocks of ``X``.
    chunk_rows : int
        Granularity of shuffling.
    scaling : Scaling or None
        Applied to blocks as they are read.
    """

    in_memory = True

    def __init__(
        self,
        X: FeatureRows,
        y: HostArray | None = None,
        *,
        weight: HostArray | None = None,
        classes: Sequence[ClassLabel] | None = None,
        dtype: npt.DTypeLike = np.float32,
        chunk_rows: int = 4096,
        scaling: Scaling | None = None,
    ) -> None:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise DataError(f"got X of dtype {X.dtype} and shape {X.shape}; expected real numbers (rows, features)")
        for name, array in (("y", y), ("weight", weight)):
            if array is not None and len(array) != X.shape[0]:
                raise DataError(f"{name} has {len(array)} rows, but X has {X.shape[0]}")
        if is_sparse(X):
            X = as_csr(X)
            self.n_stored = int(X.nnz)
        self.dtype = float_dtype(dtype)
        self.n_rows, self.n_features = X.shape
        self.chunk_rows = max(1, min(chunk_rows, self.n_rows))
        self.classes = None if classes is None else tuple(classes)
        self.has_weight = weight is not None
        self.task = None if y is None else "regression" if classes is None else "classification"
        if y is not None and classes is not None:
            check_codes(y, len(classes), "y")
        elif y is not None and y.ndim == 1:
            y = y[:, None]  # (n, 1)
        self.n_targets = 0 if y is None else 1 if y.ndim == 1 else y.shape[1]
        self._X, self._y, self._weight = X, y, weight
        self._scaling = Scaling() if scaling is None else scaling

    def _read_features(self, start: int, stop: int) -> FeatureRows:
        return self._scaling.apply(self._X[start:stop], self.dtype)

    def _read_targets(self, start: int, stop: int) -> HostArray:
        assert self._y is not None
        dtype = np.int64 if self.task == "classification" else np.float64
        return self._y[start:stop].astype(dtype, copy=False)

    def _read_weight(self, start: int, stop: int) -> HostArray:
        assert self._weight is not None
        return self._weight[start:stop].astype(np.float64, copy=False)


def float_dtype(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    """Return float32 or float64 as a dtype. Raises SpecError for any other."""
    for known in (np.dtype(np.float32), np.dtype(np.float64)):
        if np.dtype(dtype) == known:
            return known
    raise SpecError(f"got dtype {np.dtype(dtype)} for rows; choose float32 or float64")


def check_codes(y: HostArray, n_classes: int, name: str) -> None:
    """Raise DataError unless `y` (m,) holds integers, StoreError unless they are codes of classes."""
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"got {name} of dtype {y.dtype} and shape {y.shape}; expected integer class codes (rows,)")
    if y.size and not 0 <= y.min() <= y.max() < n_classes:
        raise StoreError(f"{name} holds codes from {y.min()} to {y.max()}, but there are {n_classes} classes")
