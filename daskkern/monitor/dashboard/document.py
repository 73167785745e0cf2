"""The page "Kernel fits": its content, its updates, and the actions of its buttons."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import Button, Div, InlineStyleSheet, RadioButtonGroup, Select
from distributed.dashboard.components.scheduler import env as dask_pages
from jinja2 import ChoiceLoader, DictLoader

from daskkern.monitor.curves import batch_columns, epoch_columns, share_columns, spectrum_columns, time_unit
from daskkern.monitor.dashboard import tables
from daskkern.monitor.dashboard.figures import Sources, loss_plot, rate_plot, score_plot, shares_plot, spectrum_plot
from daskkern.monitor.dashboard.origins import is_foreign, may_stop
from daskkern.monitor.view import FitsView

_REFRESH_MS = 1_000
_ARMED_S = 5.0
SCORES = {"classification": "Accuracy", "multilabel": "R² of the scores", "regression": "R²"}
"""Names of the validation score, by task."""
_SMOOTHING = {"none": 0.0, "light": 0.8, "strong": 0.97}
_NOT_HERE = (
    "This page was opened under a name that the scheduler does not know as its own, so it cannot stop fits. Use "
    "<code>daskkern cancel</code>, or open the page by the scheduler's address."
)
_STOP, _SURE = "Stop after this window", "Click again to stop"
_PARTS = ("fits", "facts", "ranks", "notices", "spectrum_note", "shares_note", "score_note", "stop_note")
_HERE = Path(__file__).parent
_OURS: Any = DictLoader({"kernel_fits.html": (_HERE / "page.html").read_text()})
_TEMPLATE = dask_pages.overlay(loader=ChoiceLoader([_OURS, dask_pages.loader])).get_template("kernel_fits.html")
_STYLE = (_HERE / "parts.css").read_text()


class KernelFits:
    """One viewer's page, a bokeh document of its own.

    Parameters
    ----------
    view : FitsView
        The source of the data, which is not modified.
    """

    def __init__(self, view: FitsView) -> None:
        style = InlineStyleSheet(css=_STYLE)
        self._view, self._document = view, None
        self._armed = ("", 0.0)
        """The fit that a second click stops, and the time until which it does."""
        self._drawn: tuple[Any, ...] = ()
        self.sources = Sources()
        self._rate = math.nan
        """Rows per second at the end of the curve of speed."""
        self._parts = tuple(
            Div(name=name, stylesheets=[style], sizing_mode="stretch_width", margin=0) for name in _PARTS
        )
        self.fits, self.facts, self.ranks, self.notices, *notes = self._parts
        self.spectrum_note, self.shares_note, self.score_note, self.stop_note = notes
        self.chosen = Select(name="chosen", options=[], value="", stylesheets=[style], width=330)
        self.compared = Select(name="compared", options=[("", "none")], value="", stylesheets=[style], width=240)
        self.axis = RadioButtonGroup(name="axis", labels=["Time", "Epoch"], active=0, stylesheets=[style])
        self.scale = RadioButtonGroup(name="scale", labels=["Log", "Linear"], active=0, stylesheets=[style])
        self.smoothing = Select(
            name="smoothing", options=list(_SMOOTHING), value="light", stylesheets=[style], width=110
        )
        self.stop = Button(name="stop", label=_STOP, stylesheets=[style], width=190)
        self._losses = (loss_plot(self.sources, "log"), loss_plot(self.sources, "linear"))
        self._losses[1].visible = False
        self._by_x = (*self._losses, score_plot(self.sources), rate_plot(self.sources))
        self._shares, self._spectrum = shares_plot(self.sources), spectrum_plot(self.sources)
        for widget in (self.chosen, self.compared, self.smoothing):
            widget.on_change("value", self._changed)
        for group in (self.axis, self.scale):
            group.on_change("active", self._changed)
        self.stop.on_click(self._stop_clicked)

    def put_on(self, document: Any) -> None:
        """Add everything to a bokeh document."""
        self._document = document
        losses = column(*self._losses, name="loss", sizing_mode="stretch_width")
        for name, plot in zip(("score", "rate"), self._by_x[2:], strict=True):
            plot.name = name
        self._shares.name, self._spectrum.name = "shares_plot", "spectrum_plot"
        controls = (self.chosen, self.compared, self.axis, self.scale, self.smoothing, self.stop)
        for root in (*self._parts, *controls, losses, *self._by_x[2:], self._shares, self._spectrum):
            document.add_root(root)
        self.update()
        document.add_periodic_callback(self.update, _REFRESH_MS)

    def update(self) -> None:
        """Fetch the status of the fits, and update what has changed."""
        now, fits = time.time(), self._view.fits()
        listed = tables.in_order(fits)
        known = [str(status["card"]["fit"]) for status in listed]
        if listed and self.chosen.value not in known:
            self.chosen.value = known[0]  # calls this again
        options = [(fit, f"{s['card']['name']} - {fit} - {s['state']}") for fit, s in zip(known, listed, strict=True)]
        _set(self.chosen, options=options)
        others = [("", "none"), *(option for option in options if option[0] != self.chosen.value)]
        if self.compared.value not in [fit for fit, _ in others]:
            self.compared.value = ""  # calls this again
        _set(self.compared, options=others)
        _set(self.fits, text=tables.fits_table(fits, self.chosen.value, now))
        status = next((s for s in listed if s["card"]["fit"] == self.chosen.value), None)
        glance = self._view.glance(self.chosen.value) if status is not None else {}
        self._show_stop(status, now)
        if status is None or not glance:
            _set(self.facts, text="")
            return
        _set(self.ranks, text=tables.ranks_table(glance, tables.is_active(status), now))
        other = self._view.glance(self.compared.value) if self.compared.value else {}
        versions = (glance["version"], other.get("version"))
        shown = (self.chosen.value, self.compared.value, self.axis.active, self.scale.active, self.smoothing.value)
        if (*versions, *shown) != self._drawn:  # the whole history is long, and each viewer requests it
            self._draw(
                self._view.history(self.chosen.value), SCORES.get(str(status["card"]["task"]), "Validation score")
            )
            self._draw_other(self._view.history(self.compared.value) if other else {})
            self._drawn = (*versions, *shown)  # only after success: a failure is retried
        _set(self.facts, text=tables.facts(status, glance, now, self._rate))

    def _changed(self, attr: str, old: object, new: object) -> None:
        del attr, old, new
        if self._armed[0] != self.chosen.value:
            self._armed = ("", 0.0)  # also if the same fit is chosen again
        self.update()

    def _draw_other(self, history: Mapping[str, Any]) -> None:
        """Fill the curves of the fit that the chosen one is compared with, from its own beginning."""
        x = "time" if self.axis.active == 0 else "passes"
        if not history:
            self.sources.other_batches.data = {"x": [], "smooth": [], "rate": []}
            self.sources.other_epochs.data = {"x": [], "validation_loss": [], "validation_score": []}
            return
        unit = time_unit(self._view.history(self.chosen.value))[0]
        share = time_unit(history)[0] / unit if x == "time" else 1.0  # both in the unit of the axis
        batches, epochs = batch_columns(history, _SMOOTHING[self.smoothing.value]), epoch_columns(history)
        self.sources.other_batches.data = {"x": share * batches[x], **{k: batches[k] for k in ("smooth", "rate")}}
        names = ("validation_loss", "validation_score")
        self.sources.other_epochs.data = {"x": share * epochs[x], **{name: epochs[name] for name in names}}

    def _draw(self, history: Mapping[str, Any], score: str) -> None:
        """Fill the plots; the axis of the validation score is named `score`."""
        by_time = self.axis.active == 0
        x, label = ("time", f"Time since the start ({time_unit(history)[1]})") if by_time else ("passes", "Epoch")
        for plot in self._by_x:
            _set(plot.xaxis[0], axis_label=label)
        for plot, number in zip(self._losses, (0, 1), strict=True):
            _set(plot, visible=self.scale.active == number)
        batches, epochs = batch_columns(history, _SMOOTHING[self.smoothing.value]), epoch_columns(history)
        measured = batches["rate"][np.isfinite(batches["rate"])]
        self._rate = float(measured[-1]) if measured.size else math.nan
        _set(self._by_x[2].yaxis[0], axis_label=score)
        self.sources.batches.data = {"x": batches[x], **{name: batches[name] for name in ("loss", "smooth", "rate")}}
        scores = epochs["validation_score"]
        self.sources.epochs.data = {
            "x": epochs[x],
            "validation_loss": epochs["validation_loss"],
            "validation_score": scores,
        }
        self.sources.shares.data = share_columns(history)
        self.sources.spectrum.data = spectrum_columns(history)
        _set(self.notices, text=tables.notices_table(history))
        _set(self.spectrum_note, text=tables.spectrum_note(history))
        _set(self.shares_note, text=tables.shares_note(history))
        watched = bool(np.isfinite(scores).any())
        _set(self._by_x[2], visible=watched)
        none = "None: it is measured after each epoch where the fit has validation rows."
        _set(self.score_note, text="1 is perfect; higher is better." if watched else none)

    def _show_stop(self, status: Mapping[str, Any] | None, now: float) -> None:
        active = status is not None and tables.is_active(status)
        stopping = active and status is not None and bool(status.get("stop"))
        label = "Stopping …" if stopping else _SURE if self._is_armed(now) else _STOP
        _set(self.stop, disabled=not active or stopping or not may_stop(self._document), label=label)
        _set(self.stop_note, text=_NOT_HERE if active and is_foreign(self._document) else "")

    def _is_armed(self, now: float) -> bool:
        """Return whether a click stops the chosen fit, which may have changed since the first click."""
        return self._armed[0] == self.chosen.value and now < self._armed[1]

    def _stop_clicked(self) -> None:
        """Stop the chosen fit at the second click, so that a single accidental click does not."""
        if not may_stop(self._document):
            return
        now = time.time()
        if self._is_armed(now):
            self._armed = ("", 0.0)
            self._view.cancel(self.chosen.value)
        else:
            self._armed = (self.chosen.value, now + _ARMED_S)
        self.update()


def _set(model: Any, **values: Any) -> None:
    """Set properties that differ: each assignment is a message to the browser."""
    for name, value in values.items():
        if getattr(model, name) != value:
            setattr(model, name, value)


def fill(document: Any, view: FitsView, variables: Mapping[str, Any]) -> None:
    """Make `document` the page of one viewer. `variables` are those of Dask's own pages."""
    KernelFits(view).put_on(document)
    document.title = "Dask: Kernel fits"
    document.template = _TEMPLATE
    document.template_variables.update(variables)
