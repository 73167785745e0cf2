"""The plot of a comparison: error against time, one panel for each group, two panels a row."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from daskkern.data.remote.stores import name_of_place
from daskkern.errors import SpecError
from daskkern.monitor.axes import log_ticks, plain
from daskkern.monitor.figure_text import literal, save_png
from daskkern.monitor.palette import COLORS
from daskkern.systems.comparing import Comparison, Curve

_LOOKS = ((".", "-"), ("s", "--"), ("^", ":"))
"""Markers and dashes of the first, second and third lines of each color."""


def plot_comparison(found: Comparison, path: str | Path) -> None:
    """Draw the curves of `found` to a PNG file. Raises SpecError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SpecError('a plot needs matplotlib, which is not installed; run: pip install "daskkern[plot]"') from None
    groups = list(dict.fromkeys(curve.group for curve in found.curves if curve.points))
    rows, columns = max(1, (len(groups) + 1) // 2), min(2, max(1, len(groups)))
    figure = Figure(figsize=(6.8 * columns, 4.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axis, group in zip(axes, groups, strict=False):
        _panel(axis, group, [curve for curve in found.curves if curve.group == group and curve.points])
        axis.set_ylabel(error_label(found.measure))
        axis.tick_params(labelleft=True, labelbottom=True)  # which shared axes leave out
    seconds = [at for curve in found.curves for at, _ in curve.points]
    if seconds:  # the axes share their ticks
        log_ticks(axes[0].xaxis, min(seconds), max(seconds))
    for axis in axes[len(groups) :]:
        axis.set_axis_off()
    words = f"{name_of_place(found.store)}: {found.n_rows:,} rows, {found.n_features} features, {found.kernel}"
    figure.suptitle(literal(words))
    save_png(figure, path, 110)


def error_label(measure: str) -> str:
    """Return the axis label of a comparison's errors."""
    return "error on the test rows" if measure == "error" else "(1 - R2)^(1/2) on the test rows"


def draw_curves(axis: Any, curves: Iterable[tuple[str, Sequence[tuple[float, float]]]]) -> None:
    """Draw named lines of (seconds, error) on matplotlib axes, both on a log scale unless all errors are 0.

    There, errors of 0 are triangles below all others. Beyond the colors, lines differ by marker and dashes.
    """
    curves = list(curves)
    errors = [error for _, points in curves for _, error in points]
    seconds = [at for _, points in curves for at, _ in points]
    least = min((error for error in errors if error > 0), default=None)
    floor = 0.0 if least is None else 0.6 * least
    for number, (name, points) in enumerate(curves):
        color, (marker, dashes) = COLORS[number % len(COLORS)], _LOOKS[number // len(COLORS) % len(_LOOKS)]
        at, found = zip(*points, strict=True)
        shown = [max(error, floor) for error in found]
        axis.plot(
            at, shown, color=color, marker=marker, markersize=4, linestyle=dashes, linewidth=1.2, label=literal(name)
        )
        best = [(x, floor) for x, error in points if error == 0 and least is not None]
        if best:
            axis.scatter(*zip(*best, strict=True), 45, color=color, marker="v", zorder=3)
    axis.set_xscale("log")
    log_ticks(axis.xaxis, min(seconds), max(seconds))
    if least is not None:
        axis.set_yscale("log")
        log_ticks(axis.yaxis, floor, max(errors))
    axis.set_xlabel("seconds, set-up included")
    plain(axis)
    axis.legend(fontsize="small", frameon=False)
    if least is not None and 0 in errors:
        axis.annotate("triangles: no errors", (0.01, 0.01), xycoords="axes fraction", fontsize="small", color="#666666")


def _panel(axis: Any, group: str, curves: list[Curve]) -> None:
    draw_curves(axis, [(curve.system, curve.points) for curve in curves])
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    axis.set_title(group)
