"""Features of the cells of a cube: variables, their values along further dims, and coordinates.

The name of a feature says how it is computed, so that a model, which records the names of its features, can be applied
to any Dataset with the same variables:

- ``humidity``: a variable, or a coordinate in its own units; dims that it lacks are broadcast;
- ``z[level=500]``: a variable with a dim that is not a sample dim, at one of its labels (or positions, without labels);
- ``sin(lon)``, ``cos(lon)``: a longitude, on the circle;
- ``sin(dayofyear(time))``, ``sin(hour(time))`` and so on: a time, on the circles of the year and of the day.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.cubes.packages import xarray_package
from daskkern.errors import DataError

_WAVE = re.compile(r"(sin|cos)\((?:(dayofyear|hour)\((.+)\)|(.+))\)")
_PLACE = re.compile(r"(.+)\[(.+)\]")
_MOST_FEATURES = 10_000
_DAYS, _HOURS, _DEGREES = 365.2425, 24.0, 360.0


@dataclass(frozen=True)
class CubeFeature:
    """A feature: the variable or coordinate it is made of, where along further dims, and its circle.

    Attributes
    ----------
    name : str
    variable : str
    at : tuple of (str, str)
        Dims that are no sample dims, and the labels there.
    circle : "", "degrees", "dayofyear" or "hour"
        What the values are an angle on; "" takes them as they are.
    wave : "", "sin" or "cos"
    """

    name: str
    variable: str
    at: tuple[tuple[str, str], ...] = ()
    circle: str = ""
    wave: str = ""

    def of(self, values: HostArray, hours: HostArray | None = None) -> FloatArray:
        """Return the feature of the values of its variable, or of the hours of its times; any shape, float64."""
        if not self.circle:
            return np.asarray(values, np.float64)
        turns = {"degrees": lambda: np.asarray(values, np.float64) / _DEGREES}
        turns["dayofyear"] = lambda: np.asarray(hours) / 24 / _DAYS
        turns["hour"] = lambda: np.asarray(hours) / _HOURS
        angle = 2 * np.pi * turns[self.circle]()
        return np.sin(angle) if self.wave == "sin" else np.cos(angle)


def chosen_features(
    ds: Any, dims: Sequence[str], taken: Sequence[str], coords: Sequence[str], drop: Sequence[str]
) -> tuple[CubeFeature, ...]:
    """Return the features of a Dataset for a fit: its variables, but `taken` and `drop`, and the coordinates `coords`.

    Raises
    ------
    DataError
        For names that the Dataset does not have, and variables that are no numbers.
    """
    for name in drop:
        if name not in ds.data_vars:
            raise DataError(f"got drop={name!r}; expected variables of the Dataset: {_listed(ds.data_vars)}")
    features: list[CubeFeature] = []
    for name in map(str, ds.data_vars):
        if name in taken or name in drop:
            continue
        kind = ds[name].dtype.kind
        if kind not in "fiub":
            raise DataError(
                f"variable {name!r} of the Dataset holds {ds[name].dtype} values; features are numbers: drop it with "
                f"drop=({name!r},), or encode it as numbers"
            )
        features += _of_variable(ds, name, dims)
    for name in coords:
        features += _of_coordinate(ds, name, dims)
    if not features:
        raise DataError("no variable is left as a feature; give further variables, or coords=(...)")
    if len(features) > _MOST_FEATURES:
        raise DataError(
            f"the Dataset has {len(features):,} features, one for each place along dims other than {tuple(dims)}; "
            f"name more sample_dims, or select: at most {_MOST_FEATURES:,} are possible"
        )
    return tuple(features)


def named_features(names: Sequence[str], ds: Any) -> tuple[CubeFeature, ...]:
    """Return the features of these names, as a model records them. DataError where the Dataset lacks one."""
    return tuple(_parsed(name, ds) for name in names)


def labels_along(ds: Any, dim: str) -> tuple[str, ...]:
    """Return the labels of a dim as texts; its positions where it has no coordinate."""
    if dim not in ds.coords:
        return tuple(str(number) for number in range(ds.sizes[dim]))
    return tuple(_text(value) for value in np.asarray(ds[dim].values).tolist())


def hours_of(variable: Any, circle: str) -> HostArray:
    """Return the hours of times since the begin of their year, or of their day (circle "hour")."""
    times = variable.dt
    of_day = (times.hour * 3600 + times.minute * 60 + times.second).values / 3600
    return of_day if circle == "hour" else (times.dayofyear.values - 1) * 24 + of_day


def is_time(variable: Any) -> bool:
    """Return whether a DataArray holds dates, of NumPy or of another calendar (cftime)."""
    if variable.dtype.kind == "M":
        return True
    return variable.dtype.kind == "O" and bool(xarray_package().core.common.contains_cftime_datetimes(variable))


def _of_variable(ds: Any, name: str, dims: Sequence[str]) -> list[CubeFeature]:
    further = [str(dim) for dim in ds[name].dims if dim not in dims]
    if not further:
        return [CubeFeature(name, name)]
    places = product(*(labels_along(ds, dim) for dim in further))
    found = [tuple(zip(further, labels, strict=True)) for labels in places]
    return [CubeFeature(f"{name}[{','.join(f'{dim}={label}' for dim, label in at)}]", name, at) for at in found]


def _of_coordinate(ds: Any, name: str, dims: Sequence[str]) -> list[CubeFeature]:
    if name not in ds.coords:
        raise DataError(f"got coords={name!r}; expected coordinates of the Dataset: {_listed(ds.coords)}")
    values = ds[name]
    if not set(values.dims) <= set(dims):
        raise DataError(f"coordinate {name!r} has the dims {values.dims}, which are not all among sample_dims")
    if is_time(values):
        circles = ["dayofyear"] + ["hour"] * _varies_within_days(values)
        return [
            CubeFeature(f"{wave}({circle}({name}))", name, (), circle, wave)
            for circle in circles
            for wave in ("sin", "cos")
        ]
    if values.dtype.kind not in "fiub":
        raise DataError(f"coordinate {name!r} holds {values.dtype} values; a feature is a number or a time")
    if _is_longitude(name, values):
        return [CubeFeature(f"{wave}({name})", name, (), "degrees", wave) for wave in ("sin", "cos")]
    return [CubeFeature(name, name)]


def _varies_within_days(times: Any) -> bool:
    return len(np.unique(hours_of(times, "hour"))) > 1


def _is_longitude(name: str, values: Any) -> bool:
    units = str(values.attrs.get("units", "")).lower()
    return (
        values.attrs.get("standard_name") == "longitude"
        or units in ("degrees_east", "degree_east")
        or (name.lower() in ("lon", "longitude") and not units.startswith("rad"))
    )


def _parsed(name: str, ds: Any) -> CubeFeature:
    if name in ds.variables:
        return CubeFeature(name, name)
    wave = _WAVE.fullmatch(name)
    if wave is not None:
        variable = wave[3] or wave[4]
        if variable in ds.variables:
            return CubeFeature(name, variable, (), wave[2] or "degrees", wave[1])
    place = _PLACE.fullmatch(name)
    if place is not None and place[1] in ds.variables:
        at = tuple((dim, label) for dim, _, label in (part.partition("=") for part in place[2].split(",")))
        for dim, label in at:
            if dim not in ds[place[1]].dims or label not in labels_along(ds, dim):
                raise DataError(f"the Dataset has no {dim}={label} of the variable {place[1]!r}, which the model needs")
        return CubeFeature(name, place[1], at)
    raise DataError(f"the Dataset lacks {name!r}, a feature of the model; it has {_listed(ds.variables)}")


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"
