"""The page "Kernel fits": its content, its updates, and its controls."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import Div, InlineStyleSheet, MultiSelect, RadioButtonGroup, Select
from distributed.dashboard.components.scheduler import env as dask_pages
from jinja2 import ChoiceLoader, DictLoader

from daskkern.monitor.curves import share_columns, spectrum_columns
from daskkern.monitor.dashboard import tables
from daskkern.monitor.dashboard.cells import is_active
from daskkern.monitor.dashboard.changes import set_changed
from daskkern.monitor.dashboard.comparison import comparison_table, not_comparable
from daskkern.monitor.dashboard.facts import facts, has_begun
from daskkern.monitor.dashboard.figures import (
    MOST_FITS,
    Sources,
    loss_plot,
    rate_plot,
    score_plot,
    shares_plot,
    spectrum_plot,
)
from daskkern.monitor.dashboard.overlay import Overlay
from daskkern.monitor.dashboard.stop_button import StopButton
from daskkern.monitor.formatting import score_name
from daskkern.monitor.view import FitsView

_REFRESH_MS = 1_000
_SMOOTHING = {"none": 0.0, "light": 0.8, "strong": 0.97}
_SCALES = ("log", "linear")
_NO_SCORE = "None: it is measured after each epoch where the fit has validation rows."
_HERE = Path(__file__).parent
_OURS: Any = DictLoader({"kernel_fits.html": (_HERE / "page.html").read_text()})
_TEMPLATE = dask_pages.overlay(loader=ChoiceLoader([_OURS, dask_pages.loader])).get_template("kernel_fits.html")
_STYLE = (_HERE / "parts.css").read_text()
_Status = Mapping[str, Any]


class KernelFits:
    """One viewer's page, a bokeh document of its own.

    Parameters
    ----------
    view : FitsView
        The source of the data, which is not modified.
    """

    def __init__(self, view: FitsView) -> None:
        self._view, self._updating = view, False
        style = [InlineStyleSheet(css=_STYLE)]
        text: dict[str, Any] = {"stylesheets": style, "sizing_mode": "stretch_width", "margin": 0}
        self.fits, self.facts = Div(name="fits", **text), Div(name="facts", **text)
        self.comparison, self.unlike = Div(name="comparison", **text), Div(name="unlike", **text)
        self.ranks, self.notices = Div(name="ranks", **text), Div(name="notices", **text)
        self.spectrum_note, self.shares_note = Div(name="spectrum_note", **text), Div(name="shares_note", **text)
        self.score_note = Div(name="score_note", **text)
        self.chosen = Select(name="chosen", options=[], value="", stylesheets=style, sizing_mode="stretch_width")
        self.compared = MultiSelect(
            name="compared", options=[], value=[], size=3, stylesheets=style, sizing_mode="stretch_width"
        )
        self.axis = RadioButtonGroup(name="axis", labels=["Time", "Epoch"], active=0, stylesheets=style)
        self.scale = RadioButtonGroup(name="scale", labels=["Log", "Linear"], active=0, stylesheets=style)
        self.smoothing = Select(name="smoothing", options=list(_SMOOTHING), value="light", stylesheets=style, width=110)
        self.stop = StopButton(view.cancel, style)
        self.sources = Sources()
        self.losses = tuple(loss_plot(self.sources, scale) for scale in _SCALES)
        self.score, self.rate = score_plot(self.sources), rate_plot(self.sources)
        self.shares, self.spectrum = shares_plot(self.sources), spectrum_plot(self.sources)
        self._overlay = Overlay(view, self.sources, (*self.losses, self.score, self.rate))
        self._drawn: tuple[str, Any] = ("", None)
        """The fit whose own plots and notices are shown, and their version."""
        for widget in (self.chosen, self.compared, self.smoothing):
            widget.on_change("value", self._changed)
        for group in (self.axis, self.scale):
            group.on_change("active", self._changed)
        self.stop.button.on_click(self._stop_clicked)

    def put_on(self, document: Any) -> None:
        """Add everything to a bokeh document."""
        self.stop.document = document
        losses = column(*(plot.figure for plot in self.losses), name="loss", sizing_mode="stretch_width")
        self.score.figure.name, self.rate.figure.name = "score", "rate"
        self.shares.name, self.spectrum.name = "shares_plot", "spectrum_plot"
        texts = (self.fits, self.facts, self.comparison, self.unlike, self.ranks, self.notices)
        notes = (self.spectrum_note, self.shares_note, self.score_note, self.stop.note)
        controls = (self.chosen, self.compared, self.axis, self.scale, self.smoothing, self.stop.button)
        plots = (losses, self.score.figure, self.rate.figure, self.shares, self.spectrum)
        with document.models.freeze():
            for root in (*texts, *notes, *controls, *plots):
                document.add_root(root)
        self.update()
        document.add_periodic_callback(self.update, _REFRESH_MS)

    def update(self) -> None:
        """Fetch the status of the fits, and show what has changed."""
        self._updating = True
        try:
            with _at_once(self.stop.document):
                self._update(time.time())
        finally:
            self._updating = False

    def _changed(self, attr: str, old: object, new: object) -> None:
        del attr, old, new
        if not self._updating:
            self.update()

    def _stop_clicked(self) -> None:
        self.stop.click()
        self.update()

    def _update(self, now: float) -> None:
        found = self._view.fits()
        listed = {str(status["card"]["fit"]): status for status in tables.in_order(found)}
        self._offer(listed)
        status = listed.get(self.chosen.value)
        glance = self._view.glance(self.chosen.value) if status is not None else {}
        places = {}
        if status is not None and glance:
            places = self._overlay.place(self.chosen.value, self.compared.value)
            self._show(status, glance, now)
            self._compare(places, listed, now)
        else:
            set_changed(self.facts, {"text": "", "tags": []})
        set_changed(self.fits, {"text": tables.fits_table(found, places, now)})
        active, stopping = status is not None and is_active(status), status is not None and bool(status.get("stop"))
        self.stop.show(self.chosen.value, active, stopping, begun=not self.facts.tags)

    def _offer(self, listed: Mapping[str, _Status]) -> None:
        """Offer the fits there are in both lists, and drop from them what is gone."""
        options = [(fit, f"{s['card']['name']} - {fit} - {s['state']}") for fit, s in listed.items()]
        chosen = self.chosen.value if self.chosen.value in listed else next(iter(listed), "")
        others = [fit for fit in self.compared.value if fit in listed and fit != chosen][: MOST_FITS - 1]
        set_changed(self.chosen, {"options": options, "value": chosen})
        set_changed(self.compared, {"value": others, "options": [item for item in options if item[0] != chosen]})

    def _show(self, status: _Status, glance: Mapping[str, Any], now: float) -> None:
        """Show the chosen fit by itself: numbers, ranks, and what is not drawn over each other."""
        set_changed(self.ranks, {"text": tables.ranks_table(glance, is_active(status), now)})
        drawn = (self.chosen.value, glance["version"])
        if drawn != self._drawn:  # the whole history is long, and each viewer requests it
            self._draw(self._overlay.history(self.chosen.value))
            self._drawn = drawn  # only after success: a failure is retried
        self._overlay.draw(self.axis.active == 0, _SMOOTHING[self.smoothing.value])
        rate = self.sources.fits[0].batches.data["rate"]
        measured = [value for value in rate if np.isfinite(value)]
        set_changed(self.facts, {"text": facts(status, glance, now, measured[-1] if measured else math.nan)})
        set_changed(self.facts, {"tags": [] if has_begun(status, glance) else ["waits"]})  # the page leaves plots out

    def _draw(self, history: Mapping[str, Any]) -> None:
        self.sources.shares.data = share_columns(history)
        self.sources.spectrum.data = spectrum_columns(history)
        set_changed(self.notices, {"text": tables.notices_table(history)})
        set_changed(self.spectrum_note, {"text": tables.spectrum_note(history)})
        set_changed(self.shares_note, {"text": tables.shares_note(history)})

    def _compare(self, places: Mapping[str, int], listed: Mapping[str, _Status], now: float) -> None:
        """Name the fits in the plots, and show in which settings they differ."""
        shown: Sequence[tuple[int, _Status]] = [(place, listed[fit]) for fit, place in places.items()]
        tasks = {str(status["card"]["task"]) for _, status in shown}
        score = score_name(tasks.pop()) if len(tasks) == 1 else "score"
        label = "Validation score" if score == "score" else score[:1].upper() + score[1:]
        set_changed(self.score.figure.yaxis[0], {"axis_label": label})
        for plot, scale in zip(self.losses, _SCALES, strict=True):
            set_changed(plot.figure, {"visible": _SCALES[self.scale.active] == scale})
        self._overlay.name({place: str(status["card"]["name"]) for place, status in shown})
        set_changed(self.comparison, {"text": comparison_table(shown, now), "tags": ["shown"] * (len(shown) > 1)})
        set_changed(self.unlike, {"text": not_comparable([status for _, status in shown])})
        watched = self._overlay.has_scores()
        set_changed(self.score.figure, {"visible": watched})
        set_changed(self.score_note, {"text": "1 is perfect; higher is better." if watched else _NO_SCORE})


@contextmanager
def _at_once(document: Any) -> Iterator[None]:
    """Send what changes in `document` at the end, each property once: new curves are many models, for each of which
    the document would look through all others, and the browser would draw."""
    if document is None:
        yield
        return
    document.hold("combine")
    try:
        with document.models.freeze():
            yield
    finally:
        document.unhold()


def fill(document: Any, view: FitsView, variables: Mapping[str, Any]) -> None:
    """Make `document` the page of one viewer. `variables` are those of Dask's own pages."""
    KernelFits(view).put_on(document)
    document.title = "Dask: Kernel fits"
    document.template = _TEMPLATE
    document.template_variables.update(variables)
