"""Detection of silent workers, from their heartbeats at the scheduler."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_INTERVALS = 3.0
"""A worker is silent after this many missed heartbeats at the earliest: a thousand workers send one every 6 s."""


@dataclass
class HeartbeatMonitor:
    """Detects workers that have been silent for long, from the time of the last heartbeat that the scheduler saw.

    Only changes count, measured on this process's own clock: the scheduler's may be another one. While no heartbeat of
    `own`, the worker of this process, arrives, the scheduler itself is slow, and no worker counts as silent. Nor does
    the time count in which the scheduler left a question unanswered: it did not take heartbeats either.
    """

    silence_s: float
    own: str
    clock: Callable[[], float] = time.monotonic
    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)
    _looked: float = math.inf
    _interval_s: float = 0.0

    @property
    def patience_s(self) -> float:
        """Seconds without a heartbeat after which a worker is silent: `silence_s`, more in a large cluster."""
        return max(self.silence_s, _INTERVALS * self._interval_s)

    def silent(self, workers: Mapping[str, Mapping[str, Any]], interval_s: float = 0.0) -> set[str]:
        """Return the addresses without a heartbeat for `patience_s`, where one is due every `interval_s`."""
        now, self._interval_s = self.clock(), interval_s
        if now - self._looked > self.patience_s / 3:
            unknown_s = now - self._looked
            self._heard = {address: (seen, at + unknown_s) for address, (seen, at) in self._heard.items()}
        self._looked = now
        for address, worker in workers.items():
            seen = float(worker.get("last_seen", 0.0))
            if address not in self._heard or self._heard[address][0] != seen:
                self._heard[address] = (seen, now)
        quiet = {address for address in workers if now - self._heard[address][1] > self.patience_s}
        own = self._heard.get(self.own)
        return set() if own is not None and now - own[1] > self.patience_s / 3 else quiet

    def mark_silent(self, addresses: Iterable[str]) -> None:
        """Count these workers as silent until the scheduler receives their next heartbeat."""
        for address in addresses:
            if address in self._heard:
                self._heard[address] = (self._heard[address][0], -math.inf)
