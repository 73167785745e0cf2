"""The fits whose curves are overlaid for comparison: their colors and their data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskkern.monitor.curves import batch_columns, epoch_columns, time_unit
from daskkern.monitor.dashboard.changes import set_changed
from daskkern.monitor.dashboard.figures import MOST_FITS, CurvePlot, Curves, Sources
from daskkern.monitor.view import FitsView

_LETTERS = 6
"""Letters of the id of a fit that tell fits of one name apart."""


class Overlay:
    """Curves of the chosen fit, at place 0, and of others, which keep their places while they are drawn.

    Parameters
    ----------
    view : FitsView
    sources : Sources
    plots : sequence of CurvePlot
        The plots of these sources.
    """

    def __init__(self, view: FitsView, sources: Sources, plots: Sequence[CurvePlot]) -> None:
        self._view, self._sources, self._plots = view, sources, plots
        self._places: dict[str, int] = {}
        self._drawn: dict[int, tuple[Any, ...]] = {}
        """By place: the fit, its version and the settings with which its curves were drawn."""
        self._histories: dict[str, Mapping[str, Any]] = {}

    def place(self, chosen: str, others: Sequence[str]) -> dict[str, int]:
        """Give places to the chosen fit and to others, fewer than MOST_FITS, and return them."""
        kept = {fit: place for fit, place in self._places.items() if fit in others and place}
        free = iter(sorted(set(range(1, MOST_FITS)) - set(kept.values())))
        new = {fit: next(free) for fit in others if fit not in kept}
        self._places = {chosen: 0, **{fit: (kept | new)[fit] for fit in others}}
        self._histories = {fit: self._history(fit) for fit in self._places}
        return dict(self._places)

    def history(self, fit: str) -> Mapping[str, Any]:
        """Return the history of a fit that has a place; empty for one that is gone."""
        return self._histories[fit]

    def _history(self, fit: str) -> Mapping[str, Any]:
        """Return the history of a fit, which is long, and requested again only after it has grown."""
        known = self._histories.get(fit)
        if known and known["version"] == self._view.glance(fit).get("version"):
            return known
        return self._view.history(fit)

    def draw(self, by_time: bool, smoothing: float) -> None:
        """Fill the curves that have changed, against time or epochs, and the labels of the horizontal axes."""
        unit = max((time_unit(history) for history in self._histories.values() if history), default=(1.0, "s"))
        label = f"Time since the start ({unit[1]})" if by_time else "Epoch"
        for plot in self._plots:
            set_changed(plot.figure.xaxis[0], {"axis_label": label})
        for fit, place in self._places.items():
            history = self._histories[fit]
            drawn = (fit, history.get("version"), by_time, smoothing, unit)
            if history and self._drawn.get(place) != drawn:
                _fill(self._sources.fits[place], history, by_time, smoothing, unit[0])
                self._drawn[place] = drawn
        for place in self._drawn.keys() - set(self._places.values()):
            self._sources.fits[place].clear()
            del self._drawn[place]

    def name(self, names: Mapping[int, str]) -> None:
        """Name the fits in all plots, by their places; those of one name by the begin of their ids, too."""
        given, fits = list(names.values()), {place: fit for fit, place in self._places.items()}
        names = {i: f"{name} {fits[i][:_LETTERS]}" if given.count(name) > 1 else name for i, name in names.items()}
        for plot in self._plots:
            plot.name_fits(names)

    def has_scores(self) -> bool:
        """Return whether any of the fits has been scored on validation rows."""
        scores = [self._sources.fits[place].epochs.data["validation_score"] for place in self._drawn]
        return any(bool(np.isfinite(np.asarray(values, float)).any()) for values in scores)


def _fill(curves: Curves, history: Mapping[str, Any], by_time: bool, smoothing: float, unit: float) -> None:
    """Fill the curves of a fit; times are in a unit of so many seconds."""
    x = "time" if by_time else "passes"
    share = time_unit(history)[0] / unit if by_time else 1.0
    batches, epochs = batch_columns(history, smoothing), epoch_columns(history)
    curves.batches.data = {"x": share * batches[x], **{name: batches[name] for name in ("loss", "smooth", "rate")}}
    names = ("validation_loss", "validation_score")
    curves.epochs.data = {"x": share * epochs[x], **{name: epochs[name] for name in names}}
