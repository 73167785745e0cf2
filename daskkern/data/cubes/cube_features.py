"""Features of the cells of a cube: variables, their values along further dims, and coordinates.

The name of a feature says how it is computed, so that a model, which records the names of its features, can be applied
to any Dataset with the same variables:

- ``humidity``: a variable, or a coordinate in its own units; dims that it lacks are broadcast;
- ``z[level=500]``: a variable with a dim that is not a sample dim, at one of its labels (or positions, without labels);
- ``sin(lon)``, ``cos(lon)``: a longitude, on the circle;
- ``sin(dayofyear(time))``, ``sin(hour(time))`` and so on: a time, on the circles of the year and of the day.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.cubes.cube_labels import labels_along, places_along, position_of
from daskkern.errors import DataError

_WAVE = re.compile(r"(sin|cos)\((?:(dayofyear|hour)\((.+)\)|(.+))\)")
_MOST_FEATURES = 10_000
_DAYS, _HOURS, _DEGREES = 365.2425, 24.0, 360.0
_DAYS_OF_CALENDARS = {"360_day": 360.0, "noleap": 365.0, "365_day": 365.0, "all_leap": 366.0, "366_day": 366.0}

_Places = Callable[[str], dict[str, tuple[int, ...]]]


@dataclass(frozen=True)
class CubeFeature:
    """A feature: the variable or coordinate it is made of, where along further dims, and its circle.

    Attributes
    ----------
    name : str
    variable : str
    at : tuple of (str, int)
        Dims that are not sample dims, and the positions there.
    circle : "", "degrees", "dayofyear" or "hour"
        What the values are an angle on; "" takes them as they are.
    wave : "", "sin" or "cos"
    """

    name: str
    variable: str
    at: tuple[tuple[str, int], ...] = ()
    circle: str = ""
    wave: str = ""

    def of(self, variable: Any) -> HostArray:
        """Return the feature of a DataArray of its variable, without its dims `at`: values of the same shape."""
        if not self.circle:
            return np.asarray(variable.values)
        angle = 2 * np.pi * fractions_of_circle(variable, self.circle)
        return np.sin(angle) if self.wave == "sin" else np.cos(angle)


def chosen_features(
    ds: Any, dims: Sequence[str], taken: Sequence[str], coords: Sequence[str], drop: Sequence[str]
) -> tuple[CubeFeature, ...]:
    """Return the features of a Dataset for a fit: its variables, but `taken` and `drop`, and the coordinates `coords`.

    Raises
    ------
    DataError
        For names that the Dataset does not have, variables that are not numbers, and features of the same name.
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
    _check_different(features)
    return tuple(features)


def named_features(names: Sequence[str], ds: Any) -> tuple[CubeFeature, ...]:
    """Return the features of these names, as a model records them. DataError where the Dataset lacks one."""
    places = cache(lambda dim: places_along(ds, dim))
    return tuple(_named(name, ds, places) for name in names)


def fractions_of_circle(variable: Any, circle: str) -> FloatArray:
    """Return longitudes in degrees, or times since the begin of their year or day, as turns of a circle, float64."""
    if circle == "degrees":
        return np.asarray(variable.values, np.float64) / _DEGREES
    times = variable.dt
    hours = (times.hour * 3600 + times.minute * 60 + times.second).values / 3600
    if circle == "hour":
        return np.asarray(hours) / _HOURS
    hours = (times.dayofyear.values - 1) * 24 + hours
    return np.asarray(hours) / 24 / _DAYS_OF_CALENDARS.get(str(times.calendar), _DAYS)


def is_time(variable: Any) -> bool:
    """Return whether a DataArray holds dates, of NumPy or of another calendar (cftime)."""
    return variable.dtype.kind == "M" or (variable.dtype.kind == "O" and hasattr(variable, "dt"))


def _check_different(features: Sequence[CubeFeature]) -> None:
    """Raise DataError for two features of one name, by which a model could not distinguish them."""
    (name, count), *_ = Counter(feature.name for feature in features).most_common(1)
    if count > 1:
        raise DataError(
            f"{count} features of the Dataset would have the name {name!r}; rename the variable or coordinate, make "
            "the labels along its dims different, or leave it out with drop="
        )


def _of_variable(ds: Any, name: str, dims: Sequence[str]) -> list[CubeFeature]:
    further = [str(dim) for dim in ds[name].dims if dim not in dims]
    if not further:
        return [CubeFeature(name, name)]
    found: list[CubeFeature] = []
    for places in product(*(enumerate(labels_along(ds, dim)) for dim in further)):
        labels = ",".join(f"{dim}={label}" for dim, (_, label) in zip(further, places, strict=True))
        at = tuple((dim, position) for dim, (position, _) in zip(further, places, strict=True))
        found.append(CubeFeature(f"{name}[{labels}]", name, at))
    return found


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
    return len(np.unique(fractions_of_circle(times, "hour"))) > 1


def _is_longitude(name: str, values: Any) -> bool:
    units = str(values.attrs.get("units", "")).lower()
    return (
        values.attrs.get("standard_name") == "longitude"
        or units in ("degrees_east", "degree_east")
        or (name.lower() in ("lon", "longitude") and not units.startswith("rad"))
    )


def _named(name: str, ds: Any, places: _Places) -> CubeFeature:
    if name in ds.variables:
        return CubeFeature(name, name)
    wave = _WAVE.fullmatch(name)
    if wave is not None:
        variable = wave[3] or wave[4]
        if variable in ds.variables:
            return CubeFeature(name, variable, (), wave[2] or "degrees", wave[1])
    for bracket in re.finditer(r"\[", name):
        variable = name[: bracket.start()]
        if variable in ds.variables and name.endswith("]"):
            return CubeFeature(name, variable, _at(name[bracket.end() : -1], ds[variable], places))
    raise DataError(f"the Dataset lacks {name!r}, a feature of the model; it has {_listed(ds.variables)}")


def _at(text: str, variable: Any, places: _Places) -> tuple[tuple[str, int], ...]:
    """Return dims of a variable and positions there of a text such as ``level=500,lag=1``, whatever labels contain."""
    found = _readings(text, [str(dim) for dim in variable.dims], places)
    if not found:
        raise DataError(f"the Dataset has no {text} of the variable {variable.name!r}, which the model needs")
    if len(found) > 1:
        raise DataError(
            f"the feature {text} of the variable {variable.name!r} is that of several places, as labels have commas "
            "and signs of equality; fit to other labels"
        )
    return tuple((dim, position_of(places(dim), dim, label)) for dim, label in found[0])


def _readings(text: str, dims: Sequence[str], places: _Places) -> list[tuple[tuple[str, str], ...]]:
    """Return the ways to read a text as dims and labels that they have."""
    found: list[tuple[tuple[str, str], ...]] = []
    for dim in dims:
        if not text.startswith(f"{dim}="):
            continue
        others, rest = [other for other in dims if other != dim], text[len(dim) + 1 :]
        for end in [part.start() for other in others for part in re.finditer(re.escape(f",{other}="), rest)]:
            if rest[:end] in places(dim):
                found += [((dim, rest[:end]), *more) for more in _readings(rest[end + 1 :], others, places)]
        if rest in places(dim):
            found.append(((dim, rest),))
    return found


def _listed(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"
