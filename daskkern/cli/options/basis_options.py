"""Command-line options for the basis of a model, and their conversion to a basis."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from daskkern.basis import (
    AllRows,
    BasisSpec,
    DoublyStochastic,
    Landmarks,
    Linear,
    LocallyLinear,
    LocalRows,
    NystromFeatures,
    RandomFeatures,
)
from daskkern.cli.options.values import as_whole
from daskkern.errors import SpecError
from daskkern.systems import System

DEFAULT_COLUMNS = "10000"
_USUAL_LANDMARKS = {
    "nystrom_features": "1000",  # fewer: their kernel matrix needs an eigendecomposition, not just a Cholesky factor
    "locally_linear": str(LocallyLinear().n),
}
BASES: dict[str, tuple[str, ...]] = {
    "landmarks": ("landmarks", "selector"),
    "all": (),
    "random_features": ("features", "feature_kind"),
    "nystrom_features": ("landmarks", "selector"),
    "linear": (),
    "locally_linear": ("landmarks", "nearest", "selector"),
    "doubly_stochastic": ("features",),
    "local_rows": ("leaf_rows", "trees"),
}
"""Names of bases, with the options that each of them takes."""
_COLUMN_OPTIONS = ("landmarks", "selector", "features", "feature_kind", "nearest", "leaf_rows", "trees")

_WHOLE = ("n", "nearest", "leaf_rows", "n_trees")


def names_no_columns(values: Mapping[str, Any]) -> bool:
    """Return whether the options leave the basis open."""
    return not {"basis", *_COLUMN_OPTIONS} & values.keys()


def resized(chosen: System, values: Mapping[str, Any]) -> BasisSpec:
    """Return the basis given by the options, or the system's own basis with the columns that they change."""
    if "basis" in values:
        return basis_of(values)
    names = {
        "landmarks": "n",
        "features": "n",
        "nearest": "nearest",
        "leaf_rows": "leaf_rows",
        "trees": "n_trees",
        "selector": "selector",
        "feature_kind": "kind",
    }
    takes = BASES.get(chosen.basis.name.replace(" ", "_"), ())
    changes: dict[str, Any] = {}
    for option, name in names.items():
        if option not in values:
            continue
        if option not in takes:
            raise SpecError(
                f"got {_option(option)} with system {chosen.name}, whose basis is {chosen.space}; "
                "leave it out, or give --basis"
            )
        changes[name] = as_whole(option, values[option]) if name in _WHOLE else str(values[option])
    basis = chosen.basis.resized(changes.pop("n")) if "n" in changes else chosen.basis
    return replace(basis, **changes)


def basis_of(values: Mapping[str, Any]) -> BasisSpec:
    """Return the basis given by the options. SpecError names an option that does not apply to it."""
    name = str(values.get("basis", _named_by(values)))
    usual = _USUAL_LANDMARKS.get(name, DEFAULT_COLUMNS)
    usual_selector = LocallyLinear().selector if name == "locally_linear" else "uniform"
    landmarks, selector = str(values.get("landmarks", usual)), str(values.get("selector", usual_selector))
    if name not in BASES:
        raise SpecError(f"got --basis {name!r}; choose one of {', '.join(BASES)}")
    for option in _COLUMN_OPTIONS:
        if option in values and option not in BASES[name] and values[option] != name:
            raise SpecError(
                f"got {_option(option)} with the basis {name}, which "
                f"{'takes ' + ', '.join(_option(word) for word in BASES[name]) if BASES[name] else 'takes no number'}"
            )
    if name == "linear":
        return Linear()
    if name == "local_rows":
        usual_rows, usual_trees = LocalRows().leaf_rows, LocalRows().n_trees
        leaf_rows = as_whole("leaf_rows", values.get("leaf_rows", usual_rows))
        return LocalRows(leaf_rows, as_whole("trees", values.get("trees", usual_trees)))
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
        either = " or 'all'" if name == "landmarks" else f" with the basis {name}"
        raise SpecError(f"got --landmarks {landmarks!r}; give a whole number{either}") from None
    if name == "locally_linear":
        return LocallyLinear(n, as_whole("nearest", values.get("nearest", LocallyLinear().nearest)), selector)
    return Landmarks(n, selector) if name == "landmarks" else NystromFeatures(n, selector)


def _named_by(values: Mapping[str, Any]) -> str:
    """Return the basis to which the other options belong."""
    if "nearest" in values:
        return "locally_linear"
    if {"leaf_rows", "trees"} & values.keys():
        return "random_features" if "features" in values else "local_rows"
    return "random_features" if "features" in values else "landmarks"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
