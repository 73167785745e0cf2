"""The cache of a fit's last commit on a worker, which outlives the gangs."""

import threading
from dataclasses import dataclass

from daskkern.arrays import HostArray


@dataclass(frozen=True, eq=False)
class CachedCommit:
    """A commit as bytes (uint8), the number of steps it follows, and the generation of the gang that made it."""

    steps: int
    data: HostArray
    generation: int


class CommitCache:
    """A thread-safe cache of the latest commit. `generation` is that of the running gang."""

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.Lock()
        self._kept: CachedCommit | None = None
        self.committed = -1
        """Generation of the gang that made the last commit, wherever it is stored; -1 for none."""

    @property
    def latest(self) -> CachedCommit | None:
        """The commit after the most steps, or None."""
        return self._kept

    def mark(self) -> None:
        """Record that the running gang has made a commit that outlives it."""
        self.committed = max(self.committed, self.generation)

    def put(self, steps: int, data: HostArray) -> None:
        """Cache a commit, unless a later one is already cached."""
        with self._lock:
            if self._kept is None or self._kept.steps <= steps:
                self._kept = CachedCommit(steps, data, self.generation)
                self.mark()
