"""Leading eigenpairs of a symmetric positive semi-definite matrix, in memory or a lazy dask array."""

from dataclasses import dataclass
from types import ModuleType

import dask.array as da
import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.concurrency import cpu_count, decomposition_threads, library_threads
from daskkern.backend.namespace import exclusive_gpu, failures_raised, namespace_of, namespace_with, to_host
from daskkern.backend.random import generator
from daskkern.backend.task_names import task_name
from daskkern.errors import SpecError
from daskkern.linalg.lazy_matrices import computed
from daskkern.linalg.symmetric import symmetric_eigen

DENSE_LIMIT = 5000
EIGEN_METHODS = ("auto", "dense", "krylov", "rsvd")
_OVERSAMPLES = 10
_PASSES = 6
_STREAM = 21
_LEAST = 1000
_SPACE = _PASSES + 1
"""Blocks of the Krylov space."""
_DENSE_BYTES = 8 * 6
"""Bytes per entry of an eigenproblem on a GPU: two copies, eigenvectors, and the workspace of divide and conquer."""


@dataclass(frozen=True)
class Eigenpairs:
    """`values` (q,) in descending order and `vectors` (s, q), orthonormal columns; float64."""

    values: FloatArray
    vectors: FloatArray


def top_eigenpairs(
    matrix: da.Array | FloatArray, q: int, *, method: str = "auto", seed: int = 0, device: str = "cpu"
) -> Eigenpairs:
    """Return the `q` largest eigenpairs of `matrix` (s, s).

    Parameters
    ----------
    matrix : dask array or array (s, s)
        Symmetric positive semi-definite. A dask array is computed once ("dense"), or `_PASSES` + 1 times block by block
        and never held whole ("krylov"). An array is processed in this process.
    q : int
        At least 1, at most s.
    method : {"auto", "dense", "krylov", "rsvd"}
        "auto" is dense up to s = 5,000, unless an array in memory is so much larger than q that the randomized block
        Krylov method is far less work; above that, the Krylov method. "rsvd" is the plain randomized SVD with two power
        iterations of the EigenPro paper, less accurate.
    device : {"cpu", "gpu", "auto"}
        Unless "cpu", dense work is done by cuSOLVER and cuBLAS where this process has a GPU with room for it, and
        products of blocks on the GPUs of the workers that have one.

    References
    ----------
    Musco and Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition", NeurIPS 2015, algorithm 2; Halko, Martinsson and Tropp, SIAM Review 2011, algorithms 4.4, 5.3.
    """
    s = int(matrix.shape[0])
    if not 1 <= q <= s:
        raise SpecError(f"got q={q} eigenpairs of a matrix of {s} rows; expected a number between 1 and {s}")
    if method == "auto":
        method = eigen_method(s, q, is_lazy=isinstance(matrix, da.Array))
    if method == "dense":
        xp = namespace_with(device, _DENSE_BYTES * s**2)
        return _on_host(_dense(xp.asarray(np.asarray(matrix, np.float64)), q))
    if method in ("krylov", "rsvd"):
        space = krylov_space(s, q)
        held = 0 if isinstance(matrix, da.Array) else s**2
        xp = namespace_with(device, 8 * (5 * s * space + held) + _DENSE_BYTES * space**2)
        given = matrix if isinstance(matrix, da.Array) else xp.asarray(matrix)
        passes = _PASSES if method == "krylov" else 2
        return _on_host(_krylov(given, q, seed, xp, device, passes=passes, keep_all=method == "krylov"))
    raise SpecError(f"got eigen method {method!r}; expected 'auto', 'dense', 'krylov' or 'rsvd'")


def eigen_method(s: int, q: int, *, is_lazy: bool) -> str:
    """Return "dense" or "krylov", which "auto" stands for: for `q` pairs of a matrix of `s` rows.

    A lazy matrix would be computed seven times by the Krylov method, which is taken where it does not fit in memory,
    and for one in memory where the Krylov space is small next to it.
    """
    is_cheap = not is_lazy and s >= _LEAST and 3 * _SPACE * (q + _OVERSAMPLES) <= s
    return "dense" if s <= DENSE_LIMIT and not is_cheap else "krylov"


