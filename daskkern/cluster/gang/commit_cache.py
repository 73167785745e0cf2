"""The cache of a fit's last commit on a worker, which outlives the gangs."""

import threading
from dataclasses import dataclass, field
from typing import Any

from daskkern.arrays import HostArray


@dataclass(frozen=True, eq=False)
class CachedCommit:
    """A commit as bytes (uint8), the number of steps it follows, and the generation of the gang that made it."""

    steps: int
    data: HostArray
    generation: int


@dataclass(eq=False)
class _Shared:
    """What all generations of a fit see."""

    generation: int = 0
    kept: CachedCommit | None = None
    committed: int = -1
    contributed: bool = False
    lock: Any = field(default_factory=threading.Lock)


class CommitCache:
    """A thread-safe cache of the latest commit.

    The rank of a generation has its own view of it, :meth:`of_generation`, which takes nothing more once a later
    generation has begun: the earlier rank may still run.
    """

    def __init__(self) -> None:
        self._shared = _Shared()
        self._own: int | None = None

    def of_generation(self, generation: int) -> "CommitCache":
        """Return the view of the rank of `generation`."""
        view = CommitCache()
        view._shared, view._own = self._shared, generation
        return view

    def begin(self, generation: int) -> None:
        """Record that `generation` runs from now on."""
        with self._shared.lock:
            self._shared.generation = generation

    @property
    def latest(self) -> CachedCommit | None:
        """The commit after the most steps, or None."""
        return self._shared.kept

    @property
    def committed(self) -> int:
        """Generation of the gang that made the last commit, wherever it is stored; -1 for none."""
        return self._shared.committed

    @property
    def contributed(self) -> bool:
        """Whether a rank of this worker was in a gang when it made a commit, whichever ranks hold it."""
        return self._shared.contributed

    def contribute(self) -> None:
        """Record that the rank's gang makes a commit."""
        self._shared.contributed = True

    def mark(self) -> None:
        """Record that the running gang has made a commit that outlives it."""
        with self._shared.lock:
            self._mark()

    def put(self, steps: int, data: HostArray) -> None:
        """Cache a commit, unless a later one is already cached."""
        shared = self._shared
        with shared.lock:
            if self._is_current() and (shared.kept is None or shared.kept.steps <= steps):
                shared.kept = CachedCommit(steps, data, shared.generation)
                self._mark()

    def _mark(self) -> None:
        if self._is_current():
            self._shared.committed = max(self._shared.committed, self._shared.generation)

    def _is_current(self) -> bool:
        return self._own in (None, self._shared.generation)
