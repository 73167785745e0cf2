"""Intervals between marks of a clock: of the host, or of the stream that a GPU works on."""

from array import array as packed
from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Protocol


class Stopwatch(Protocol):
    """What marks moments, and tells the seconds between two of them."""

    @property
    def behind(self) -> int:
        """Number of intervals that may be pending: the end of one may not have come yet."""

    def mark(self) -> Any:
        """Return the present moment."""

    def seconds(self, begun: Any, ended: Any) -> float:
        """Return the seconds between two moments. Waits until the second one has come."""


class StreamClock:
    """The clock of a GPU's current stream: a moment is when the stream has done what it was given before.

    Parameters
    ----------
    xp : module
        CuPy.
    """

    behind = 512

    def __init__(self, xp: ModuleType) -> None:
        self._cuda = xp.cuda

    def mark(self) -> Any:
        moment = self._cuda.Event()
        moment.record()
        return moment

    def seconds(self, begun: Any, ended: Any) -> float:
        ended.synchronize()
        return float(self._cuda.get_elapsed_time(begun, ended)) / 1e3


class Intervals:
    """Intervals by what they were spent on: those of "work" one by one, and totals of the others.

    Parameters
    ----------
    clock : Stopwatch
    """

    def __init__(self, clock: Stopwatch) -> None:
        self._clock = clock
        self._pending: deque[tuple[str, Any, Any]] = deque()
        self._clear()

    def _clear(self) -> None:
        self._totals = {"blocked": 0.0, "reading": 0.0, "checkpointing": 0.0}
        self._work = packed("d")

    def add(self, kind: str, begun: Any, ended: Any) -> None:
        """Add an interval of the given kind."""
        self._pending.append((kind, begun, ended))
        self._read_all_but(self._clock.behind)

    def read(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the seconds in collectives, reading and checkpointing, and those of each work, and reset them."""
        self._read_all_but(0)
        totals, work = tuple(self._totals.values()), self._work
        self._clear()
        return totals, work

    def _read_all_but(self, most: int) -> None:
        while len(self._pending) > most:
            kind, begun, ended = self._pending.popleft()
            seconds = self._clock.seconds(begun, ended)
            if kind == "work":
                self._work.append(seconds)
            else:
                self._totals[kind] += seconds
