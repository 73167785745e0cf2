"""What a worker keeps of a fit while gangs come and go: its last commit."""

import threading
from dataclasses import dataclass

from daskkern.arrays import HostArray


@dataclass(frozen=True, eq=False)
class CachedCommit:
    """A commit as bytes (uint8), how many steps it is the state after, and the epoch of the gang that made it."""

    steps: int
    data: HostArray
    epoch: int


class CommitCache:
    """Holds one commit, the latest. Thread-safe. `epoch` is that of the gang that runs."""

    def __init__(self) -> None:
        self.epoch = 0
        self._lock = threading.Lock()
        self._kept: CachedCommit | None = None
        self.committed = -1
        """Epoch of the gang that made the last commit, wherever it is kept; -1 for none."""

    @property
    def latest(self) -> CachedCommit | None:
        """The commit after the most steps, or None."""
        return self._kept

    def mark(self) -> None:
        """Note that the gang that runs has made a commit that outlives it."""
        self.committed = max(self.committed, self.epoch)

    def put(self, steps: int, data: HostArray) -> None:
        """Keep a commit, unless a later one is here."""
        with self._lock:
            if self._kept is None or self._kept.steps <= steps:
                self._kept = CachedCommit(steps, data, self.epoch)
                self.mark()
