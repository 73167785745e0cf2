"""Where the time of a fit went."""

from typing import Any

import numpy as np

from daskkern.errors import DataError
from daskkern.plot.given import COLORS, Fit, model_of, new_axes, plain

_SHARES = {"working": "work", "waiting": "waiting for slower ranks", "exchanging": "exchange"}


def time_shares(fit: Fit, *, axes: Any = None) -> Any:
    """Draw how the time of each epoch was shared by work, waiting and exchange, of a fit on several ranks.

    Parameters
    ----------
    fit
        A fitted estimator, a model, or the path of a saved model.
    axes : matplotlib Axes, optional

    Raises
    ------
    DataError
        When it ran on one rank, or was saved without this.
    """
    table = model_of(fit).history_
    known = ~np.isnan(table["working"])
    if not known.any():
        raise DataError("the fit has no times of several ranks to draw: one rank waits for nobody")
    axes = plain(new_axes(axes))
    shares = [100 * table[name][known] for name in _SHARES]
    below = np.zeros_like(shares[0])
    for color, label, share in zip(COLORS, _SHARES.values(), shares, strict=False):
        axes.bar(table["epoch"][known], share, 1.0, below, color=color, label=label, linewidth=0)
        below = below + share
    axes.set_ylim(0, 100)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("percent of the epoch")
    axes.set_xlim(table["epoch"][known].min() - 0.5, table["epoch"][known].max() + 0.5)
    axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return axes
