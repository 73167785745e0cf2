"""Curves of one or several histories on the same axes."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.monitor.axes import log_ticks, new_axes, plain, thousands
from daskkern.monitor.figure_text import literal
from daskkern.monitor.formatting import score_name
from daskkern.monitor.palette import COLORS, TRAINING, VALIDATION

_LABELS = {
    "loss": "training loss",
    "validation_loss": "validation loss",
    "rows_per_second": "rows/s",
    "seconds": "seconds an epoch",
    "optimality": "distance from the optimum",
}
_LOGARITHMIC = frozenset({"loss", "validation_loss", "optimality"})
_AGAINST = {"epoch": "epoch", "seconds": "elapsed"}
_DASHES = ("-", "--", ":", "-.")


class HistoryColumns(Protocol):
    """A table of columns by name, as a History is one."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    def __getitem__(self, key: str) -> HostArray: ...


def draw_histories(
    fits: Sequence[tuple[str, str, HistoryColumns]], show: str | Sequence[str], against: str, axes: Any
) -> Any:
    """Draw columns of histories, each with a name and the task of its fit, and return the axes.

    Raises
    ------
    DataError
        When no history has any of the requested columns.
    SpecError
        For unknown columns or axes, or without matplotlib.
    """
    columns = (show,) if isinstance(show, str) else tuple(show)
    histories = [table for _, _, table in fits]
    if against not in _AGAINST:
        raise SpecError(f"got against={against!r}; expected 'epoch' or 'seconds'")
    unknown = [name for name in columns if histories and name not in histories[0].columns]
    if unknown or not fits or not columns:
        what = f"show={unknown[0]!r}" if unknown else "no fit, or no column of its history,"
        raise SpecError(f"got {what} to draw; give fits, and columns such as 'loss' or 'validation_score'")
    axes = plain(new_axes(axes))
    drawn: dict[str, list[float]] = {}
    for number, (title, task, table) in enumerate(fits):
        across = table[_AGAINST[against]]
        for style, column in enumerate(columns):
            values = table[column]
            if np.isnan(values).all():
                continue
            label = _label(column, task)
            color, dashes = COLORS[number % 8], _DASHES[style % 4]
            if len(fits) == 1:
                color, dashes = _color(column, style), "-"
            name = label if len(fits) == 1 else f"{title}: {label}"
            marker = "." if len(values) <= 60 else None
            axes.plot(across, values, color=color, linestyle=dashes, linewidth=1.6, marker=marker, label=literal(name))
            drawn.setdefault(label, []).extend(values[~np.isnan(values)])
    if not drawn:
        raise DataError(
            f"there is no {' or '.join(column.replace('_', ' ') for column in columns)} in the history to draw; the "
            "model was saved without one, or the fit had no validation rows"
        )
    _scale(axes, columns, np.concatenate(list(drawn.values())))
    axes.set_xlabel("epoch" if against == "epoch" else "seconds, set-up included")
    axes.set_ylabel(next(iter(drawn)) if len(drawn) == 1 else "loss" if _LOGARITHMIC.issuperset(columns) else "value")
    if against == "epoch":
        axes.xaxis.get_major_locator().set_params(integer=True)
    if len(axes.get_lines()) > 1:
        axes.legend(frameon=False, fontsize="small")
    return axes


def _color(column: str, number: int) -> str:
    """Return the color of a column of the only fit that is drawn."""
    if column.startswith("validation"):
        return VALIDATION
    return TRAINING if number == 0 else COLORS[2 + number % 6]


def _label(column: str, task: str) -> str:
    if column == "validation_score":
        return f"validation {score_name(task)}"
    return _LABELS.get(column, column.replace("_", " "))


def _scale(axes: Any, columns: Sequence[str], values: HostArray) -> None:
    """Set the scale of the vertical axis for the columns drawn."""
    low, high = float(values.min()), float(values.max())
    if _LOGARITHMIC.issuperset(columns) and 0 < 1.5 * low < high:
        axes.set_yscale("log")
        log_ticks(axes.yaxis, low, high)
    elif set(columns) == {"rows_per_second"}:
        axes.set_ylim(bottom=0)
        thousands(axes.yaxis)
