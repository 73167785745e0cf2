"""Rows that estimators read in place: xarray Datasets, tables in files, Zarr arrays."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from sklearn.base import BaseEstimator

from daskkern.arrays import HostArray
from daskkern.cluster.connect.clients import client_of
from daskkern.data.cubes.cube_predictions import predicted_cube
from daskkern.data.cubes.packages import is_cube
from daskkern.data.direct.arrow_datasets import is_arrow_dataset
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.direct.table_files import TableFiles
from daskkern.errors import DataError
from daskkern.estimators.parameters import active_client
from daskkern.models import KernelModel
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource, SourceInfo


def named_roles(target: Any, sample_dims: Any, coords: Any, drop: Any) -> RowRoles:
    """Return the names that `fit` was given. A single name is a list of one. DataError for what is not a name."""
    return RowRoles(
        _names("target", target), _names("sample_dims", sample_dims), _names("coords", coords), _names("drop", drop)
    )


def is_direct(X: Any, roles: RowRoles) -> bool:
    """Return whether a fit reads `X` in place. DataError where `roles` name parts of rows without names."""
    if is_cube(X) or is_arrow_dataset(X) or isinstance(X, zarr.Array | TableFiles):
        return True
    if is_dask_frame(X) or isinstance(X, str | os.PathLike | zarr.Group):
        return bool(roles.given)
    for name, value in roles.given.items():
        raise DataError(
            f"got {name}={value!r} with X of type {type(X).__name__}; it names parts of an xarray Dataset, or "
            "columns of a table in files"
        )
    return False


def direct_source(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any,
    roles: RowRoles,
    task: str,
    like: SourceInfo | None = None,
) -> RowSource:
    """Return rows that are read in place as a source; `like` are training rows whose classes they get."""
    name = sample_weight if isinstance(sample_weight, str) else None
    weight = None if name is not None else sample_weight
    with client_of(active_client(getattr(estimator, "client", None))) as client:
        return direct_rows(X, replace(roles, task=task, weight=name), y=y, weight=weight, like=like, client=client)[0]


def applied_to_cube(model: KernelModel, X: Any, function: Any, like: HostArray) -> Any:
    """Return a function of a model and rows, for every cell of a Dataset."""
    outputs: tuple[str, Any] | None = None
    if like.ndim > 1:
        width, names = int(like.shape[1]), model.target_names
        outputs = ("output", range(width))
        if model.classes is not None and len(model.classes) == width:
            outputs = ("class", list(model.classes))
        elif names is not None and len(names) == width:
            outputs = ("target", list(names))
    single = model.target_names[0] if model.target_names is not None and len(model.target_names) == 1 else None
    work = _OfModel(model, function)
    return predicted_cube(X, model.feature_names, work, like, name=single, outputs=outputs, classes=model.classes)


@dataclass(frozen=True)
class _OfModel:
    """A function of a model and checked rows, as a function of rows; Dask runs one on each of its threads."""

    model: KernelModel
    function: Any

    def __call__(self, X: HostArray) -> HostArray:
        return np.asarray(self.function(self.model, self.model.check(X), 1))


def _names(role: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise DataError(f"got {role}={given!r}; give a name, or a list of different names")
    return names
