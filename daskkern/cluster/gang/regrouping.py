"""When the ranks of a generation commit and end: for a change of workers, or for a fit of higher priority."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from daskkern.cluster.gang.growth import GrowthPolicy
from daskkern.cluster.gang.members import Members, RegainedWorkers
from daskkern.errors import ClusterError

_GROWTH_S = 1.0
"""Interval between queries for workers that could join."""
_PREEMPTION_S = 0.5
"""Interval between queries whether the fit is to hand workers over."""
_POLL_S = 0.25


class RegroupingOrder(Protocol):
    """The part of a GangOrder that matters here."""

    @property
    def elastic(self) -> bool: ...
    @property
    def drain_s(self) -> float: ...
    @property
    def obstacle(self) -> str: ...


@dataclass
class Regrouping:
    """Decides once in a generation that it ends after a commit: workers have joined, one that it needs leaves, or the
    fit is preempted.

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
    preempted_for: str = field(default="", init=False)
    """The fit that workers are to be handed over to, for which it ends."""
    _requested: bool = field(default=False, init=False)
    _next_growth: float = field(default=0.0, init=False)
    _next_query: float = field(default=0.0, init=False)
    _since: dict[str, float] = field(default_factory=dict, init=False)

    def due(self) -> bool:
        """Return whether the ranks must commit now; True once at most."""
        if self._requested:
            return False
        if self.order.drain_s > 0:
            self.leaving = self.members.leaving.intersection((*self.addresses, self.home))
        self.preempted_for = self._preemption()
        self._requested = bool(self.leaving or self.preempted_for) or self._growth_pays()
        return self._requested

    def _preemption(self) -> str:
        if self.order.obstacle or self.clock() < self._next_query:
            return ""
        self._next_query = self.clock() + _PREEMPTION_S
        return self.members.preempted_for()

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
        return self.growth.is_worthwhile(
            self.members.joinable(self.addresses), len(self.addresses), self.members.prospects
        )


class TakenOverError(ClusterError):
    """Another supervisor has taken over the fit."""


def taken_over(name: str) -> TakenOverError:
    """Return the error for the supervisor of a fit of this name that another one has taken over."""
    return TakenOverError(f"another supervisor has taken over fit '{name}'")


class SuspendedMembers(Protocol):
    """The part of :class:`daskkern.cluster.gang.members.Members` that matters here."""

    def workers_again(self, *, settle: bool) -> RegainedWorkers | None: ...


class SuspensionOrder(Protocol):
    """The part of a GangOrder that matters here."""

    @property
    def name(self) -> str: ...
    @property
    def rejoin_s(self) -> float: ...
    @property
    def idle_s(self) -> float: ...


def await_workers(
    members: SuspendedMembers,
    order: SuspensionOrder,
    check: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Wait until a suspended fit has workers again, and return their addresses in rank order.

    It waits as long as other fits use them. When the cluster has fewer workers than the fit requests, it waits
    ``rejoin_s`` for others, and then settles for those; when some of its workers are being restarted, it waits as long
    for them.

    Parameters
    ----------
    check
        Called before every query; raises what is to end the wait.

    Raises
    ------
    ClusterError
        When there has been no worker for ``idle_s``.
    TakenOverError
    """
    lacking_since: float | None = None
    while True:
        check()
        now = clock()
        lacks_s = 0.0 if lacking_since is None else now - lacking_since
        found = members.workers_again(settle=lacks_s >= order.rejoin_s)
        if found is None:
            raise taken_over(order.name)
        complete = len(found.addresses) >= found.held or lacks_s >= order.rejoin_s
        if found.addresses and complete:
            return found.addresses
        lacks = found.missing > 0 or len(found.addresses) < found.held
        lacking_since = (now if lacking_since is None else lacking_since) if lacks else None
        if lacks_s >= order.idle_s:
            raise ClusterError(
                f"no worker was left for the preempted fit '{order.name}', and none came in {order.idle_s:g} s; start "
                "workers and fit again with resume"
            )
        sleep(_POLL_S)
