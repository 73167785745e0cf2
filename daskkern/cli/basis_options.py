"""The options that say what a model is a sum of."""

from collections.abc import Mapping
from typing import Any

from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.cli.values import as_whole
from daskkern.errors import SpecError
from daskkern.systems import System

DEFAULT_COLUMNS = "10000"
_DEFAULT_NYSTROM = "1000"  # their matrix is decomposed, not factored
BASES: dict[str, tuple[str, ...]] = {
    "landmarks": ("landmarks", "selector"),
    "all": (),
    "random_features": ("features", "feature_kind"),
    "nystrom_features": ("landmarks", "selector"),
    "linear": (),
    "doubly_stochastic": ("features",),
}
"""Names of function spaces, and the options that say more about each."""


def resized(chosen: System, values: Mapping[str, Any]) -> BasisSpec:
    """Return the function space that was given, or the system's own with another number of columns."""
    if "basis" in values or "selector" in values or "feature_kind" in values:
        return basis_of(values)
    number = values.get("landmarks", values.get("features"))
    if not isinstance(chosen.basis, RandomFeatures if "features" in values else Landmarks | NystromFeatures):
        raise SpecError(
            f"--{'features' if 'features' in values else 'landmarks'} was given with system {chosen.name}, whose "
            f"columns are {chosen.space}; leave it out, or give --basis"
        )
    return chosen.with_columns(as_whole("landmarks", number))


def basis_of(values: Mapping[str, Any]) -> BasisSpec:
    """Return the function space that was given. SpecError names an option that does not belong to it."""
    name = str(values.get("basis", "random_features" if "features" in values else "landmarks"))
    usual = _DEFAULT_NYSTROM if name == "nystrom_features" else DEFAULT_COLUMNS
    landmarks, selector = str(values.get("landmarks", usual)), str(values.get("selector", "uniform"))
    if name not in BASES:
        raise SpecError(f"--basis {name!r} was given; choose one of {', '.join(BASES)}")
    for option in ("landmarks", "selector", "features", "feature_kind"):
        if option in values and option not in BASES[name] and values[option] != name:
            raise SpecError(
                f"--{option.replace('_', '-')} was given with the basis {name}, which "
                f"{'takes ' + ', '.join(f'--{word}' for word in BASES[name]) if BASES[name] else 'takes no number'}"
            )
    if name == "linear":
        return Linear()
    if name == "doubly_stochastic":
        return DoublyStochastic(as_whole("features", values.get("features", DoublyStochastic().block)))
    if name == "random_features":
        n = as_whole("features", values.get("features", DEFAULT_COLUMNS))
        return RandomFeatures(n, str(values.get("feature_kind", "auto")))
    if name == "all" or (landmarks == "all" and name == "landmarks"):
        return AllRows()
    try:
        n = int(landmarks)
    except ValueError:
        raise SpecError(f"--landmarks {landmarks!r} was given; give a whole number or 'all'") from None
    return Landmarks(n, selector) if name == "landmarks" else NystromFeatures(n, selector)
