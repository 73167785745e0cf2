"""Predictions for the cells of a Dataset: a DataArray with the same coordinates, lazy where the Dataset is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.cubes.cube_features import CubeFeature, named_features
from daskkern.data.cubes.packages import as_dataset, xarray_package
from daskkern.data.remote.local_stores import fix_places
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

    Raises
    ------
    DataError
        When the model has no names of features, or the Dataset lacks one.
    """
    if names is None:
        raise DataError("the model does not record the names of its features, which a Dataset needs; fit a Dataset")
    fix_places(X)
    ds = _chunked(as_dataset(X, names[0].partition("[")[0]), names)
    features = named_features(names, ds)
    inputs = [_values(ds, feature) for feature in features]
    dims = _dims(ds, features)
    missing: Any = "" if like.dtype.kind in "US" else np.nan
    dtype = like.dtype if like.dtype.kind in "USf" else np.dtype(np.float64)
    if like.dtype.kind == "U":
        dtype = np.dtype(object)
    core: dict[str, Any] = {}
    if like.ndim > 1:
        dim, labels = outputs or ("output", range(like.shape[1]))
        core = {"output_core_dims": [[dim]], "dask_gufunc_kwargs": {"output_sizes": {dim: len(labels)}}}
    work = _Cells(function, tuple(like.shape[1:]), dtype, missing)
    found = xarray_package().apply_ufunc(work, *inputs, dask="parallelized", output_dtypes=[dtype], **core)
    if like.ndim > 1:
        dims, found = [*dims, dim], found.assign_coords({dim: list(labels)})
    return found.transpose(*dims).rename(name)


class _Cells:
    """Applies a function to the cells of arrays that broadcast against each other."""

    def __init__(self, function: RowScores, width: tuple[int, ...], dtype: Any, missing: Any) -> None:
        self._function, self._width, self._dtype, self._missing = function, width, dtype, missing

    def __call__(self, *values: HostArray) -> HostArray:
        arrays = np.broadcast_arrays(*values)
        shape = arrays[0].shape
        flat = [array.reshape(-1) for array in arrays]
        n = int(np.prod(shape))
        out = np.full((n, *self._width), self._missing, self._dtype)
        for start in range(0, n, _CELLS):
            part = slice(start, start + _CELLS)
            X = np.stack([array[part].astype(np.float64) for array in flat], axis=1)
            there = np.isfinite(X).all(axis=1)
            if there.any():
                out[part][there] = self._function(X[there])
        return out.reshape(*shape, *self._width)


def _values(ds: Any, feature: CubeFeature) -> Any:
    """Return a feature as a DataArray, lazy where its variable is."""
    variable = ds[feature.variable].isel(dict(feature.at), drop=True)
    return variable.copy(data=feature.of(variable)) if feature.circle else variable


def _dims(ds: Any, features: Sequence[CubeFeature]) -> list[str]:
    """Return the dims of the cells, in the order of the variable with the most of them."""
    found = [[d for d in ds[f.variable].dims if d not in dict(f.at)] for f in features]
    ordered = sorted(found, key=len, reverse=True)
    return list(dict.fromkeys(str(dim) for dims in ordered for dim in dims))


def _chunked(ds: Any, names: Sequence[str]) -> Any:
    """Return the Dataset with chunks where its variables are in a file, so that predictions are lazy."""
    used = {feature.variable for feature in named_features(names, ds)}
    stored = [ds[name].variable for name in used if name in ds.data_vars]
    if not any(v.chunks is None and not v._in_memory for v in stored):
        return ds
    chunks: dict[str, int] = {}
    for variable in sorted(stored, key=lambda v: -v.ndim):
        for dim, length in (variable.encoding.get("preferred_chunks") or {}).items():
            chunks.setdefault(dim, length)
    return ds[sorted(used)].chunk(chunks)
