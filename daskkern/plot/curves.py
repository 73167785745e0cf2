"""Plots of quantities over epochs or time."""

from collections.abc import Sequence
from typing import Any

from daskkern.monitor.history_axes import draw_histories
from daskkern.plot.arguments import Fit, model_of, name_of


def history(
    *fits: Fit, show: str | Sequence[str] = ("loss", "validation_loss"), against: str = "epoch", axes: Any = None
) -> Any:
    """Draw columns of the histories of fits.

    Parameters
    ----------
    *fits
        Fitted estimators, models, or paths of saved models.
    show : str or sequence of str
        Columns of ``history_``. Those that were not measured are left out.
    against : "epoch" or "seconds"
        The horizontal axis; seconds from the start of the set-up.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        With a log scale for losses that are positive and change by more than a half.

    Raises
    ------
    DataError
        When no history has any of the requested columns.
    SpecError
        For unknown columns or axes, or without matplotlib.
    """
    models = [model_of(fit) for fit in fits]
    names = [name_of(fit, number) for number, fit in enumerate(fits, 1)]
    named = [(name, model.task, model.history_) for name, model in zip(names, models, strict=True)]
    return draw_histories(named, show, against, axes)
