"""Type aliases for arrays, shared by all layers.

``Array`` is a dense array on some device: a NumPy or a CuPy ``ndarray``. Code that takes one asks it for
its namespace (:func:`daskkern.backend.namespace.namespace_of`) and never names a library.
``HostArray`` is a NumPy array, for everything that crosses a process boundary or touches a disk.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = Any
HostArray: TypeAlias = npt.NDArray[Any]
FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.int64]
