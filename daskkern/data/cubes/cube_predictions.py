"""Predictions for the cells of a Dataset: a DataArray with the same coordinates, lazy where the Dataset is."""

from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_features import CubeFeature, named_features
from daskkern.data.cubes.cube_grid import chunk_edges_of
from daskkern.data.cubes.packages import as_dataset, xarray_package
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.exact_integers import first_rounded
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError

_CELLS = 1 << 17  # predicted at once

RowScores = Callable[[HostArray], HostArray]
"""From rows (m, d) to a value or row of values each."""


def predicted_cube(
    X: Any,
    names: Sequence[str] | None,
    function: RowScores,
    like: HostArray,
    *,
    name: str | None = None,
    outputs: tuple[str, Sequence[Any]] | None = None,
    classes: Sequence[ClassLabel] | None = None,
) -> Any:
    """Return `function` of the features of every cell, NaN (of texts, "") where one of them is missing.

    Parameters
    ----------
    X : Dataset or DataArray
        With the variables that the model's features are made of. Backed by dask or by a file, it gives a lazy result.
    names : sequence of str or None
        The features, as the model records them.
    function : callable
    like : array of zero rows
        The result for no rows, which gives its dtype and width.
    name : str or None
        Name of the DataArray.
    outputs : (str, sequence) or None
        Name and labels of the dim of the values of a cell, where there are several.
    classes : sequence of labels or None
        Those of the model. Integers among them that floats cannot hold stay integers, if `like` is of integers.

    Raises
    ------
    DataError
        When the model has no names of features, or the Dataset lacks one; when computed, for a missing value that
        integers do not have.
    """
    if names is None:
        raise DataError("the model does not record the names of its features, which a Dataset needs; fit a Dataset")
    fix_places(X)
    ds = as_dataset(X, names[0].partition("[")[0])
    features = named_features(names, ds)
    dims = _dims(ds, features)
    inputs = _inputs(ds, features, dims)
    dtype, missing = _kind(like, classes)
    core: dict[str, Any] = {}
    if like.ndim > 1:
        dim, labels = outputs or ("output", range(like.shape[1]))
        core = {"output_core_dims": [[dim]], "dask_gufunc_kwargs": {"output_sizes": {dim: len(labels)}}}
    work = _Cells(function, tuple(like.shape[1:]), dtype, missing)
    found = xarray_package().apply_ufunc(
        work, *inputs, dask="parallelized", output_dtypes=[dtype], keep_attrs="override", **core
    )
    found.attrs = {}  # the coordinates keep theirs; units and packing of a feature are not those of a prediction
    if like.ndim > 1:
        dims, found = [*dims, dim], found.assign_coords({dim: list(labels)})
    return found.transpose(*dims).rename(name)


def _kind(like: HostArray, classes: Sequence[ClassLabel] | None) -> tuple[np.dtype[Any], Any]:
    """Return the dtype of predictions, and what stands where there is none; None where nothing can."""
    if like.dtype.kind in "US":
        return np.dtype(object) if like.dtype.kind == "U" else like.dtype, ""
    if like.dtype.kind in "iu" and classes is not None and first_rounded(np.asarray(classes)) is not None:
        return like.dtype, None
    return like.dtype if like.dtype.kind == "f" else np.dtype(np.float64), np.nan


class _Cells:
    """Applies a function to the cells of arrays that broadcast against each other."""

    def __init__(self, function: RowScores, width: tuple[int, ...], dtype: Any, missing: Any) -> None:
        self._function, self._width, self._dtype, self._missing = function, width, dtype, missing

    def __call__(self, *values: HostArray) -> HostArray:
        arrays = np.broadcast_arrays(*values)
        shape = arrays[0].shape
        flat = [array.reshape(-1) for array in arrays]
        n = int(np.prod(shape))
        out = np.full((n, *self._width), 0 if self._missing is None else self._missing, self._dtype)
        for start in range(0, n, _CELLS):
            part = slice(start, start + _CELLS)
            X = np.stack([array[part].astype(np.float64) for array in flat], axis=1)
            there = np.isfinite(X).all(axis=1)
            if self._missing is None and not there.all():
                raise DataError(
                    "a cell lacks a feature, and the classes are integers beyond 2^53, among which nothing stands for "
                    "a missing value; fill or leave out such cells, or fit to classes that are text"
                )
            if there.any():
                out[part][there] = self._function(X[there])
        return out.reshape((*shape, *self._width))


def _values(ds: Any, feature: CubeFeature) -> Any:
    """Return a feature as a DataArray, lazy where its variable is."""
    variable = ds[feature.variable].isel(dict(feature.at), drop=True)
    return variable.copy(data=feature.of(variable)) if feature.circle else variable


def _dims(ds: Any, features: Sequence[CubeFeature]) -> list[str]:
    """Return the dims of the cells, in the order of the variable with the most of them: of a feature, if one has."""
    needed = {str(dim) for f in features for dim in ds[f.variable].dims if dim not in dict(f.at)}
    names = dict.fromkeys([*(f.variable for f in features), *ds.data_vars])
    found = [[str(dim) for dim in ds[name].dims if dim in needed] for name in names]
    return list(dict.fromkeys(dim for dims in sorted(found, key=len, reverse=True) for dim in dims))


def _inputs(ds: Any, features: Sequence[CubeFeature], dims: Sequence[str]) -> list[Any]:
    """Return the features as DataArrays: lazy, and cut along all dims, where a variable is of dask or in a file."""
    if not any(v.chunks is not None or not v._in_memory for v in (ds[name].variable for name in ds.data_vars)):
        return [_values(ds, feature) for feature in features]
    used, others = (
        sorted(names, key=lambda name: (-int(ds[name].size), name))
        for names in ({feature.variable for feature in features}, map(str, ds.data_vars))
    )
    if not all(ds.sizes[dim] for dim in dims):  # Dask cannot apply a function to none
        return [_values(ds[used].compute(), feature) for feature in features]
    cuts = chunk_edges_of(ds, dims, [*used, *others], len(features))
    lengths = {dim: tuple(np.diff(cut).tolist()) for dim, cut in zip(dims, cuts, strict=True)}
    subset = ds[used]
    chunked = subset.chunk({dim: at for dim, at in (_further_chunks(ds, used) | lengths).items() if dim in subset.dims})
    return [_lazy(_values(chunked, feature), lengths) for feature in features]


def _further_chunks(ds: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the chunks in files of variables that are not of dask, by dim."""
    found: dict[str, Any] = {}
    for variable in (ds[name].variable for name in names):
        if variable.chunks is None and not variable._in_memory:
            found = {**(variable.encoding.get("preferred_chunks") or {}), **found}
    return found


def _lazy(values: Any, lengths: dict[str, tuple[int, ...]]) -> Any:
    """Return a DataArray with chunks; a coordinate of a dim has none by itself, and so its predictions would not."""
    if values.chunks is not None or not values.dims:
        return values
    array = da.from_array(np.asarray(values.values), chunks=tuple(lengths[str(dim)] for dim in values.dims))
    return xarray_package().DataArray(array, coords=values.coords, dims=values.dims)
