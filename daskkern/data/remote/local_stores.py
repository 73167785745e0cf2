"""Absolute paths for local Zarr stores, because a worker resolves relative ones in its own folder."""

import io
from pathlib import Path
from typing import Any

import cloudpickle
import zarr
from dask.base import is_dask_collection
from distributed import Future
from zarr.storage import LocalStore, ZipStore

_LEAVES = ("cudf", "cupy", "numpy", "pandas", "pyarrow")
"""Packages whose values hold no stores, and are not walked through."""


def fix_places(*values: Any) -> None:
    """Make the paths of the local Zarr stores in some objects absolute, as this process sees them, in place.

    Parameters
    ----------
    *values : zarr.Array, zarr.Group, dask collection, xarray.Dataset or xarray.DataArray
        No rows are read. An object that cannot be pickled, and so cannot reach a worker, stays as it is, and so does
        anything else.
    """
    for value in values:
        if isinstance(value, zarr.Array | zarr.Group):
            _fix(value.store)
        elif is_dask_collection(value) or type(value).__module__.partition(".")[0] == "xarray":
            for store in _stores_in(value):
                _fix(store)


def _fix(store: Any) -> None:
    if isinstance(store, LocalStore):
        store.root = store.root.absolute()
    elif isinstance(store, ZipStore):
        store.path = Path(store.path).absolute()


def _stores_in(value: Any) -> list[Any]:
    finder = _Finder(_Sink(), protocol=5, buffer_callback=lambda _: False)
    try:
        finder.dump(value)
    except Exception:  # of as many types as there are reasons not to be pickled
        return []
    return finder.found


class _Finder(cloudpickle.Pickler):
    """Pickler that collects the stores which it meets, and looks at no rows."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.found: list[Any] = []

    def persistent_id(self, value: Any) -> int | None:
        if isinstance(value, LocalStore | ZipStore):
            self.found.append(value)
            return 0
        known = isinstance(value, Future) or type(value).__module__.partition(".")[0] in _LEAVES
        return 0 if known else None


class _Sink(io.RawIOBase):
    """A file that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)
