"""Which fits run where, and which wait: the rules alone, without a cluster.

A fit asks for workers and gets them all at once or none, so that two fits can never hold what the other waits for.
It holds them by *name*: a worker that is restarted keeps its name, and thereby its place. Fits wait in the order in
which they were submitted; one that wants other workers than those before it goes first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """A worker: its name, and how many bytes it may use; 0 where that is not limited."""

    name: str
    memory_limit: int = 0


@dataclass(frozen=True)
class WorkerRequest:
    """What a fit asks for.

    Attributes
    ----------
    fit : str
    since : float
        When it was submitted: the order of the queue.
    n_ranks : int or None
        How many workers; None is all that are allowed.
    allowed : tuple of str or None
        Names of the workers that it may use, in the order of its choice; None is all.
    memory : int or None
        Bytes that it declares for each of its ranks, to share workers with other fits that do; None wants them alone.
    """

    fit: str
    since: float
    n_ranks: int | None = None
    allowed: tuple[str, ...] | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Verdict:
    """The names of the workers that a fit got, or what it waits for.

    `ahead` are the fits that hold what it wants or ask for it since longer; `missing` is how many workers more the
    cluster would need.
    """

    members: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    missing: int = 0


@dataclass
class Admission:
    """Who holds which workers, and who waits."""

    waiting: dict[str, WorkerRequest] = field(default_factory=dict)
    granted: dict[str, WorkerRequest] = field(default_factory=dict)
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the workers of each fit that runs, in rank order."""

    def ask(self, wish: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Ask, or ask again. A fit that was granted workers keeps them, whatever it asks."""
        if wish.fit not in self.held:
            self.waiting[wish.fit] = wish
            self._grant(places)
        return self.look(wish, places)

    def look(self, wish: WorkerRequest, places: Sequence[Place]) -> Verdict:
        """Return what a fit holds or waits for. Nothing changes."""
        if wish.fit in self.held:
            return Verdict(self.held[wish.fit])
        wanted = {place.name for place in _candidates(wish, places)}
        return Verdict((), tuple(self._ahead(wish, wanted, places)), _missing(wish, places))

    def take(self, fit: str, names: Sequence[str], places: Sequence[Place]) -> bool:
        """Let `fit` hold these workers in place of those that it held; False, and nothing changes, if it may not."""
        wish = self.granted.get(fit)
        known = {place.name: place for place in places}
        barred = self.barred(fit, places)
        if wish is None or any(name not in known or name in barred for name in names):
            return False
        self.held[fit] = tuple(names)
        return True

    def barred(self, fit: str, places: Sequence[Place]) -> set[str]:
        """Return the names of the workers that `fit` may not use now: others use them, or wait for them. All of them,
        when it was not admitted."""
        wish = self.granted.get(fit)
        if wish is None:
            return {place.name for place in places}
        wanted = {place.name for other in self.waiting.values() for place in _candidates(other, places)}
        own = set(self.held[fit])
        return {
            place.name
            for place in places
            if not self._free(place, wish) or (place.name in wanted and place.name not in own)
        }

    def release(self, fit: str) -> None:
        """Let go of what `fit` holds or waits for."""
        for table in (self.waiting, self.granted, self.held):
            table.pop(fit, None)

    @property
    def busy(self) -> set[str]:
        """The names of all workers that are held."""
        return {name for names in self.held.values() for name in names}

    def _grant(self, places: Sequence[Place]) -> None:
        """Give every fit its workers whose turn it is."""
        reserved: set[str] = set()
        for wish in sorted(self.waiting.values(), key=lambda wish: (wish.since, wish.fit)):
            candidates = _candidates(wish, places)
            size = wish.n_ranks or len(candidates)
            if not candidates or size > len(candidates):
                continue  # it waits for workers to come, and holds nobody up until then
            free = [place.name for place in candidates if place.name not in reserved and self._free(place, wish)]
            if len(free) < size:
                reserved |= {place.name for place in candidates}
                continue
            self.held[wish.fit] = tuple(free[:size])
            self.granted[wish.fit] = self.waiting.pop(wish.fit)

    def _free(self, place: Place, wish: WorkerRequest) -> bool:
        """Return whether `wish` may use `place`, besides the fits that do."""
        others = [self.granted[fit] for fit, names in self.held.items() if fit != wish.fit and place.name in names]
        if not others:
            return wish.memory is None or not place.memory_limit or wish.memory <= place.memory_limit
        if wish.memory is None or any(other.memory is None for other in others):
            return False
        declared = wish.memory + sum(other.memory or 0 for other in others)
        return not place.memory_limit or declared <= place.memory_limit

    def _ahead(self, wish: WorkerRequest, wanted: set[str], places: Sequence[Place]) -> Iterable[str]:
        known: Mapping[str, Place] = {place.name: place for place in places}
        for fit, names in self.held.items():
            if any(name in wanted and not self._free(known[name], wish) for name in names if name in known):
                yield fit
        for other in self.waiting.values():
            overlap = any(place.name in wanted for place in _candidates(other, places))
            if overlap and (other.since, other.fit) < (wish.since, wish.fit):
                yield other.fit


def _candidates(wish: WorkerRequest, places: Sequence[Place]) -> list[Place]:
    if wish.allowed is None:
        return list(places)
    known = {place.name: place for place in places}
    return [known[name] for name in wish.allowed if name in known]


def _missing(wish: WorkerRequest, places: Sequence[Place]) -> int:
    return max(0, (wish.n_ranks or 1) - len(_candidates(wish, places)))
