"""The interface through which dashboards and metrics read the fits, as plain dictionaries."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class FitsView(Protocol):
    """The fits of a cluster, as its scheduler records them."""

    def fits(self) -> Sequence[Mapping[str, Any]]:
        """Return the status of every fit, oldest first: the fields of ``FitStatus``."""
        ...

    def history(self, fit: str) -> Mapping[str, Any]:
        """Return the history of `fit`: the content of ``FitHistory``, and ``workers``; empty for an unknown fit."""
        ...

    def glance(self, fit: str) -> Mapping[str, Any]:
        """Return the part of :meth:`history` that changes every second, and its ``version``; a cheap call."""
        ...

    def cancel(self, fit: str) -> bool:
        """Ask `fit` to end after its current step with the model so far. Return False if it has ended."""
        ...


class SharedView:
    """A caching view for many viewers that each poll once a second: they share the answers of another view.

    Parameters
    ----------
    view : FitsView
    clock : callable
        Returns seconds.
    """

    _FRESH_S = 0.5
    _HISTORIES = 24

    def __init__(self, view: FitsView, clock: Callable[[], float] = time.monotonic) -> None:
        self._view, self._clock = view, clock
        self._fits: tuple[float, Sequence[Mapping[str, Any]]] | None = None
        self._histories: dict[str, Mapping[str, Any]] = {}

    def fits(self) -> Sequence[Mapping[str, Any]]:
        """Return the status of every fit, at most half a second old."""
        now = self._clock()
        if self._fits is None or not 0 <= now - self._fits[0] < self._FRESH_S:
            self._fits = now, self._view.fits()
        return self._fits[1]

    def history(self, fit: str) -> Mapping[str, Any]:
        """Return the history of `fit`, fetched again only if it has grown."""
        version = self._view.glance(fit).get("version")
        known = self._histories.pop(fit, None)
        if known is None or known.get("version") != version:
            known = self._view.history(fit)
        self._histories[fit] = known  # the most recently used one is at the end
        if len(self._histories) > self._HISTORIES:
            del self._histories[next(iter(self._histories))]
        return known

    def glance(self, fit: str) -> Mapping[str, Any]:
        """Return the part of the history that changes every second."""
        return self._view.glance(fit)

    def cancel(self, fit: str) -> bool:
        """Ask `fit` to end."""
        self._fits = None
        return self._view.cancel(fit)
