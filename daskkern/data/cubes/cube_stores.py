"""Zarr stores written by xarray: recognised, and opened lazily."""

import os
from pathlib import Path
from typing import Any

import zarr

from daskkern.data.cubes.packages import xarray_package
from daskkern.data.remote.stores import is_url, open_zarr
from daskkern.errors import DataError


def is_cube_store(place: str | os.PathLike[str] | zarr.Group) -> bool:
    """Return whether a Zarr group, opened or at a path or URL, has arrays with named dims, as xarray writes them."""
    group = _group(place)
    if group is None or str(group.attrs.get("format", "")).startswith("daskkern-"):
        return False
    return any(_dims(array) for _, array in group.arrays())


def open_cube(place: str | os.PathLike[str] | zarr.Group) -> Any:
    """Return the Dataset in a Zarr store, scaled and masked by its attributes, without dask arrays.

    Raises
    ------
    DataError
        When xarray is not installed, or cannot open it.
    """
    xarray, group = xarray_package(), _group(place)
    where = str(place.store_path) if isinstance(place, zarr.Group) else os.fspath(place)
    if group is None:
        raise DataError(f"{where} is not a Zarr group; give a store that xarray wrote with to_zarr")
    consolidated = group.metadata.consolidated_metadata is not None
    try:
        return xarray.open_zarr(group.store, group=group.path or None, chunks=None, consolidated=consolidated)
    except Exception as error:  # decoders have exceptions of their own
        raise DataError(f"{where} cannot be opened by xarray: {type(error).__name__}: {error}") from error


def plain_arrays(place: str | os.PathLike[str] | zarr.Group) -> dict[str, zarr.Array[Any]]:
    """Return the arrays directly in a Zarr group by name; none where there is no group."""
    group = _group(place)
    return {} if group is None else {name: array for name, array in group.arrays() if isinstance(array, zarr.Array)}


def _group(place: str | os.PathLike[str] | zarr.Group) -> zarr.Group | None:
    if isinstance(place, zarr.Group):
        return place
    text = os.fspath(place)
    try:
        if is_url(text):
            return open_zarr(text)
        path = Path(os.path.abspath(text))
        return zarr.open_group(store=path, mode="r") if path.is_dir() else None
    except Exception:  # zarr raises many types when there is no group
        return None


def _dims(array: Any) -> tuple[str, ...]:
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    return tuple(name for name in names if name)
