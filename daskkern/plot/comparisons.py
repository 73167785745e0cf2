"""Comparison of several fits: error against time."""

import os
from collections.abc import Sequence
from typing import Any

from daskkern.errors import DataError, SpecError
from daskkern.monitor.axes import new_axes, plain
from daskkern.plot.arguments import Fit, model_of, name_of
from daskkern.systems.comparing import Comparison
from daskkern.systems.plot import draw_curves, error_label


def compare(*found: Comparison | Fit, axes: Any = None) -> Any:
    """Draw error against time for the systems of one comparison, or for several fits.

    Parameters
    ----------
    *found
        A :class:`daskkern.systems.Comparison` or the path of its ``comparison.json``; or fitted estimators, models or
        paths of models that had validation rows, all of one task.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Share of wrong labels, or ``(1 - R2)^(1/2)``, against seconds with the set-up, both on log scales.

    Raises
    ------
    DataError
        When there is no error to draw.
    """
    if len(found) == 1 and (comparison := _comparison(found[0])) is not None:
        curves = [(curve.system, curve.points) for curve in comparison.curves if curve.points]
        return _drawn(curves, error_label(comparison.measure), axes)
    tasks = {model_of(fit).task for fit in found}
    if len(tasks) > 1:
        raise SpecError("got models of classification and of regression to compare; give models of one task")
    counts = tasks == {"classification"}
    label = "error on the validation rows" if counts else "(1 - R2)^(1/2) on the validation rows"
    return _drawn([(name_of(fit, k + 1), _points(fit, counts)) for k, fit in enumerate(found)], label, axes)


def _comparison(thing: Any) -> Comparison | None:
    if isinstance(thing, Comparison):
        return thing
    if isinstance(thing, str | os.PathLike) and os.fspath(thing).endswith(".json"):
        return Comparison.read(os.fspath(thing))
    return None


def _points(fit: Fit, counts: bool) -> Sequence[tuple[float, float]]:
    rows = [row for row in model_of(fit).history_ if row.validation_score == row.validation_score]
    power = 1.0 if counts else 0.5
    return [(row.elapsed, max(0.0, 1 - row.validation_score) ** power) for row in rows]


def _drawn(curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], label: str, axes: Any) -> Any:
    known = [(name, points) for name, points in curves if points]
    if not known:
        raise DataError("no fit has errors after its epochs to compare; fit with validation rows")
    axes = plain(new_axes(axes))
    draw_curves(axes, known)
    axes.set_ylabel(label)
    return axes
