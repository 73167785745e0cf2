"""Arguments shared by the plotting functions: fits in any form, and optional axes."""

import os
from pathlib import Path
from typing import Any, TypeAlias

import zarr

from daskkern.data.remote.stores import name_of_place
from daskkern.errors import SpecError
from daskkern.models import KernelModel, load_model

Fit: TypeAlias = Any
"""A fitted estimator, a :class:`~daskkern.models.KernelModel`, or the path of a saved one."""


def model_of(fit: Fit) -> KernelModel:
    """Return the model of a fit. Raises SpecError for another type, ModelError for a path without a model."""
    if isinstance(fit, KernelModel):
        return fit
    if isinstance(fit, str | os.PathLike | zarr.Group):
        return load_model(fit if isinstance(fit, zarr.Group) else os.fspath(fit))
    found = getattr(fit, "model_", None)
    if isinstance(found, KernelModel):
        return found
    raise SpecError(f"got a {type(fit).__name__} to draw; expected a fitted estimator, a model or the path of one")


def name_of(fit: Fit, number: int) -> str:
    """Return the name of a fit in legends: that of its file, or of its solver."""
    if isinstance(fit, str | os.PathLike):
        return Path(name_of_place(os.fspath(fit))).stem
    model = model_of(fit)
    solver = model.provenance.get("settings", {}).get("solver", {}).get("name", "fit")
    return f"{solver} {number}"
