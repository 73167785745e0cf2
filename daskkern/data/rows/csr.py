"""Sparse rows in memory: SciPy's CSR arrays, made canonical, checked, and gathered in any order."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.csr import canonical, flaw
from daskkern.backend.namespace import is_sparse
from daskkern.errors import DataError

__all__ = [
    "CsrRows",
    "FeatureRows",
    "append_column",
    "as_csr",
    "csr_rows",
    "divide_columns",
    "gather",
    "gather_rows",
    "is_sparse",
    "stack_rows",
]

CsrRows: TypeAlias = Any
"""A :class:`scipy.sparse.csr_array` (m, d); SciPy has no types."""
FeatureRows: TypeAlias = HostArray | CsrRows
"""Features of rows (m, d): a NumPy array, or CSR rows."""


def _scipy() -> ModuleType:
    """Return SciPy's sparse package; serving a saved model of dense points does not need it."""
    import scipy.sparse  # optional package

    return scipy.sparse


def as_csr(X: CsrRows) -> CsrRows:
    """Return sparse rows as a csr_array with sorted, distinct column numbers in each row; `X` is not modified."""
    return canonical(_scipy().csr_array(X))


def append_column(rows: FeatureRows, values: IntArray) -> FeatureRows:
    """Return a copy of rows (m, d), dense or CSR, with a last column of `values` (m,) in their dtype."""
    column = values[:, None].astype(rows.dtype)
    if not is_sparse(rows):
        return np.concatenate([rows, column], axis=1)
    return as_csr(_scipy().hstack([rows, column], format="csr"))


def csr_rows(data: HostArray, indices: HostArray, indptr: HostArray, n_features: int, where: str) -> CsrRows:
    """Return CSR rows made of untrusted arrays; `indptr` (m + 1,) begins with 0.

    Raises
    ------
    DataError
        When the arrays are not valid rows of `n_features` columns: compiled products would read out of bounds.
    """
    shape = (len(indptr) - 1, n_features)
    if not len(data) == len(indices) == int(indptr[-1]) or flaw(data, indices, indptr, shape) is not None:
        raise DataError(
            f"{where} holds no valid CSR rows of {n_features} features (indptr, indices and data are inconsistent); "
            "write it again"
        )
    index = np.int32 if max(len(data), n_features) < 2**31 else np.int64
    parts = (data, indices.astype(index, copy=False), indptr.astype(index, copy=False))
    return _scipy().csr_array(parts, shape=shape)


def gather_rows(parts: Sequence[CsrRows], order: IntArray, n_features: int, dtype: npt.DTypeLike) -> CsrRows:
    """Return the rows of `parts`, one part after the other, in the order given by ``order`` (m,); a copy."""
    if not parts:
        return _scipy().csr_array((0, n_features), dtype=dtype)
    stacked = parts[0] if len(parts) == 1 else _scipy().vstack(parts, format="csr")
    return stacked[order]


def gather(parts: Sequence[FeatureRows], numbers: Sequence[IntArray]) -> FeatureRows:
    """Return one table of rows (n, d) from its parts, whose rows go to the positions `numbers`; a copy."""
    places = np.concatenate(numbers)
    if is_sparse(parts[0]):
        order = np.empty(places.size, np.int64)
        order[places] = np.arange(places.size)
        return gather_rows(parts, order, parts[0].shape[1], parts[0].dtype)
    table = np.empty((places.size, parts[0].shape[1]), parts[0].dtype)
    for part, own in zip(parts, numbers, strict=True):
        table[own] = part
    return table


def stack_rows(parts: Sequence[CsrRows]) -> CsrRows:
    """Return CSR rows, one part after the other; a copy."""
    return _scipy().csr_array(_scipy().vstack(parts, format="csr"))


def divide_columns(X: CsrRows, scale: HostArray, dtype: npt.DTypeLike) -> CsrRows:
    """Return CSR rows with every column divided by its entry of `scale` (d,), as `dtype`."""
    data = (X.data / scale[X.indices]).astype(dtype, copy=False)
    return _scipy().csr_array((data, X.indices, X.indptr), shape=X.shape)