def krylov_space(s: int, q: int) -> int:
    """Return the dimension of the space in which the Krylov method looks for `q` pairs of a matrix of `s` rows."""
    return min(_SPACE * (q + _OVERSAMPLES), s)


def _on_host(pairs: tuple[Array, Array]) -> Eigenpairs:
    return Eigenpairs(*map(to_host, pairs))


def _dense(matrix: Array, q: int) -> tuple[Array, Array]:
    xp, s = namespace_of(matrix), matrix.shape[0]
    with library_threads(decomposition_threads(s)):
        values, vectors = symmetric_eigen(0.5 * (matrix + matrix.T), s - q)
    return xp.maximum(values[::-1], 0), xp.ascontiguousarray(vectors[:, ::-1])


def _krylov(
    matrix: da.Array | Array, q: int, seed: int, xp: ModuleType, device: str, *, passes: int, keep_all: bool
) -> tuple[Array, Array]:
    """Rayleigh-Ritz on the block Krylov space (`keep_all`) or on its last block (power iteration)."""
    s = int(matrix.shape[0])
    width = min(q + _OVERSAMPLES, s)
    blocks = [_orthonormal(xp.asarray(generator(seed, _STREAM).standard_normal((s, width))))]
    images = []
    for _ in range(passes):
        image = _product(matrix, blocks[-1], device)
        images.append(image)
        if keep_all and sum(block.shape[1] for block in blocks) >= s:
            break
        blocks.append(_next_block(image, blocks if keep_all else [], s))
    images.append(_product(matrix, blocks[-1], device)) if len(images) < len(blocks) else None
    basis = xp.concatenate(blocks, axis=1) if keep_all else blocks[-1]
    image = xp.concatenate(images, axis=1) if keep_all else images[-1]
    values, vectors = _dense(basis.T @ image, q)
    return values, basis @ vectors


def _product(matrix: da.Array | Array, block: Array, device: str) -> Array:
    """Return ``matrix @ block`` in float64, on the device of `block`."""
    xp = namespace_of(block)
    if not isinstance(matrix, da.Array):
        with library_threads(cpu_count()):
            return xp.asarray(matrix @ block, np.float64)
    lazy = da.from_array(
        to_host(block).astype(matrix.dtype), chunks=(matrix.chunks[1], -1), name=task_name("directions")
    )
    parts = da.blockwise(
        _times, "ijk", matrix, "ij", lazy, "jk", dtype=matrix.dtype, adjust_chunks={"j": 1},
        name=task_name("kernel_times_directions"), device=device,
    )  # fmt: skip
    return xp.asarray(np.asarray(computed(parts.sum(axis=1))[0], np.float64))


def _times(block: HostArray, directions: HostArray, device: str) -> HostArray:
    """Return the product (m, 1, q) of one block, computed on this worker's GPU if it has one."""
    xp = namespace_with(device, block.nbytes + 3 * directions.nbytes)
    with exclusive_gpu(xp):
        return to_host(xp.asarray(block) @ xp.asarray(directions))[:, None]


def _next_block(image: Array, earlier: list[Array], s: int) -> Array:
    """Return an orthonormal basis of `image` orthogonal to `earlier`; two passes are enough (Kahan, Parlett)."""
    room = s - sum(block.shape[1] for block in earlier)
    fresh = image
    for _ in range(2):
        for block in earlier:
            fresh = fresh - block @ (block.T @ fresh)
        fresh = _orthonormal(fresh)
    return fresh[:, :room]


def _orthonormal(block: Array) -> Array:
    xp = namespace_of(block)
    if xp is not np:
        with failures_raised(xp):
            return xp.linalg.qr(block)[0]
    return scipy.linalg.qr(block, mode="economic", check_finite=False)[0]
