"""The decision whether to re-form a gang with workers that have joined the cluster."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_SETTLE_S = 3.0
"""How long a gang waits for further workers after one has joined; longer if forming it takes longer."""
_LONGEST_WAIT = 10.0
"""How many times as long it waits at most, when workers keep joining."""
_SHARE = 20.0
"""Least time between two growths, as a multiple of the cost of one: they take at most a twentieth of the time."""


@dataclass(frozen=True)
class Prospects:
    """The prospects of a fit: seconds until it ends with its present workers, and seconds that forming a gang takes.

    `left_s` is infinite where the number of epochs is unknown, and NaN before the pace is known.
    """

    left_s: float = math.inf
    cost_s: float = 0.0


@dataclass
class GrowthPolicy:
    """Decides when a gang grows, over all generations of one supervisor."""

    clock: Callable[[], float] = time.monotonic
    _joined: dict[str, float] = field(default_factory=dict, init=False)
    _grown: float = field(default=-math.inf, init=False)

    def is_worthwhile(self, joinable: Sequence[str], size: int, prospects: Callable[[], Prospects]) -> bool:
        """Return whether to form a gang of `size` ranks again with the workers `joinable`, in addition to its own.

        No earlier than after some seconds in which no other worker joins; if the time that these workers are expected
        to save, ``left_s * k / (size + k)`` for k of them, exceeds the cost; and some time after the last growth.

        Parameters
        ----------
        prospects
            Returns the prospects of the fit. Called only when they matter.
        """
        now = self.clock()
        self._joined = {address: self._joined.get(address, now) for address in joinable}
        if not self._settled(now, _SETTLE_S):
            return False
        found = prospects()
        saved_s = found.left_s * len(joinable) / (size + len(joinable))
        rested = now - self._grown >= _SHARE * found.cost_s
        return rested and saved_s > found.cost_s and self._settled(now, max(_SETTLE_S, found.cost_s))

    def grown(self) -> None:
        """Record that the gang grows now."""
        self._grown = self.clock()
        self._joined = {}

    def _settled(self, now: float, settle_s: float) -> bool:
        """Return whether there are workers, and none has joined for `settle_s`, or the first is there for long."""
        if not self._joined:
            return False
        first, last = min(self._joined.values()), max(self._joined.values())
        return now - last >= settle_s or now - first >= _LONGEST_WAIT * settle_s
