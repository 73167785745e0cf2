"""What dashboards and metrics ask of whoever knows the fits: plain dictionaries, whatever keeps them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class FitsView(Protocol):
    """The fits of a cluster, as its scheduler knows them."""

    def fits(self) -> Sequence[Mapping[str, Any]]:
        """Return how every fit stands, oldest first: the fields of ``FitStatus``."""
        ...

    def history(self, fit: str) -> Mapping[str, Any]:
        """Return the course of `fit`: what ``FitHistory`` keeps, and ``workers``; empty for an unknown one."""
        ...

    def glance(self, fit: str) -> Mapping[str, Any]:
        """Return what of :meth:`history` changes from second to second, and its ``version``; cheap to ask."""
        ...

    def cancel(self, fit: str) -> bool:
        """Ask `fit` to end after its current step with the model so far. False when it has ended."""
        ...


class SharedView:
    """Another view for many viewers, each of which asks once a second: what one has asked for, the others are told.

    Parameters
    ----------
    view : FitsView
    clock : callable
        Returns seconds.
    """

    _FRESH_S = 0.5
    _HISTORIES = 8

    def __init__(self, view: FitsView, clock: Callable[[], float] = time.monotonic) -> None:
        self._view, self._clock = view, clock
        self._fits: tuple[float, Sequence[Mapping[str, Any]]] | None = None
        self._histories: dict[str, Mapping[str, Any]] = {}

    def fits(self) -> Sequence[Mapping[str, Any]]:
        """Return how every fit stood at most half a second ago."""
        now = self._clock()
        if self._fits is None or not 0 <= now - self._fits[0] < self._FRESH_S:
            self._fits = now, self._view.fits()
        return self._fits[1]

    def history(self, fit: str) -> Mapping[str, Any]:
        """Return the course of `fit`, made anew when there is more of it."""
        version = self._view.glance(fit).get("version")
        known = self._histories.pop(fit, None)
        if known is None or known.get("version") != version:
            known = self._view.history(fit)
        self._histories[fit] = known  # the last one that was asked for is at the end
        if len(self._histories) > self._HISTORIES:
            del self._histories[next(iter(self._histories))]
        return known

    def glance(self, fit: str) -> Mapping[str, Any]:
        """Return what of the history changes from second to second."""
        return self._view.glance(fit)

    def cancel(self, fit: str) -> bool:
        """Ask `fit` to end."""
        self._fits = None
        return self._view.cancel(fit)
