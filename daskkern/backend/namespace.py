"""The array library of an array, and transfers between host and device.

The only module of daskkern that knows CuPy by name. Everything above gets the namespace of an array and
computes with that: NumPy and CuPy run the same code.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend import csr
from daskkern.backend.device_rows import DeviceRows
from daskkern.backend.devices import cupy_problem
from daskkern.errors import ClusterError, SpecError

Constants = tuple[float, ...] | tuple[tuple[float, ...], ...]

_ROOM = 0.8
"""Share of the free memory of a device that a computation may plan with: libraries allocate outside the pool."""


_TURN = RLock()

_DIRECT_BYTES = 16 << 20
"""Bytes from which a host array is copied to a GPU without page-locked memory between. Not measured on a GPU."""


def namespace_of(*arrays: Array) -> ModuleType:
    """Return the module (``numpy`` or ``cupy``) whose functions apply to `arrays`.

    Raises
    ------
    SpecError
        When arrays of both libraries are mixed: nothing is moved between devices implicitly.
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return np
    on_gpu = [isinstance(array, cupy.ndarray) for array in arrays if hasattr(array, "shape")]
    if not any(on_gpu):
        return np
    if not all(on_gpu):
        raise SpecError("arrays on the GPU and in host memory were mixed; move them to one device first")
    return cupy


def is_sparse(X: Array) -> bool:
    """Return whether `X` is a sparse matrix of SciPy or CuPy, or :class:`DeviceRows`. Neither library is imported."""
    library = type(X).__module__.startswith(("scipy.sparse", "cupyx.scipy.sparse")) and hasattr(X, "tocsr")
    return library or isinstance(X, DeviceRows)


def to_device(X: Array, xp: ModuleType, *, direct_bytes: int = _DIRECT_BYTES) -> Array:
    """Return rows `X`, dense or CSR, as an array of the library `xp`; itself if it already is one.

    Arrays of `direct_bytes` and more are copied to a GPU from where they are: CuPy would lay a copy into page-locked
    memory before, whose pool takes the next power of two and keeps it.
    """
    if not is_sparse(X):
        if xp is np or not isinstance(X, np.ndarray) or X.nbytes < direct_bytes or X.dtype.kind not in "fiub":
            return xp.asarray(X)
        made = xp.empty(X.shape, X.dtype)
        made.set(np.ascontiguousarray(X))
        return made
    if xp is np:
        return X
    return X if isinstance(X, DeviceRows) else device_rows(csr.checked(X, csr.float_dtype(X.dtype)), xp)


def device_rows(rows: Array, xp: ModuleType) -> DeviceRows:
    """Return canonical CSR rows of SciPy or CuPy on the GPU of `xp`."""
    data, indices, starts = csr.parts_of(rows)
    on_host = to_host(starts)
    return DeviceRows(xp, xp.asarray(data), xp.asarray(indices), xp.asarray(starts), on_host, tuple(rows.shape))


def constants_like(values: Constants, like: Array) -> Array:
    """Return numbers, (k,) or (k, l), in the dtype of an array, where that is. They are uploaded to a GPU once."""
    xp = namespace_of(like)
    if xp is np:
        return np.asarray(values, like.dtype)
    return _constants(xp, int(xp.cuda.runtime.getDevice()), values, like.dtype.name)


@lru_cache(4096)
def _constants(xp: ModuleType, device: int, values: Constants, dtype: str) -> Array:
    del device  # a part of the key
    return xp.asarray(np.asarray(values, dtype))


def to_host(array: Array) -> HostArray:
    """Return `array` as a NumPy array: itself if it is one, a copy if it is on a GPU."""
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def as_host(values: Any) -> HostArray:
    """Return what a user gave - an array, on a GPU too, a list, a column of a frame - as a NumPy array."""
    return to_host(values) if is_of_gpu(values) else np.asarray(values)


