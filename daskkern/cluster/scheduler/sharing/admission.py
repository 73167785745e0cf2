"""Admission control: the rules by which fits get workers or wait, independent of a cluster.

A fit requests workers and gets all of them or none, so that two fits can never hold what the other waits for.
It holds them by *name*: a restarted worker keeps its name, and thereby its place. Fits wait in the order of their
priority, then of their submission; one that needs none of the workers of those before it may start first. A fit whose
user has used up a quota waits, and blocks no other.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from daskkern.cluster.scheduler.sharing.quotas import Quotas
from daskkern.cluster.scheduler.sharing.requests import Place, Verdict, WorkerRequest, candidates_of

_NOBODY: Mapping[str, Collection[str]] = {}


@dataclass
class Admission:
    """The state of admission: which fit holds which workers, and which fits wait."""

    quotas: Quotas = field(default_factory=Quotas)

    waiting: dict[str, WorkerRequest] = field(default_factory=dict)
    granted: dict[str, WorkerRequest] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the workers of each running fit, in rank order."""
    suspended: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of fits that were preempted and wait: the names of the workers that they held, which may keep their commits."""

    def ask(self, request: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Request workers, possibly again. A fit that was granted workers keeps them, whatever it requests."""
        if request.fit not in self.held:
            self.waiting[request.fit] = request
            self.grant(places)
        return self.look(request, places)

    def look(self, request: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Return what a fit holds or waits for, without changing anything."""
        if request.fit in self.held:
            return Verdict(self.held[request.fit])
        excess = self.excess(request)
        if excess:
            return Verdict(quota=excess)
        wanted = {place.name for place in candidates_of(request, places)}
        return Verdict((), tuple(self._ahead(request, wanted, places)), _missing(request, places))

    def take(self, fit: str, names: Sequence[str], places: Sequence[Place]) -> bool:
        """Assign these workers to `fit` instead of those it held; return False, changing nothing, if it may not."""
        request = self.granted.get(fit)
        known = {place.name: place for place in places}
        barred = self.unavailable(fit, places)
        if request is None or any(name not in known or name in barred for name in names):
            return False
        if len(names) > max(len(self.held[fit]), self._allowance(request)):
            return False
        self.held[fit] = tuple(names)
        return True

    def exclude(self, fit: str, small: Collection[Place], places: Sequence[Place]) -> bool:
        """Take these workers from `fit`. Free ones take their place, those with the most memory first.

        A fit that holds none afterwards waits for others. Return False, changing nothing, for an unknown fit, and for
        one that could use no worker then; what it holds counts also while it is paused or restarts.
        """
        names = {place.name for place in small}
        kept = tuple(name for name in self.held.get(fit, ()) if name not in names)
        absent = [Place(name) for name in kept if name not in {place.name for place in places}]
        waits = fit in self.waiting
        request = self.waiting.get(fit) or self.granted.get(fit)
        request = None if request is None else request.without(small, [*places, *absent])
        if request is None:
            return False
        candidates = candidates_of(request, places)
        (self.waiting if waits else self.granted)[fit] = request
        if not waits:
            self.held[fit] = kept
            self.held[fit] += self._replacements(request, candidates, places)
            if not self.held[fit]:
                self.waiting[fit] = self.granted.pop(fit)
                del self.held[fit]
        self.grant(places)
        return True

    def readmit(self, fit: str, places: Collection[Place]) -> None:
        """Let `fit` use workers again that were excluded."""
        for table in (self.waiting, self.granted):
            if fit in table:
                table[fit] = replace(table[fit], excluded=table[fit].excluded.difference(places))

    def _replacements(
        self, request: WorkerRequest, candidates: Sequence[Place], places: Sequence[Place]
    ) -> tuple[str, ...]:
        """Return the free workers that a running fit may use in addition to its own, up to what it requests."""
        own, barred = self.held[request.fit], self.unavailable(request.fit, places)
        free = [place for place in candidates if place.name not in own and place.name not in barred]
        count = max(0, self.size_of(request, candidates) - len(own))
        return tuple(place.name for place in sorted(free, key=Place.room, reverse=True)[:count])

    def unavailable(self, fit: str, places: Sequence[Place]) -> set[str]:
        """Return the names of the workers that `fit` may not use now, because other fits use them or wait for them,
        they are excluded, or they exceed its user's quota.

        These are all workers if it was not admitted.
        """
        request = self.granted.get(fit)
        if request is None:
            return {place.name for place in places}
        waiting = [other for other in self.waiting.values() if not self.excess(other)]
        wanted = {place.name for other in waiting for place in candidates_of(other, places)}
        own = set(self.held[fit])
        barred = {
            place.name
            for place in places
            if not self.free(place, request)
            or place in request.excluded
            or (place.name in wanted and place.name not in own)
        }
        more = [place.name for place in places if place.name not in barred | own]
        allowed = self._allowance(request) - len(own)
        return barred | {name for number, name in enumerate(more) if number >= allowed}

    def lacking(self, places: Sequence[Place], coming: Iterable[WorkerRequest] = ()) -> int:
        """Return how many workers more the cluster needs for all fits to run at the same time.

        A fit that requests every worker takes those that there are, and lacks one if there are none. Requests of named
        workers do not count: new ones have other names. Neither do those that wait for a quota.

        Parameters
        ----------
        places
            The workers of the cluster.
        coming
            Requests that will be made soon.
        """
        taken: set[str] = set()
        lacking = 0
        for request in [*self.granted.values(), *self.waiting.values(), *coming]:
            small = any(place.room() < (request.memory or 0) for place in places)
            waits = request.fit not in self.held
            if request.allowed is not None or small or (waits and self.excess(request)):
                continue
            wanted = (request.n_ranks or int(not candidates_of(request, places))) - len(self.held.get(request.fit, ()))
            free = [place.name for place in places if place.name not in taken and self._may_join(place, request)]
            taken |= set(free[: max(0, wanted)])
            lacking += max(0, wanted - len(free))
        return lacking

    def _may_join(self, place: Place, request: WorkerRequest) -> bool:
        known = place in request.excluded or place.name in self.held.get(request.fit, ())
        return not known and self.free(place, request)

    def release(self, fit: str) -> None:
        """Release what `fit` holds or waits for."""
        for table in (self.waiting, self.granted, self.held, self.suspended):
            table.pop(fit, None)

    def suspend(self, fit: str) -> None:
        """Take all workers from a running fit, which waits for them again from its old place in the queue."""
        self.waiting[fit], self.suspended[fit] = self.granted.pop(fit), self.held.pop(fit)

    def settle(self, fit: str, places: Sequence[Place]) -> None:
        """Let a suspended fit that requests more workers than there are continue with the existing ones."""
        request = self.waiting[fit]
        there = len(candidates_of(request, places))
        if fit in self.suspended and 0 < there < (request.n_ranks or 0):
            self.waiting[fit] = replace(request, n_ranks=there)

    @property
    def busy(self) -> set[str]:
        """The names of all workers that are held."""
        return {name for names in self.held.values() for name in names}

    def holds_another(self, name: str, fit: str) -> bool:
        """Return whether a fit other than `fit` holds the worker `name`."""
        return any(name in names for holder, names in self.held.items() if holder != fit)

    @property
    def reserved(self) -> set[str]:
        """The names of the workers that are held, or may have the commits of suspended fits."""
        return self.busy | {name for names in self.suspended.values() for name in names}

    def in_turn(self) -> list[WorkerRequest]:
        """Return the requests that wait, in the order of their turns."""
        return sorted(self.waiting.values(), key=lambda request: request.turn)

    def excess(self, request: WorkerRequest) -> str:
        """Return the quota that a request waits for, in a sentence; "" for none."""
        held = self._held_by(request.user, request.fit)
        quota = self.quotas.of(request.user)
        return quota.excess(request.user, request.n_ranks or 1, sum(map(len, held)), len(held))

    def size_of(self, request: WorkerRequest, candidates: Sequence[Place]) -> int:
        """Return how many workers a request is granted: the requested number, or all that its user may have."""
        return request.n_ranks or int(min(len(candidates), self._allowance(request)))

    def _held_by(self, user: str, but: str) -> list[tuple[str, ...]]:
        """Return what the running fits of `user` hold, except for one."""
        return [names for fit, names in self.held.items() if fit != but and self.granted[fit].user == user]

    def _allowance(self, request: WorkerRequest) -> float:
        """Return the most workers that the fit may hold under the quota of its user, with what its other fits hold."""
        most = self.quotas.of(request.user).workers
        return math.inf if most is None else most - sum(map(len, self._held_by(request.user, request.fit)))

    def grant(self, places: Sequence[Place]) -> None:
        """Assign workers to every fit whose turn it is."""
        reserved: set[str] = set()
        for request in self.in_turn():
            candidates = candidates_of(request, places)
            size = self.size_of(request, candidates)
            if not candidates or size > len(candidates) or self.excess(request):
                continue  # it waits for workers to join or for a quota, and blocks no other fit until then
            free = [place.name for place in candidates if place.name not in reserved and self.free(place, request)]
            if len(free) < size:
                reserved |= {place.name for place in candidates}
                continue
            self.held[request.fit] = tuple(free[:size])
            self.granted[request.fit] = self.waiting.pop(request.fit)
            self.suspended.pop(request.fit, None)

    def free(self, place: Place, request: WorkerRequest, leaving: Mapping[str, Collection[str]] = _NOBODY) -> bool:
        """Return whether `request` may use `place`, in addition to the fits that use it.

        `leaving` are the workers that some of these fits will hand over.
        """
        others = [
            self.granted[fit]
            for fit, names in self.held.items()
            if fit != request.fit and place.name in names and place.name not in leaving.get(fit, ())
        ]
        if not others:
            return request.memory is None or request.memory <= place.room()
        if request.memory is None or any(other.memory is None for other in others):
            return False
        declared = request.memory + sum(other.memory or 0 for other in others)
        return declared <= place.room()

    def _ahead(self, request: WorkerRequest, wanted: set[str], places: Sequence[Place]) -> Iterable[str]:
        known: Mapping[str, Place] = {place.name: place for place in places}
        for fit, names in self.held.items():
            if any(name in wanted and not self.free(known[name], request) for name in names if name in known):
                yield fit
        for other in self.waiting.values():
            overlap = any(place.name in wanted for place in candidates_of(other, places))
            if overlap and other.turn < request.turn and not self.excess(other):
                yield other.fit


def _missing(request: WorkerRequest, places: Sequence[Place]) -> int:
    return max(0, (request.n_ranks or 1) - len(candidates_of(request, places)))
