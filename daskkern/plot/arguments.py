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
COLORS = ("#2f6fb5", "#d9762b", "#2f8f5b", "#b0437a", "#7a6bc4", "#8a7433", "#3aa3b0", "#666666")


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


def new_axes(axes: Any) -> Any:
    """Return `axes`, or new ones of pyplot. Raises SpecError if matplotlib is missing."""
    require_matplotlib()
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def require_matplotlib() -> None:
    """Raise SpecError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise SpecError("a plot needs matplotlib, which is not installed; install daskkern[plot]") from None
    del matplotlib


def plain(axes: Any) -> Any:
    """Return `axes` with the common style of all plots."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis, which shows values from `low` to `high`, with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if high > 1000 * low:  # powers of ten suffice
        return
    subs = (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    axis.set_major_locator(LogLocator(10, subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def thousands(axis: Any) -> None:
    """Label an axis with whole numbers and commas."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
