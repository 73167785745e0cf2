"""The decision that the ranks of a generation commit and end, because other workers than theirs are to continue."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from daskkern.cluster.gang.growth import GrowthPolicy
from daskkern.cluster.gang.members import Members

_GROWTH_S = 1.0
"""Interval between queries for workers that could join."""


class RegroupingOrder(Protocol):
    """The part of a GangOrder that matters here."""

    @property
    def elastic(self) -> bool: ...
    @property
    def drain_s(self) -> float: ...


@dataclass
class Regrouping:
    """Decides once in a generation that it ends after a commit: workers have joined, or one that it needs leaves.

    Parameters
    ----------
    order : GangOrder
    members : Members
    addresses : tuple of str
        The workers of the generation, in rank order.
    home : str
        The worker of the supervisor.
    growth : GrowthPolicy
    """

    order: RegroupingOrder
    members: Members
    addresses: tuple[str, ...]
    home: str
    growth: GrowthPolicy
    clock: Callable[[], float] = time.monotonic
    leaving: frozenset[str] = field(default=frozenset(), init=False)
    """Those of its workers, the supervisor's included, for whose departure it ends."""
    _requested: bool = field(default=False, init=False)
    _next_growth: float = field(default=0.0, init=False)
    _since: dict[str, float] = field(default_factory=dict, init=False)

    def due(self) -> bool:
        """Return whether the ranks are to be told to commit now; True once at most."""
        if self._requested:
            return False
        if self.order.drain_s > 0:
            self.leaving = self.members.leaving.intersection((*self.addresses, self.home))
        self._requested = bool(self.leaving) or self._growth_pays()
        return self._requested

    def overdue(self) -> dict[int, str]:
        """Return, by rank, the workers that have been about to leave for ``drain_s``: they count as lost."""
        now = self.clock()
        self._since = {address: self._since.get(address, now) for address in self.members.leaving}
        return {
            rank: address
            for rank, address in enumerate(self.addresses)
            if address in self._since and now - self._since[address] >= self.order.drain_s
        }

    def _growth_pays(self) -> bool:
        if not self.order.elastic or self.clock() < self._next_growth:
            return False
        self._next_growth = self.clock() + _GROWTH_S
        return self.growth.pays(self.members.joinable(self.addresses), len(self.addresses), self.members.prospects)
