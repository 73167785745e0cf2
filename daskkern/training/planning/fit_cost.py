"""The cost of a fit on a shared cluster: its workers, times the time that it holds them."""

import math
from dataclasses import dataclass

_LEAST = 0.001
_HOUR_S = 3600.0


@dataclass(frozen=True)
class FitCost:
    """The workers that a fit holds, and the expected seconds for which it does, set-up included.

    Attributes
    ----------
    workers : int
        One for each rank; 1 for a fit in one process.
    seconds : float
        Infinite where unknown.
    on_gpus : bool
        Whether each worker has a GPU for the fit.
    limit_s : float
        Seconds after which the fit ends in any case; infinite without a limit.
    """

    workers: int
    seconds: float
    on_gpus: bool = False
    limit_s: float = math.inf

    @property
    def hours(self) -> float:
        """Worker-hours, or GPU-hours; infinite where neither time nor limit is known."""
        return self.workers * min(self.seconds, self.limit_s) / _HOUR_S

    @property
    def is_limit(self) -> bool:
        """Whether the limit decides, so that the fit may cost less."""
        return self.limit_s < self.seconds

    def in_words(self) -> str:
        """Return one line on the cost."""
        unit, each = ("GPU-hours", "GPU") if self.on_gpus else ("worker-hours", "worker")
        who = f"{self.workers:,} {each}{'s' * (self.workers != 1)}"
        if math.isinf(self.hours):
            return f"cost: {who} for as long as the fit takes; --max-seconds limits the {unit}"
        most = "at most " if self.is_limit else "about "
        limit = ", the limit of --max-seconds" if self.is_limit else ""
        hours = f"{most}{_number(self.hours)}" if self.hours >= _LEAST else f"less than {_LEAST}"
        return f"cost: {hours} {unit}: {who} for {_time(min(self.seconds, self.limit_s))}{limit}"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _time(seconds: float) -> str:
    for unit, size in (("h", _HOUR_S), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_number(seconds)} s"
