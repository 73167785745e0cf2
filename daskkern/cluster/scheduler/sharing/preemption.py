"""Preemption: the choice of running fits that hand workers over to waiting fits of a higher priority.

Independent of a cluster, like admission. A fit that is asked commits, hands its workers over, and waits for them again
from its old place in the queue. Fits of equal priority never preempt each other, and nothing is asked for in vain: only
if a waiting fit can then run.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.requests import Place, WorkerRequest, candidates_of

INTERVAL_S = 60.0
"""How long a fit that goes on after a preemption, or with fewer workers, is not preempted again."""


@dataclass(frozen=True)
class Preemptible:
    """Whether a running fit can be preempted: `obstacle` says why not, in a few words, "" if it can; with `shrinks` it
    can also go on with fewer workers."""

    obstacle: str = ""
    shrinks: bool = False


@dataclass(frozen=True)
class HandOver:
    """The names of the workers that a fit must hand over to the fit `to`, and of those that it keeps."""

    to: str
    names: tuple[str, ...]
    kept: tuple[str, ...] = ()


@dataclass
class Preemption:
    """The hand-overs requested of running fits.

    Parameters
    ----------
    admission : Admission
    interval_s : float
        How long a fit is left alone after a preemption, from when it has its workers again.
    clock : callable
        Returns seconds.
    """

    admission: Admission
    interval_s: float = INTERVAL_S
    clock: Callable[[], float] = time.monotonic
    declared: dict[str, Preemptible] = field(default_factory=dict)
    """What the supervisors of fits have declared; a fit in its set-up has none yet, and can be asked."""
    requested: dict[str, HandOver] = field(default_factory=dict)
    """By the fit that is asked."""
    _rested: dict[str, float] = field(default_factory=dict, init=False)
    """When fits can be preempted again."""
    _suspended: set[str] = field(default_factory=set, init=False)

    def update(self, places: Sequence[Place]) -> None:
        """Choose again the fits to preempt after workers were granted, and withdraw requests that are obsolete."""
        self._note_resumed()
        before, self.requested = self.requested, {}
        reserved: set[str] = set()
        for request in self.admission.in_turn():
            candidates = candidates_of(request, places)
            size = self.admission.size_of(request, candidates)
            if not candidates or size > len(candidates) or self.admission.excess(request):
                continue  # it would not run with all of them
            usable = [place for place in candidates if place.name not in reserved]
            self.requested |= self._hand_overs(request, usable, size, before)
            reserved |= {place.name for place in candidates}

    def hand_over(self, fit: str, *, whole: bool) -> tuple[str, ...]:
        """Take the workers of a fit that has committed, and return the names of those that it keeps.

        None of them means that it waits from now on; all of them, that the request was withdrawn meanwhile.

        Parameters
        ----------
        fit
            A running fit.
        whole
            Take all its workers, also if only some were requested, or none: it cannot run on the rest.
        """
        held, request = self.admission.held[fit], self.requested.pop(fit, None)
        if request is None and not whole:
            return held
        kept = () if whole or request is None else tuple(name for name in held if name not in request.names)
        if kept:
            self.admission.held[fit] = kept
            self._rested[fit] = self.clock() + self.interval_s
        else:
            self.admission.suspend(fit)
            self._suspended.add(fit)
        return kept

    def obstacles(self, priority: int, fits: Iterable[str]) -> Mapping[str, str]:
        """Return why those of the running `fits` that have a lower priority are not preempted, where they cannot be."""
        found = {}
        for fit in fits:
            running = self.admission.granted.get(fit)
            if running is None or running.priority >= priority:
                continue
            left_s = self._rested.get(fit, 0.0) - self.clock()
            obstacle = self.declared.get(fit, Preemptible()).obstacle
            if obstacle:
                found[fit] = obstacle
            elif left_s > 0:
                found[fit] = f"it was preempted a moment ago, and runs for {self.interval_s:g} s at least"
        return found

    def _note_resumed(self) -> None:
        """Note which suspended fits have workers again, and forget fits that have ended."""
        for fit in self._suspended - self.admission.suspended.keys():
            if fit in self.admission.held:
                self._rested[fit] = self.clock() + self.interval_s
        self._suspended &= self.admission.suspended.keys()
        known = self.admission.held.keys() | self.admission.waiting.keys()
        self.declared = {fit: value for fit, value in self.declared.items() if fit in known}
        self._rested = {fit: at for fit, at in self._rested.items() if fit in known}

    def _hand_overs(
        self, request: WorkerRequest, usable: Sequence[Place], size: int, before: Collection[str]
    ) -> dict[str, HandOver]:
        """Return what to ask for so that `size` of the `usable` places become free for a request; {} if that fails."""
        held, chosen = self.admission.held, dict[str, HandOver]()

        def free(more: Mapping[str, HandOver]) -> list[str]:
            leaving = {fit: part.names for fit, part in {**self.requested, **more}.items()}
            return [place.name for place in usable if self.admission.free(place, request, leaving)]

        if len(free({})) >= size:
            return {}
        for victim in self._victims(request, {place.name for place in usable}, before):
            chosen[victim.fit] = HandOver(request.fit, held[victim.fit])
            if len(free(chosen)) >= size:
                break
        else:
            return {}
        for fit in list(chosen)[-2::-1]:  # without the last one there were too few
            rest = {other: part for other, part in chosen.items() if other != fit}
            chosen = rest if len(free(rest)) >= size else chosen
        return self._without_surplus(chosen, free(chosen), size)

    def _victims(self, request: WorkerRequest, names: set[str], before: Collection[str]) -> list[WorkerRequest]:
        """Return the fits that may be preempted: lowest priority first, then those already requested, then newest."""
        now = self.clock()
        found = [
            other
            for fit, other in self.admission.granted.items()
            if other.priority < request.priority
            and fit not in self.requested
            and not self.declared.get(fit, Preemptible()).obstacle
            and now >= self._rested.get(fit, now)
            and not names.isdisjoint(self.admission.held[fit])
        ]
        return sorted(found, key=lambda other: (other.priority, other.fit not in before, -other.since, other.fit))

    def _without_surplus(self, chosen: Mapping[str, HandOver], free: Sequence[str], size: int) -> dict[str, HandOver]:
        """Let fits that can continue with fewer workers keep those that are not needed, the first by rank."""
        surplus, found = len(free) - size, dict(chosen)
        for fit, part in reversed(list(chosen.items())):
            if not self._can_shrink(fit):
                continue
            useful = [name for name in part.names if name in free]
            names = tuple(useful[max(0, surplus) :])
            kept = tuple(name for name in part.names if name not in names)
            if kept:
                found[fit] = HandOver(part.to, names, kept)
                surplus -= len(useful) - len(names)
        return found

    def _can_shrink(self, fit: str) -> bool:
        request = self.admission.granted[fit]
        shrinks = self.declared.get(fit, Preemptible()).shrinks
        return shrinks and request.n_ranks is None and request.memory is None
