"""Which library an array belongs to, and how it gets to the host and back.

The only place of daskkern that knows CuPy by name. Everything above asks an array for its namespace and
computes with that: NumPy and CuPy run the same text.
"""

import sys
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.devices import cupy_problem
from daskkern.errors import ClusterError, SpecError


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
