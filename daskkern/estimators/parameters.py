"""Parameters of the estimators as settings take them."""

from typing import Any

import numpy as np
from distributed import default_client
from sklearn.utils import check_random_state

from daskkern.errors import SpecError
from daskkern.kernels import CallableKernel, Kernel, parse_kernel


def as_kernel(kernel: Any) -> Kernel:
    """Return a kernel from a kernel, its specification as a string, or a function of two tables of rows."""
    if isinstance(kernel, str):
        return parse_kernel(kernel)
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel, getattr(kernel, "__name__", "callable"))
    if not isinstance(kernel, Kernel):
        raise SpecError(
            f"got kernel={kernel!r}; give a kernel such as Gaussian(5.0), a string such as 'gaussian:5', or a function "
            "of two tables of rows"
        )
    return kernel


def as_seed(random_state: Any) -> int:
    """Return an integer seed for scikit-learn's `random_state`."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def active_client(client: Any) -> Any:
    """Return `client`, or if it is None the active client of this process, if there is one."""
    if client is not None:
        return client
    try:
        return default_client()
    except ValueError:
        return None
