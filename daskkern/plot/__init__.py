"""Plots of fits on matplotlib axes: ``daskkern.plot.history(model)``. Needs the extra ``daskkern[plot]``.

Each function takes fitted estimators, models or paths of saved models, draws on `axes` if given, else on
new ones of pyplot, and returns the axes.
"""

from daskkern.plot.comparisons import compare
from daskkern.plot.curves import history
from daskkern.plot.importances import alignments, importances, interactions
from daskkern.plot.predictions import calibration, confusion, residuals
from daskkern.plot.rankings import precision_recall, roc_curve
from daskkern.plot.spectra import spectrum
from daskkern.plot.timing import time_shares

__all__ = [
    "alignments",
    "calibration",
    "compare",
    "confusion",
    "history",
    "importances",
    "interactions",
    "precision_recall",
    "residuals",
    "roc_curve",
    "spectrum",
    "time_shares",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
