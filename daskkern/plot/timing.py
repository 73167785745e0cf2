"""Plots of the time of a fit."""

from typing import Any

import numpy as np

from daskkern.errors import DataError
from daskkern.monitor.axes import legend_above, new_axes, plain
from daskkern.monitor.palette import PART_COLORS
from daskkern.monitor.shares import PARTS
from daskkern.plot.arguments import Fit, model_of

_LEAST = 0.1
"""Percent below which a part is invisible and left out of the legend."""


def time_shares(fit: Fit, *, axes: Any = None) -> Any:
    """Draw the shares of computing, reading, checkpoints, waiting and exchange in the time of each epoch.

    Parameters
    ----------
    fit
        A fitted estimator, a model, or the path of a saved model.
    axes : matplotlib Axes, optional

    Raises
    ------
    DataError
        When the model was saved without these times.
    """
    table = model_of(fit).history_
    known = ~np.isnan(table["computing"])
    if not known.any():
        raise DataError("the model was saved without the times of its epochs, so that there is nothing to draw")
    axes = plain(new_axes(axes))
    below = np.zeros(int(known.sum()))
    for part, label in PARTS.items():
        share = 100 * np.nan_to_num(table[part][known])
        if not (share >= _LEAST).any():
            continue
        axes.bar(table["epoch"][known], share, 1.0, below, color=PART_COLORS[part], label=label, linewidth=0)
        below = below + share
    axes.set_ylim(0, 100)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("percent of the epoch")
    axes.set_xlim(table["epoch"][known].min() - 0.5, table["epoch"][known].max() + 0.5)
    legend_above(axes, 3)
    return axes
