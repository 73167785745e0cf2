"""Leading eigenpairs of a symmetric positive semi-definite matrix, in memory or a lazy dask array."""

from dataclasses import dataclass

import dask.array as da
import numpy as np
import scipy.linalg

from daskkern.arrays import FloatArray
from daskkern.backend.concurrency import cpu_count, library_threads
from daskkern.backend.random import generator
from daskkern.backend.task_names import task_name
from daskkern.errors import SpecError
from daskkern.linalg.symmetric import symmetric_eigen

DENSE_LIMIT = 5000
_OVERSAMPLES = 10
_PASSES = 6
_STREAM = 21
_LEAST = 1000


@dataclass(frozen=True)
class Eigenpairs:
    """`values` (q,) in descending order and `vectors` (s, q), orthonormal columns; float64."""

    values: FloatArray
    vectors: FloatArray


def top_eigenpairs(matrix: da.Array | FloatArray, q: int, *, method: str = "auto", seed: int = 0) -> Eigenpairs:
    """Return the `q` largest eigenpairs of `matrix` (s, s).

    Parameters
    ----------
    matrix : dask array or array (s, s)
        Symmetric positive semi-definite. A dask array is computed once ("dense"), or `_PASSES` + 1 times block by block
        and never held whole ("krylov"). An array stays in this process.
    q : int
        At least 1, at most s.
    method : {"auto", "dense", "krylov", "rsvd"}
        "auto" is dense up to s = 5,000, unless an array in memory is so much larger than q that the randomized block
        Krylov method is far less work; that method above it. "rsvd" is the plain randomized SVD with two power
        iterations of the EigenPro paper, less accurate.

    References
    ----------
    Musco and Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition", NeurIPS 2015, algorithm 2; Halko, Martinsson and Tropp, SIAM Review 2011, algorithms 4.4, 5.3.
    """
    s = int(matrix.shape[0])
    if not 1 <= q <= s:
        raise SpecError(f"{q} eigenpairs of a matrix of {s} rows were asked; give a number between 1 and {s}")
    if method == "auto":
        method = "dense" if s <= DENSE_LIMIT and not _is_cheap(matrix, q) else "krylov"
    if method == "dense":
        return _dense(np.asarray(matrix, np.float64), q)
    if method == "krylov":
        return _krylov(matrix, q, seed, passes=_PASSES, keep_all=True)
    if method == "rsvd":
        return _krylov(matrix, q, seed, passes=2, keep_all=False)
    raise SpecError(f"eigen method {method!r} was asked; choose 'auto', 'dense', 'krylov' or 'rsvd'")


def _is_cheap(matrix: da.Array | FloatArray, q: int) -> bool:
    """Return whether the Krylov space is small beside a matrix in memory. A lazy one would be computed seven times."""
    s = matrix.shape[0]
    return not isinstance(matrix, da.Array) and s >= _LEAST and 3 * (_PASSES + 1) * (q + _OVERSAMPLES) <= s


def _dense(matrix: FloatArray, q: int) -> Eigenpairs:
    s = matrix.shape[0]
    with library_threads(cpu_count()):
        values, vectors = symmetric_eigen(0.5 * (matrix + matrix.T), s - q)
    return Eigenpairs(np.maximum(values[::-1], 0), np.ascontiguousarray(vectors[:, ::-1]))


def _krylov(matrix: da.Array | FloatArray, q: int, seed: int, *, passes: int, keep_all: bool) -> Eigenpairs:
    """Rayleigh-Ritz on the block Krylov space (`keep_all`) or on its last block (power iteration)."""
    s = int(matrix.shape[0])
    width = min(q + _OVERSAMPLES, s)
    blocks = [_orthonormal(generator(seed, _STREAM).standard_normal((s, width)))]
    images = []
    for _ in range(passes):
        image = _product(matrix, blocks[-1])
        images.append(image)
        if keep_all and sum(block.shape[1] for block in blocks) >= s:
            break
        blocks.append(_next_block(image, blocks if keep_all else [], s))
    images.append(_product(matrix, blocks[-1])) if len(images) < len(blocks) else None
    basis = np.concatenate(blocks, axis=1) if keep_all else blocks[-1]
    image = np.concatenate(images, axis=1) if keep_all else images[-1]
    small = _dense(basis.T @ image, q)
    return Eigenpairs(small.values, basis @ small.vectors)


def _product(matrix: da.Array | FloatArray, block: FloatArray) -> FloatArray:
    if not isinstance(matrix, da.Array):
        with library_threads(cpu_count()):
            return np.asarray(matrix @ block, np.float64)
    lazy = da.from_array(block.astype(matrix.dtype), chunks=(matrix.chunks[1], -1), name=task_name("directions"))
    product: FloatArray = np.asarray(matrix.dot(lazy).compute(), np.float64)
    return product


def _next_block(image: FloatArray, earlier: list[FloatArray], s: int) -> FloatArray:
    """Return an orthonormal basis of `image` outside the span of `earlier`; twice is enough (Kahan, Parlett)."""
    room = s - sum(block.shape[1] for block in earlier)
    fresh = image
    for _ in range(2):
        for block in earlier:
            fresh = fresh - block @ (block.T @ fresh)
        fresh = _orthonormal(fresh)
    return fresh[:, :room]


def _orthonormal(block: FloatArray) -> FloatArray:
    q: FloatArray = scipy.linalg.qr(block, mode="economic", check_finite=False)[0]
    return q
