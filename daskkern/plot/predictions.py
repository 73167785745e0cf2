"""Plots of predictions against the truth."""

from typing import Any

import numpy as np

from daskkern.errors import DataError
from daskkern.evaluation.metrics import Score
from daskkern.evaluation.plot_data import Observation, observe
from daskkern.evaluation.score_bins import joined_bins
from daskkern.monitor.axes import legend_above, new_axes, plain
from daskkern.monitor.figure_text import literal
from daskkern.monitor.palette import COLORS
from daskkern.plot.arguments import Fit, model_of

_NUMBERED = 20
"""Most classes for which cells show numbers."""
_LEAST_ROWS = 10
"""Rows of a point of the calibration: the share of fewer says nothing."""


def confusion(fit: Fit, X: Any, y: Any = None, *, axes: Any = None) -> Any:
    """Draw the confusion matrix: the share of each true class (a row) that was predicted as each class.

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
        For a regressor, and for rows that do not belong to the model.
    """
    return draw_confusion(observe(model_of(fit), X, y).score, axes)


def calibration(fit: Fit, X: Any, y: Any = None, *, axes: Any = None) -> Any:
    """Draw how often the most probable class was right, against its probability; parameters as in :func:`confusion`.

    Each point has at least 10 rows, of neighbouring ranges where one has fewer, and a 95% interval.

    Raises DataError for a model without probabilities.
    """
    return draw_calibration(observe(model_of(fit), X, y).score, axes)


def residuals(fit: Fit, X: Any, y: Any = None, *, target: int = 0, axes: Any = None) -> Any:
    """Draw predictions minus the truth, against the truth; parameters as in :func:`confusion`.

    `target` is the index of one of several targets. Of many rows, about 5,000 evenly chosen ones are drawn. Raises
    DataError for a classifier.
    """
    return draw_residuals(observe(model_of(fit), X, y), target, axes)


def draw_confusion(score: Score, axes: Any) -> Any:
    """Draw the confusion matrix of a score."""
    if score.confusion is None or score.classes is None:
        kind = "a regression model" if score.rmse is not None else "a model of several labels"
        raise DataError(f"{kind} has no confusion matrix{'; draw its residuals' * (score.rmse is not None)}")
    axes = new_axes(axes)
    counts = np.array(score.confusion, float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    k = len(counts)
    if k <= _NUMBERED:
        size = "medium" if k <= 6 else "small" if k <= 12 else "x-small"
        for row, column in np.argwhere(counts > 0):
            share = shares[row, column]
            text = f"{100 * share:.0f}" if share >= 0.005 else "<1"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=size, color="white" if share > 0.55 else "#1b2733"
            )
    step = -(-k // _NUMBERED)
    names = [str(label) for label in score.classes]
    names = [name if len(name) <= 16 else f"{name[:15]}\N{HORIZONTAL ELLIPSIS}" for name in names]
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 3 else {}
    names = [literal(name) for name in names]
    axes.set_xticks(range(0, k, step), names[::step], **turned)
    axes.set_yticks(range(0, k, step), names[::step])
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title("percent of the true class", fontsize="medium", loc="left")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return axes


def draw_calibration(score: Score, axes: Any) -> Any:
    """Draw the calibration of a score."""
    if score.calibration is None:
        raise DataError(
            "the model has no probabilities to compare with what happened; fit a classifier with calibrate=True"
        )
    axes = plain(new_axes(axes))
    bins = joined_bins(score.calibration, _LEAST_ROWS)
    x, y = [part.confidence for part in bins], [part.accuracy for part in bins]
    biggest = max(part.n_rows for part in bins)
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1, linestyle="--", label="ideal")
    low, high = zip(*(part.interval() for part in bins), strict=True)
    axes.vlines(x, low, high, color=COLORS[0], linewidth=1.6, alpha=0.8, label="95% interval")
    axes.plot(x, y, color=COLORS[0], linewidth=1, alpha=0.8)
    sizes = [12 + 100 * part.n_rows / biggest for part in bins]
    axes.scatter(x, y, sizes, color=COLORS[0], alpha=0.75, label="share, area is rows")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("probability of the predicted class")
    axes.set_ylabel("share that was right")
    legend_above(axes, 3)
    return axes


def draw_residuals(found: Observation, target: int, axes: Any, name: str = "") -> Any:
    """Draw the residuals of one target."""
    if found.score.rmse is None:
        kind = "a classifier" if found.score.confusion is not None else "a model of several labels"
        raise DataError(f"{kind} has no residuals{'; draw its confusion matrix' * (found.score.confusion is not None)}")
    if not 0 <= target < found.targets.shape[1]:
        raise DataError(f"got target {target} of a model with {found.targets.shape[1]}; targets are counted from 0")
    axes = plain(new_axes(axes))
    truth = found.targets[:, target]
    errors = found.predictions[:, target] - truth
    marker = 9 if len(truth) < 1000 else 4
    alpha = 0.7 if len(truth) < 1000 else 0.35
    axes.axhline(0, color="#888888", linewidth=1)
    axes.scatter(truth, errors, marker, color=COLORS[0], alpha=alpha, linewidths=0, rasterized=len(truth) > 1500)
    axes.set_xlabel(f"true {literal(name) or 'target'}")
    axes.set_ylabel("prediction minus truth")
    return axes
