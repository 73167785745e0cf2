"""The button that stops a fit on the second click, for authorised viewers."""

import time
from collections.abc import Callable
from typing import Any

from bokeh.models import Button, Div

from daskkern.monitor.dashboard.changes import set_changed
from daskkern.monitor.dashboard.origins import is_foreign, may_stop

_ARMED_S = 5.0
_NOT_HERE = (
    "This page was opened under a name that the scheduler does not know as its own, so it cannot stop fits. Use "
    "<code>daskkern cancel</code>, or open the page by the scheduler's address."
)
_STOP, _CANCEL = "Stop after this window", "Cancel this fit"
_SURE, _STOPPING = "Click again to stop", "Stopping \N{HORIZONTAL ELLIPSIS}"


class StopButton:
    """The button, and a note with the reason where it cannot be used.

    Parameters
    ----------
    cancel : callable
        Ends a fit.
    style : list
        Style sheets of the two models.
    """

    def __init__(self, cancel: Callable[[str], Any], style: list[Any]) -> None:
        self.document: Any = None
        """The viewer's, once there is one."""
        self.button = Button(name="stop", label=_STOP, stylesheets=style, width=190)
        self.note = Div(name="stop_note", stylesheets=style, sizing_mode="stretch_width", margin=0)
        self._cancel, self._fit = cancel, ""
        self._armed = ("", 0.0)
        """The fit that a second click stops, and the time until which it does."""

    def show(self, fit: str, active: bool, stopping: bool, begun: bool) -> None:
        """Show what a click would do to `fit`, which may not have `begun`."""
        if fit != self._fit:
            self._fit, self._armed = fit, ("", 0.0)  # also if the same fit is chosen again
        label = _STOPPING if active and stopping else _SURE if self._is_armed() else _STOP if begun else _CANCEL
        allowed = active and not stopping and may_stop(self.document)
        note = _NOT_HERE if active and is_foreign(self.document) else ""
        for model, values in ((self.button, {"label": label, "disabled": not allowed}), (self.note, {"text": note})):
            set_changed(model, values)

    def click(self) -> None:
        """Arm the button, or stop the fit for which it is armed, so that a single accidental click does not."""
        if not may_stop(self.document):
            return
        if self._is_armed():
            self._armed = ("", 0.0)
            self._cancel(self._fit)
        else:
            self._armed = (self._fit, time.time() + _ARMED_S)

    def _is_armed(self) -> bool:
        return self._armed[0] == self._fit and time.time() < self._armed[1]
