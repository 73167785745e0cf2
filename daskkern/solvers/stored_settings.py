"""The settings of a solver in the form recorded in models and checkpoints."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from daskkern.solvers.base import Solver

_UNSAID = "left out at its default"
SINCE_LATER: Mapping[str, Any] = MappingProxyType({_UNSAID: True})
"""Metadata of a setting that a solver got after a release: at its default it is not recorded, so that a checkpoint of
an older version, which does not know it, continues."""


def recorded_settings(solver: Solver[Any]) -> dict[str, Any]:
    """Return the settings of a solver by their names."""
    found = {item: getattr(solver, item.name) for item in fields(solver)}
    return {
        item.name: value for item, value in found.items() if not (_UNSAID in item.metadata and value == item.default)
    }
