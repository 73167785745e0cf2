"""The optional package xarray: its objects are recognised without importing it."""

import types
from typing import Any

from daskkern.errors import DataError


def is_cube(X: Any) -> bool:
    """Return whether `X` is an xarray Dataset or DataArray."""
    return type(X).__module__.split(".")[0] == "xarray" and hasattr(X, "dims") and hasattr(X, "coords")


def is_labelled(X: Any) -> bool:
    """Return whether `X` is an xarray DataArray."""
    return is_cube(X) and not hasattr(X, "data_vars")


def xarray_package() -> types.ModuleType:
    """Return the module xarray. DataError says how to install it."""
    try:
        import xarray
    except ImportError:
        raise DataError(
            "xarray is not installed, which reads labelled arrays; install it with: pip install 'daskkern[xarray]'"
        ) from None
    module: types.ModuleType = xarray
    return module


def as_dataset(X: Any, name: str) -> Any:
    """Return a Dataset as it is, and a DataArray as one with the variable `name`, unless it has a name of its own.

    Raises
    ------
    DataError
        For a tree of Datasets, and names that are not texts.
    """
    if hasattr(X, "subtree"):
        raise DataError(
            "got a DataTree of xarray; give one of its Datasets, such as tree['/name'].to_dataset(), or join them first"
        )
    ds = X.to_dataset(name=name if X.name is None else X.name) if is_labelled(X) else X
    for given in (*ds.variables, *ds.dims):
        if not isinstance(given, str):
            raise DataError(
                f"got a Dataset with a variable or dim named {given!r}, of type {type(given).__name__}; expected names "
                f"that are text: rename it with ds.rename({{{given!r}: {str(given)!r}}})"
            )
    return ds