def is_of_gpu(values: Any) -> bool:
    """Return whether dense values are an array of CuPy's, which need not be installed."""
    return hasattr(values, "get") and hasattr(values, "strides")  # a column of pandas has no strides


def settle(array: Array = None) -> None:
    """Wait until a GPU has computed `array`; return at once for an array in host memory. For timing only."""
    xp = np if array is None else namespace_of(array)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def namespace_with(device: str, n_bytes: float) -> ModuleType:
    """Return CuPy if `device` allows a GPU and this process has one with `n_bytes` free, else NumPy.

    For work that any process may do, such as a task of the set-up: a worker without a GPU does it on its CPU.
    """
    xp = np if device == "cpu" else namespace_for("auto")
    if xp is np:
        return np
    return xp if n_bytes <= _ROOM * free_on_device(xp) else np


@contextmanager
def exclusive_gpu(xp: ModuleType) -> Iterator[None]:
    """Within the context, no other task of this process works on the GPU of `xp`; nothing is waited for with NumPy.

    A GPU does the work of several threads no faster than that of one, their memory adds up, and CuPy compiles a
    kernel once for each thread that needs it first.
    """
    if xp is np:
        yield
        return
    with _TURN:
        yield


def free_on_device(xp: ModuleType) -> int:
    """Return the bytes of its GPU that this process may allocate: free memory, and the unused memory of its pools.

    An RMM pool counts if CuPy allocates from it: less what is in use where one of RMM's adaptors around it counts that
    (``rmm_track_allocations`` of dask-cuda), and else in full, because RMM does not say it.
    """
    free = int(xp.cuda.runtime.memGetInfo()[0]) + int(xp.get_default_memory_pool().free_bytes())
    if not str(getattr(xp.cuda.get_allocator(), "__module__", "")).startswith("rmm."):
        return free
    return free + _free_in_rmm(sys.modules["rmm"].mr.get_current_device_resource())


def _free_in_rmm(resource: Any) -> int:
    """Return the bytes of an RMM pool that are not in use, under any number of adaptors; 0 without a pool."""
    used = 0
    while resource is not None and not callable(getattr(resource, "pool_size", None)):
        tracked, counts = getattr(resource, "get_allocated_bytes", None), getattr(resource, "allocation_counts", None)
        if callable(tracked):
            used = int(tracked())
        elif counts is not None:
            used = int(counts.current_bytes)
        resource = getattr(resource, "upstream_mr", None)
    return 0 if resource is None else max(0, int(resource.pool_size()) - used)


def free_unused_memory(xp: ModuleType) -> None:
    """Free the unused memory of CuPy's pools, of the device and page-locked, for other processes and later ranks."""
    if xp is not np:
        xp.get_default_memory_pool().free_all_blocks()
        xp.get_default_pinned_memory_pool().free_all_blocks()


@contextmanager
def failures_raised(xp: ModuleType) -> Iterator[None]:
    """Within the context, cuSOLVER raises LinAlgError on failure, as LAPACK does; CuPy would continue with NaN."""
    if xp is np:
        yield
        return
    import cupyx  # optional package

    with cupyx.errstate(linalg="raise"):
        yield


def namespace_for(device: str) -> ModuleType:
    """Return the array module for ``"cpu"``, ``"gpu"`` or ``"auto"`` (the GPU if this process has one).

    Raises
    ------
    ClusterError
        For ``"gpu"`` when CuPy or a CUDA device is missing.
    SpecError
        For any other name.
    """
    if device not in ("cpu", "gpu", "auto"):
        raise SpecError(f"got device {device!r}; expected 'cpu', 'gpu' or 'auto'")
    if device == "cpu":
        return np
    problem = cupy_problem()
    if not problem:
        import cupy  # optional package

        module: ModuleType = cupy
        return module
    if device == "gpu":
        raise ClusterError(f"device 'gpu' cannot be used: {problem}; or choose device 'cpu'")
    return np
