"""Plots of ROC and precision-recall curves."""

from typing import Any

from daskkern.errors import DataError
from daskkern.evaluation.measures import Score
from daskkern.evaluation.plot_data import observe
from daskkern.evaluation.ranking_curves import RankingCurve
from daskkern.models import KernelModel
from daskkern.monitor.axes import legend_above, new_axes, plain
from daskkern.monitor.figure_text import literal
from daskkern.monitor.palette import COLORS
from daskkern.plot.arguments import Fit, model_of

_MOST_CURVES = 6


def roc_curve(fit: Fit, X: Any, y: Any = None, *, axes: Any = None) -> Any:
    """Draw the share of true positives against that of false positives, over all thresholds of the scores.

    Of two classes the second is positive; of several, and of several labels, each against the rest: the 6 of the
    smallest average precision. The dashed diagonal is what scores without information achieve.

    Parameters
    ----------
    fit
        A fitted classifier, a model, or the path of a saved one.
    X : store, or array-like (n, d)
    y : array-like (n,), optional
        Labels, with arrays.
    axes : matplotlib Axes, optional

    Raises
    ------
    DataError
        For a regressor, for rows that do not belong to the model, and for rows of one class only.
    """
    model = model_of(fit)
    return draw_roc_curve(model, observe(model, X, y).score, axes)


def precision_recall(fit: Fit, X: Any, y: Any = None, *, axes: Any = None) -> Any:
    """Draw precision against recall, over all thresholds of the scores; parameters as in :func:`roc_curve`.

    The same classes as there, in the same colors. Dotted lines are the shares of positive rows, which
    scores without information achieve. Raises as :func:`roc_curve`.
    """
    model = model_of(fit)
    return draw_precision_recall(model, observe(model, X, y).score, axes)


def draw_roc_curve(model: KernelModel, score: Score, axes: Any) -> Any:
    """Draw the ROC curves of a score."""
    chosen = _hardest(model, score)
    axes = _unit(axes)
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1, linestyle="--", label="no information")
    for (name, curve), color in zip(chosen, COLORS, strict=False):
        label = f"{literal(name)}: area {curve.area:.3f}"
        axes.plot(curve.false_positive_rate, curve.recall, color=color, linewidth=1.4, label=label)
    axes.set_xlabel("share of the others taken for it")
    axes.set_ylabel("share found")
    legend_above(axes, 2)
    return axes


def draw_precision_recall(model: KernelModel, score: Score, axes: Any) -> Any:
    """Draw the precision-recall curves of a score."""
    chosen = _hardest(model, score)
    axes = _unit(axes)
    for (name, curve), color in zip(chosen, COLORS, strict=False):
        label = f"{literal(name)}: average {curve.average_precision:.3f}"
        axes.plot(curve.recall, curve.precision, color=color, linewidth=1.4, label=label)
        axes.axhline(curve.prevalence, color=color, linewidth=0.8, linestyle=":")
    axes.plot([], [], color="#888888", linewidth=1, linestyle=":", label="no information")
    axes.set_xlabel("share found (recall)")
    axes.set_ylabel("share of those that are right (precision)")
    legend_above(axes, 2)
    return axes


def _unit(axes: Any) -> Any:
    axes = plain(new_axes(axes))
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(0, 1.02)
    return axes


def _hardest(model: KernelModel, score: Score) -> list[tuple[str, RankingCurve]]:
    """Return the curves to draw, the same of both kinds of plot, so that a class has one color."""
    return sorted(_curves(model, score), key=lambda pair: pair[1].average_precision)[:_MOST_CURVES]


def _curves(model: KernelModel, score: Score) -> list[tuple[str, RankingCurve]]:
    """Return the curves that exist, with the names of their classes or labels."""
    if score.curves is None:
        raise DataError("a regression model ranks no classes; draw its residuals")
    n = len(score.curves)
    names = [str(label) for label in (score.classes or model.target_names or range(n))]
    if score.classes is not None and n == 1:
        names = names[1:]
    found = [(_short(name), curve) for name, curve in zip(names, score.curves, strict=True) if curve is not None]
    if not found:
        raise DataError("the rows have one class only; a curve needs rows of both kinds")
    return found


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}\N{HORIZONTAL ELLIPSIS}"
