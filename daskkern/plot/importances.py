"""Plots of feature importances and of the interactions of pairs of features."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.errors import SpecError
from daskkern.inspection import GradientImportance, Interactions
from daskkern.monitor.axes import new_axes, plain
from daskkern.monitor.palette import COLORS

_LONGEST, _LONGEST_OF_MAP = 28, 20


def importances(found: Any, *, n_columns: int = 15, axes: Any = None) -> Any:
    """Draw the importances of the columns that matter most, as horizontal bars.

    Parameters
    ----------
    found : GradientImportance, or Bunch
        From :func:`daskkern.gradient_importance`: shares of the squared gradient. From
        :func:`daskkern.permutation_importance`: what the score falls by, with its standard deviation over the repeats.
    n_columns : int
        How many columns are drawn at most.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    SpecError
        For anything else.
    """
    if n_columns < 1:
        raise SpecError(f"got n_columns={n_columns}; give 1 or more")
    if isinstance(found, GradientImportance):
        names, values, spread, label = found.names, found.importances, None, "share of the squared gradient"
    elif isinstance(found, Mapping) and "importances_mean" in found:
        values, spread, label = found["importances_mean"], found["importances_std"], "fall of the score"
        names = found.get("columns") or tuple(f"feature {j}" for j in range(len(values)))
    else:
        raise SpecError(
            f"got a {type(found).__name__} to draw; expected the result of gradient_importance or of "
            "permutation_importance"
        )
    axes = plain(new_axes(axes))
    order = np.argsort(-values, kind="stable")[:n_columns][::-1]
    bars = None if spread is None else spread[order]
    axes.barh(range(len(order)), values[order], xerr=bars, color=COLORS[0], ecolor="#555555", height=0.7)
    axes.set_yticks(range(len(order)), [_short(names[k]) for k in order])
    axes.set_xlabel(label)
    more = len(values) - len(order)
    if more:
        axes.set_title(f"{more:,} more are left out", fontsize="medium", loc="left")
    return axes


def alignments(found: GradientImportance, *, n_columns: int = 10, axes: Any = None) -> Any:
    """Draw the alignments of the gradients of pairs of columns as a heat map, for the columns that matter most.

    1 and -1 are columns that move predictions at the same rows and in fixed proportions, 0 those that do not. It is no
    statistical interaction; see :class:`daskkern.inspection.GradientImportance`.

    Parameters
    ----------
    found : GradientImportance
        With products of gradients.
    n_columns : int
        How many columns are drawn at most.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    SpecError
        Without the products.
    """
    if n_columns < 1:
        raise SpecError(f"got n_columns={n_columns}; give 1 or more")
    values = found.alignments
    axes = new_axes(axes)
    order = np.argsort(-found.importances, kind="stable")[:n_columns]
    names = tuple(found.names[k] for k in order)
    colors = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1}
    return _map(axes, names, values[np.ix_(order, order)], "alignment of gradients", colors)


def interactions(found: Interactions, *, axes: Any = None) -> Any:
    """Draw the strengths of the interactions of pairs of columns as a heat map.

    Parameters
    ----------
    found : Interactions
        From :func:`daskkern.interactions`.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    colors = {"cmap": "Blues", "vmin": 0}
    return _map(new_axes(axes), found.names, found.strengths, "mixed derivative, rms", colors)


def _map(axes: Any, names: tuple[str, ...], values: FloatArray, label: str, colors: Mapping[str, Any]) -> Any:
    image = axes.imshow(values, **colors)
    shown = [_short(name, _LONGEST_OF_MAP) for name in names]
    axes.set_xticks(range(len(shown)), shown, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(shown)), shown)
    axes.figure.colorbar(image, ax=axes, label=label)
    return axes


def _short(name: str, longest: int = _LONGEST) -> str:
    shown = name if len(name) <= longest else name[: longest - 3] + "..."
    return shown.replace("$", r"\$")
