"""The figures of a report, as SVG for its page and as PNG files in its folder."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskkern.evaluation.measures import Score
from daskkern.evaluation.plot_data import Observation
from daskkern.models import KernelModel
from daskkern.monitor.axes import require_matplotlib
from daskkern.monitor.figure_text import quiet_glyphs, save_png
from daskkern.plot import history as draw_history
from daskkern.plot import spectrum as draw_spectrum
from daskkern.plot import time_shares
from daskkern.plot.predictions import draw_calibration, draw_confusion, draw_residuals
from daskkern.plot.rankings import draw_precision_recall, draw_roc_curve

_INK = "#010203"
"""Placeholder for the color of text, which the page sets."""
_LOOKS: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "grid.color": _INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "daskkern",
    "font.size": 10,
}
_MOST_TARGETS = 4
_FEW_CLASSES = 4  # up to here, the matrix is as high as the other pictures
_RANKINGS = (
    ("roc", "How many are found at which share of false alarms? (ROC)", draw_roc_curve),
    ("precision-recall", "How many are found, and how many of those are right?", draw_precision_recall),
)


@dataclass(frozen=True)
class Picture:
    """A picture: its section, its file name, its caption, and the function that draws it on axes."""

    section: str
    name: str
    caption: str
    draw: Callable[[Any], Any]
    width: float = 5.6
    height: float = 3.5


def pictures_of(model: KernelModel, observed: Observation | None) -> list[Picture]:
    """Return the pictures for which there are data."""
    table = model.history_
    found: list[Picture] = []
    if observed is not None:
        found += _predictions(model, observed)
    if len(table) > 1:  # a single epoch has no curves: its numbers are in the tiles and the tables
        found.append(Picture("learning", "loss", "Loss after each epoch", lambda axes: draw_history(model, axes=axes)))
        if not np.isnan(table["elapsed"]).all():
            draw = _history(model, ("loss", "validation_loss"), "seconds")
            found.append(Picture("learning", "loss-time", "The same against time", draw))
        for column, caption in (
            ("validation_score", f"{'Accuracy' if model.classes else 'R2'} on the validation rows"),
            ("optimality", f"Distance from the optimum: {table.measure}"),
            ("rows_per_second", "Speed of the epochs"),
        ):
            if not np.isnan(table[column]).all():
                found.append(
                    Picture("learning", column.replace("_", "-"), caption, _history(model, (column,), "epoch"))
                )
    if table.spectrum is not None and table.spectrum.eigenvalues:
        caption = "Leading eigenvalues: the flatter, the larger the steps that SGD can take"
        found.append(Picture("spectrum", "spectrum", caption, lambda axes: draw_spectrum(model, axes=axes)))
    if len(table) > 1 and not np.isnan(table["computing"]).all():
        found.append(
            Picture("time", "time", "Where the time of each epoch went", lambda axes: time_shares(model, axes=axes))
        )
    return found


def _predictions(model: KernelModel, observed: Observation) -> list[Picture]:
    score = observed.score
    found = []
    if score.confusion is not None:
        k = len(score.confusion)
        width, height = (5.0, 4.2) if k <= _FEW_CLASSES else 2 * (4.6 + 0.1 * min(20, k),)
        draw = lambda axes: draw_confusion(score, axes)  # noqa: E731
        found.append(Picture("test", "confusion", "What each class was taken for", draw, width, height))
    if score.calibration is not None:
        draw = lambda axes: draw_calibration(score, axes)  # noqa: E731
        found.append(Picture("test", "calibration", "Can the probabilities be trusted?", draw, 5.0, 4.2))
    if score.curves is not None and any(score.curves):
        for key, caption, drawn in _RANKINGS:
            found.append(Picture("test", key, caption, _ranking(model, score, drawn), 5.0, 4.2))
    n_targets = observed.targets.shape[1] if score.rmse is not None else 0
    for target in range(min(n_targets, _MOST_TARGETS)):
        several = f"target {target + 1} of {n_targets}" if n_targets > 1 else ""
        name = model.target_names[target] if model.target_names else several
        number = f"-{target + 1}" if n_targets > 1 else ""
        caption = f"Errors{f' of {name}' if name else ''} against the truth"
        found.append(Picture("test", f"residuals{number}", caption, _residuals(observed, target, name)))
    return found


def _ranking(model: KernelModel, score: Score, draw: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda axes: draw(model, score, axes)


def _residuals(observed: Observation, target: int, name: str) -> Callable[[Any], Any]:
    return lambda axes: draw_residuals(observed, target, axes, name)


def _history(model: KernelModel, show: tuple[str, ...], against: str) -> Callable[[Any], Any]:
    return lambda axes: draw_history(model, show=show, against=against, axes=axes)


def as_svg(picture: Picture) -> str:
    """Return the picture as an SVG element that inherits the page's color and font."""
    require_matplotlib()
    from matplotlib import rc_context

    with rc_context(_LOOKS), quiet_glyphs():
        figure = _figure(picture)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inlined(text.getvalue(), picture.name)


def _inlined(svg: str, name: str) -> str:
    """Return an SVG file as an element: without file headers, and with unique identifiers."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", svg)
    width = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg)
    assert width is not None
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', _TAG.format(name=name), svg, count=1)
    return svg.replace(_INK, "currentColor")


_TAG = r'<svg viewBox="\1" role="img" aria-labelledby="caption-{name}" xmlns:xlink="http://www.w3.org/1999/xlink">'


def names_of(model: KernelModel, scored: bool) -> list[str]:
    """Return the possible names of the pictures of a report, known before its rows are scored."""
    names = [picture.name for picture in pictures_of(model, None)]
    if not scored:
        return names
    of_targets = [f"residuals-{number}" for number in range(1, _MOST_TARGETS + 1)]
    if model.task == "regression":
        return [*names, "residuals", *of_targets]
    return [*names, *(key for key, _, _ in _RANKINGS), "confusion", "calibration"]


def place_of(name: str, folder: Path) -> Path:
    """Return the path of the PNG file of the picture `name` in `folder`."""
    return folder / f"{name}.png"


def write_png(picture: Picture, folder: Path) -> Path:
    """Write the picture to a PNG file in `folder` and return its path."""
    path = place_of(picture.name, folder)
    save_png(_figure(picture), path, 150)
    return path


def _figure(picture: Picture) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(picture.width, picture.height), layout="constrained")
    picture.draw(figure.subplots())
    return figure
