"""Eigendecomposition of a dense symmetric matrix: by cuSOLVER on a GPU, else by LAPACK with the GIL released.

SciPy's own ``eigh`` holds the GIL from beginning to end, minutes for 10,000 rows. Meanwhile a Dask worker sends no
heartbeats and is taken for one that hangs.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import failures_raised, namespace_of

_DSYEVR_ARGUMENTS = 21


def symmetric_eigen(matrix: Array, first: int = 0) -> tuple[Array, Array]:
    """Return the eigenvalues (k,) from number `first` on, ascending, and eigenvectors (s, k), on the device of
    `matrix`.

    Parameters
    ----------
    matrix : (s, s) float64 array
        Exactly symmetric. It is overwritten if it is contiguous, else a copy is.
    first : int
        Eigenvalues are counted from 0, the smallest.

    Raises
    ------
    LinAlgError
        When LAPACK or cuSOLVER does not converge.
    """
    xp = namespace_of(matrix)
    if xp is np:
        return _by_lapack(matrix, first)
    with failures_raised(xp):
        values, vectors = xp.linalg.eigh(
            matrix
        )  # divide and conquer, which cannot compute only some of the pairs more cheaply
    return values[first:], vectors[:, first:]


def _by_lapack(matrix: FloatArray, first: int) -> tuple[FloatArray, FloatArray]:
    A = np.ascontiguousarray(matrix, np.float64)
    diagonal = A.diagonal().copy()
    pairs = _by_dsyevr(A, first)
    if pairs is not None:
        return pairs
    # dsyevr overwrites the diagonal and what is above it here: the rest is enough for divide and conquer.
    np.fill_diagonal(A, diagonal)
    values, vectors = np.linalg.eigh(A, UPLO="L")
    return values[first:], vectors[:, first:]


def _by_dsyevr(A: FloatArray, first: int) -> tuple[FloatArray, FloatArray] | None:
    """Return the pairs from number `first` on, or None where LAPACK does not find all of them.

    Bisection for some of the eigenvalues misses a few, or fails, where many are equal, as of kernels of rows without
    neighbours; the vectors of those that are missed are whatever memory held.
    """
    s, integer = A.shape[0], _integer()
    values, found = np.empty(s), integer(0)
    vectors, support = np.empty((s, s - first), order="F"), np.empty(2 * s, np.dtype(integer))
    info, zero = integer(0), ctypes.c_double(0.0)
    n, low, high = integer(s), integer(first + 1), integer(s)

    def call(work: FloatArray, lwork: int, iwork: Any, liwork: int) -> None:
        sizes = integer(lwork), integer(liwork)
        _dsyevr()(
            b"V", b"I" if first else b"A", b"L", _at(n), A.ctypes.data, _at(n), _at(zero), _at(zero), _at(low),
            _at(high), _at(zero), _at(found), values.ctypes.data, vectors.ctypes.data, _at(n), support.ctypes.data,
            work.ctypes.data, _at(sizes[0]), iwork.ctypes.data, _at(sizes[1]), _at(info),
        )  # fmt: skip

    work, iwork = np.empty(1), np.empty(1, np.dtype(integer))
    call(work, -1, iwork, -1)
    lwork, liwork = int(work[0]), int(iwork[0])
    call(np.empty(lwork), lwork, np.empty(liwork, np.dtype(integer)), liwork)
    if info.value or found.value != s - first:
        return None
    return values[: s - first], vectors


def _at(value: Any) -> int:
    return ctypes.addressof(value)


@cache
def _signature() -> tuple[int, str]:
    """Return the address of ``dsyevr``, and its C signature."""
    capsule = cython_lapack.__pyx_capi__["dsyevr"]
    api: Any = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = api.PyCapsule_GetName(capsule)
    return int(api.PyCapsule_GetPointer(capsule, name)), name.decode()


@cache
def _dsyevr() -> Any:
    """Return the function, which releases the GIL while it runs."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _DSYEVR_ARGUMENTS)(_signature()[0])


@cache
def _integer() -> Any:
    """Return the C type of LAPACK's integers here."""
    return ctypes.c_int32 if "char *, int *" in _signature()[1] else ctypes.c_int64
