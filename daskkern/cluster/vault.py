"""What a worker keeps of a fit while gangs come and go: its last commit."""

import threading
from dataclasses import dataclass

from daskkern.arrays import HostArray


@dataclass(frozen=True, eq=False)
class Kept:
    """A commit as bytes (uint8), how many steps it is the state after, and the epoch of the gang that made it."""

    steps: int
    data: HostArray
    epoch: int


class Vault:
    """Holds one commit, the latest. Thread-safe. `epoch` is that of the gang that runs."""

    def __init__(self) -> None:
        self.epoch = 0
        self._lock = threading.Lock()
        self._kept: Kept | None = None

    @property
    def latest(self) -> Kept | None:
        """The commit after the most steps, or None."""
        return self._kept

    def put(self, steps: int, data: HostArray) -> None:
        """Keep a commit, unless a later one is here."""
        with self._lock:
            if self._kept is None or self._kept.steps <= steps:
                self._kept = Kept(steps, data, self.epoch)
