"""Admission control: the rules by which fits get workers or wait, independent of a cluster.

A fit requests workers and gets all of them or none, so that two fits can never hold what the other waits for.
It holds them by *name*: a restarted worker keeps its name, and thereby its place. Fits wait in the order of their
submission; one that needs none of the workers of those before it may start first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """A worker: its name, and its memory limit in bytes; 0 for no limit."""

    name: str
    memory_limit: int = 0


@dataclass(frozen=True)
class WorkerRequest:
    """The request of a fit for workers.

    Attributes
    ----------
    fit : str
    since : float
        Time of submission, which orders the queue.
    n_ranks : int or None
        Number of workers; None is all that are allowed.
    allowed : tuple of str or None
        Names of the workers that it may use, in order of preference; None is all.
    memory : int or None
        Bytes that it declares for each of its ranks, to share workers with other fits that do; None is exclusive use.
    """

    fit: str
    since: float
    n_ranks: int | None = None
    allowed: tuple[str, ...] | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Verdict:
    """The names of the workers that a fit got, or the reasons why it waits.

    `ahead` are the fits that hold what it requests or have requested it for longer; `missing` is the number of workers
    that the cluster lacks.
    """

    members: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    missing: int = 0


@dataclass
class Admission:
    """The state of admission: which fit holds which workers, and which fits wait."""

    waiting: dict[str, WorkerRequest] = field(default_factory=dict)
    granted: dict[str, WorkerRequest] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the workers of each running fit, in rank order."""

    def ask(self, request: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Request workers, possibly again. A fit that was granted workers keeps them, whatever it requests."""
        if request.fit not in self.held:
            self.waiting[request.fit] = request
            self._grant(places)
        return self.look(request, places)

    def look(self, request: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Return what a fit holds or waits for, without changing anything."""
        if request.fit in self.held:
            return Verdict(self.held[request.fit])
        wanted = {place.name for place in _candidates(request, places)}
        return Verdict((), tuple(self._ahead(request, wanted, places)), _missing(request, places))

    def take(self, fit: str, names: Sequence[str], places: Sequence[Place]) -> bool:
        """Assign these workers to `fit` instead of those it held; return False, changing nothing, if it may not."""
        request = self.granted.get(fit)
        known = {place.name: place for place in places}
        barred = self.barred(fit, places)
        if request is None or any(name not in known or name in barred for name in names):
            return False
        self.held[fit] = tuple(names)
        return True

    def barred(self, fit: str, places: Sequence[Place]) -> set[str]:
        """Return the names of the workers that `fit` may not use now, because other fits use them or wait for them.

        These are all workers if it was not admitted.
        """
        request = self.granted.get(fit)
        if request is None:
            return {place.name for place in places}
        wanted = {place.name for other in self.waiting.values() for place in _candidates(other, places)}
        own = set(self.held[fit])
        return {
            place.name
            for place in places
            if not self._free(place, request) or (place.name in wanted and place.name not in own)
        }

    def lacking(self, places: Sequence[Place], coming: Iterable[WorkerRequest] = ()) -> int:
        """Return how many workers more the cluster needs for all fits to run at the same time.

        A fit that requests every worker takes those that there are, and lacks one if there are none. Requests of named
        workers do not count: new ones have other names.

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
            small = any(place.memory_limit and place.memory_limit < (request.memory or 0) for place in places)
            if request.allowed is not None or small:
                continue
            wanted = (request.n_ranks or int(not places)) - len(self.held.get(request.fit, ()))
            free = [place.name for place in places if place.name not in taken and self._may_join(place, request)]
            taken |= set(free[: max(0, wanted)])
            lacking += max(0, wanted - len(free))
        return lacking

    def _may_join(self, place: Place, request: WorkerRequest) -> bool:
        return place.name not in self.held.get(request.fit, ()) and self._free(place, request)

    def release(self, fit: str) -> None:
        """Release what `fit` holds or waits for."""
        for table in (self.waiting, self.granted, self.held):
            table.pop(fit, None)

    @property
    def busy(self) -> set[str]:
        """The names of all workers that are held."""
        return {name for names in self.held.values() for name in names}

    def _grant(self, places: Sequence[Place]) -> None:
        """Assign workers to every fit whose turn it is."""
        reserved: set[str] = set()
        for request in sorted(self.waiting.values(), key=lambda request: (request.since, request.fit)):
            candidates = _candidates(request, places)
            size = request.n_ranks or len(candidates)
            if not candidates or size > len(candidates):
                continue  # it waits for workers to join, and blocks no other fit until then
            free = [place.name for place in candidates if place.name not in reserved and self._free(place, request)]
            if len(free) < size:
                reserved |= {place.name for place in candidates}
                continue
            self.held[request.fit] = tuple(free[:size])
            self.granted[request.fit] = self.waiting.pop(request.fit)

    def _free(self, place: Place, request: WorkerRequest) -> bool:
        """Return whether `request` may use `place`, in addition to the fits that use it."""
        others = [self.granted[fit] for fit, names in self.held.items() if fit != request.fit and place.name in names]
        if not others:
            return request.memory is None or not place.memory_limit or request.memory <= place.memory_limit
        if request.memory is None or any(other.memory is None for other in others):
            return False
        declared = request.memory + sum(other.memory or 0 for other in others)
        return not place.memory_limit or declared <= place.memory_limit

    def _ahead(self, request: WorkerRequest, wanted: set[str], places: Sequence[Place]) -> Iterable[str]:
        known: Mapping[str, Place] = {place.name: place for place in places}
        for fit, names in self.held.items():
            if any(name in wanted and not self._free(known[name], request) for name in names if name in known):
                yield fit
        for other in self.waiting.values():
            overlap = any(place.name in wanted for place in _candidates(other, places))
            if overlap and (other.since, other.fit) < (request.since, request.fit):
                yield other.fit


def _candidates(request: WorkerRequest, places: Sequence[Place]) -> list[Place]:
    if request.allowed is None:
        return list(places)
    known = {place.name: place for place in places}
    return [known[name] for name in request.allowed if name in known]


def _missing(request: WorkerRequest, places: Sequence[Place]) -> int:
    return max(0, (request.n_ranks or 1) - len(_candidates(request, places)))
