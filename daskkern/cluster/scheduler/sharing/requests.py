"""What fits request of admission, and what it answers, independent of a cluster."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Place:
    """A worker: its name, and its memory limit in bytes; 0 for no limit."""

    name: str
    memory_limit: int = 0

    def room(self) -> float:
        """Return the bytes of memory that fits may use together, infinity for no limit."""
        return self.memory_limit or math.inf


@dataclass(frozen=True)
class WorkerRequest:
    """The request of a fit for workers.

    Attributes
    ----------
    fit : str
    since : float
        Time of submission, which orders the queue among fits of one priority.
    n_ranks : int or None
        Number of workers; None is all that are allowed.
    allowed : tuple of str or None
        Names of the workers that it may use, in order of preference; None is all.
    memory : int or None
        Bytes that it declares for each of its ranks, to share workers with other fits that do; None is exclusive use.
    priority : int
        Higher ones come first.
    user : str
        Whose quota counts.
    excluded : frozenset of Place
        Workers that it cannot use: they have too little memory for a part of it. One that comes back by the same name
        with another limit is not among them.
    """

    fit: str
    since: float
    n_ranks: int | None = None
    allowed: tuple[str, ...] | None = None
    memory: int | None = None
    priority: int = 0
    user: str = ""
    excluded: frozenset[Place] = frozenset()

    @property
    def turn(self) -> tuple[int, float, str]:
        """What orders the queue."""
        return -self.priority, self.since, self.fit

    def without(self, small: Iterable[Place], places: Sequence[Place]) -> "WorkerRequest | None":
        """Return the request without these workers, and of no more than are left; None where none is left."""
        rest = replace(self, excluded=self.excluded.union(small))
        if not rest.excluded:
            return self
        there = len(candidates_of(rest, places))
        if not there:
            return None
        return rest if rest.n_ranks is None else replace(rest, n_ranks=min(rest.n_ranks, there))


@dataclass(frozen=True)
class Verdict:
    """The names of the workers that a fit got, or the reasons why it waits.

    `ahead` are the fits that hold what it requests or have requested it for longer; `missing` is the number of workers
    that the cluster lacks; `quota` says in a sentence for which quota it waits, "" for none.
    """

    members: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    missing: int = 0
    quota: str = ""


def candidates_of(request: WorkerRequest, places: Sequence[Place]) -> list[Place]:
    """Return the places that a request may be granted, in order of preference."""
    declared = request.memory or 0
    known = {p.name: p for p in places if p not in request.excluded and p.room() >= declared}
    if request.allowed is None:
        return list(known.values())
    return [known[name] for name in request.allowed if name in known]
