"""What dashboards and metrics ask of whoever knows the fits: plain dictionaries, whatever keeps them."""

from collections.abc import Mapping, Sequence
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
