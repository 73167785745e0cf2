"""Which library an array belongs to, and how it gets to the host and back.

The only place of daskkern that knows CuPy by name. Everything above asks an array for its namespace and
computes with that: NumPy and CuPy run the same text.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.devices import cupy_problem
from daskkern.errors import ClusterError, SpecError

_ROOM = 0.8
"""Share of the free memory of a device that one piece of work may count with: libraries allocate outside the pool."""


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
    """Return whether `X` is a sparse matrix of SciPy or CuPy. Neither library is imported for the question."""
    return type(X).__module__.startswith(("scipy.sparse", "cupyx.scipy.sparse")) and hasattr(X, "tocsr")


def to_device(X: Array, xp: ModuleType) -> Array:
    """Return rows `X`, dense or CSR, as an array of the library `xp`: itself when it is one."""
    if not is_sparse(X):
        return xp.asarray(X)
    if xp is np:
        return X
    import cupyx.scipy.sparse  # optional package

    return cupyx.scipy.sparse.csr_matrix(X)


def to_host(array: Array) -> HostArray:
    """Return `array` as a NumPy array: itself when it is one, a copy when it lives on a GPU."""
    get = getattr(array, "get", None)
    return np.asarray(get() if callable(get) else array)


def settle(array: Array = None) -> None:
    """Return when a GPU has made `array`; at once for an array in host memory. For clocks only."""
    xp = np if array is None else namespace_of(array)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def namespace_with(device: str, n_bytes: float) -> ModuleType:
    """Return the GPU's module where `device` allows a GPU and this process has one with `n_bytes` free, else NumPy's.

    For work that any process may do, such as a task of the set-up: a worker without a GPU does it on its CPU.
    """
    xp = np if device == "cpu" else namespace_for("auto")
    if xp is np:
        return np
    return xp if n_bytes <= _ROOM * free_on_device(xp) else np


def free_on_device(xp: ModuleType) -> int:
    """Return the bytes of its GPU that this process may take: free ones, and what its pools hold.

    A pool of RMM's counts where CuPy takes its memory from there; it cannot be seen how much of it is in use.
    """
    free = int(xp.cuda.runtime.memGetInfo()[0]) + int(xp.get_default_memory_pool().free_bytes())
    if not str(getattr(xp.cuda.get_allocator(), "__module__", "")).startswith("rmm."):
        return free
    size = getattr(sys.modules["rmm"].mr.get_current_device_resource(), "pool_size", None)
    return free + (int(size()) if callable(size) else 0)


def give_back_memory(xp: ModuleType) -> None:
    """Let other processes, and the ranks that follow, have the device memory that CuPy's pool holds unused."""
    if xp is not np:
        xp.get_default_memory_pool().free_all_blocks()


@contextmanager
def failures_raised(xp: ModuleType) -> Iterator[None]:
    """Within, cuSOLVER raises LinAlgError where it finds no answer, as LAPACK does; CuPy would go on with NaN."""
    if xp is np:
        yield
        return
    import cupyx  # optional package

    with cupyx.errstate(linalg="raise"):
        yield


def namespace_for(device: str) -> ModuleType:
    """Return the array module for ``"cpu"``, ``"gpu"`` or ``"auto"`` (the GPU where this process has one).

    Raises
    ------
    ClusterError
        When ``"gpu"`` was asked and CuPy or a CUDA device is missing.
    SpecError
        For any other name.
    """
    if device not in ("cpu", "gpu", "auto"):
        raise SpecError(f"device {device!r} was asked; choose 'cpu', 'gpu' or 'auto'")
    if device == "cpu":
        return np
    problem = cupy_problem()
    if not problem:
        import cupy  # optional package

        module: ModuleType = cupy
        return module
    if device == "gpu":
        raise ClusterError(f"device 'gpu' was asked, but {problem}; or ask for device 'cpu'")
    return np
