"""Rows that estimators read where they lie: xarray Datasets, tables in files, Zarr arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from daskkern.arrays import HostArray
from daskkern.cluster.connect.clients import client_of
from daskkern.data.cubes.cube_opening import CubeChoice
from daskkern.data.cubes.cube_predictions import predicted_cube
from daskkern.data.cubes.packages import is_cube
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError
from daskkern.estimators.parameters import active_client
from daskkern.models import KernelModel
from daskkern.training.feeding.cube_source import cube_source
from daskkern.training.feeding.row_source import RowSource


@dataclass(frozen=True)
class ColumnRoles:
    """What a user names in `fit`, checked: see :meth:`daskkern.KernelClassifier.fit`."""

    target: tuple[str, ...] = ()
    sample_dims: tuple[str, ...] | None = None
    coords: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: Any, sample_dims: Any, coords: Any, drop: Any) -> "ColumnRoles":
        """Return the names as tuples. A single name is one of its own."""
        return cls(
            _names("target", target) or (),
            _names("sample_dims", sample_dims),
            _names("coords", coords) or (),
            _names("drop", drop) or (),
        )

    def refuse_for(self, X: Any) -> None:
        """Raise DataError where anything is named, for rows that have no names."""
        for name, value in vars(self).items():
            if value:
                raise DataError(
                    f"got {name}={value!r} with X of type {type(X).__name__}; it names parts of an xarray Dataset"
                )


def is_direct(X: Any, roles: ColumnRoles) -> bool:
    """Return whether a fit reads `X` where it lies. DataError where `roles` do not suit it."""
    if is_cube(X):
        return True
    roles.refuse_for(X)
    return False


def direct_source(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any,
    roles: ColumnRoles,
    task: str,
    classes: tuple[ClassLabel, ...] | None = None,
) -> RowSource:
    """Return rows that are read where they lie as a source; `classes` are those of earlier rows."""
    weight = sample_weight if isinstance(sample_weight, str) else None
    choice = CubeChoice(roles.target, roles.sample_dims, roles.coords, roles.drop, weight)
    given = None if weight is not None else sample_weight
    with client_of(active_client(getattr(estimator, "client", None))) as client:
        return cube_source(X, choice, task, y=y, weight=given, classes=classes, client=client)


def applied_to_cube(model: KernelModel, X: Any, function: Any, like: HostArray) -> Any:
    """Return a function of a model and rows, for every cell of a Dataset."""
    outputs: tuple[str, Any] | None = None
    if like.ndim > 1:
        labels: Any = range(like.shape[1])
        if model.classes is not None and len(model.classes) == like.shape[1]:
            outputs = ("class", list(model.classes))
        elif model.target_names is not None and len(model.target_names) == like.shape[1]:
            outputs = ("target", list(model.target_names))
        else:
            outputs = ("output", labels)
    single = model.target_names[0] if model.target_names is not None and len(model.target_names) == 1 else None
    work = _OfModel(model, function)
    return predicted_cube(X, model.feature_names, work, like, name=single, outputs=outputs)


@dataclass(frozen=True)
class _OfModel:
    """A function of a model and checked rows, as a function of rows; Dask runs one on each of its threads."""

    model: KernelModel
    function: Any

    def __call__(self, X: HostArray) -> HostArray:
        return np.asarray(self.function(self.model, self.model.check(X), 1))


def _names(role: str, given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise DataError(f"got {role}={given!r}; give a name, or a list of names")
    return names
