"""The time budget of a search: time spent, time left, and the predicted time of the next trials."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from daskkern.backend.python_numbers import python_number
from daskkern.errors import SpecError

_MARGIN = 1.5  # predictions are extrapolated from fewer rows, on a machine that others may use
_LEAST_S, _MOST_S = 300.0, 600.0


@dataclass
class Budget:
    """Seconds that a search may take, on a clock.

    Attributes
    ----------
    seconds : float or None
        Of search and final fit together; None limits the search only, see :meth:`left`.
    clock : callable
        Returns seconds.
    fit_seconds : float
        What the final fit will probably take; unknown, 0, at first.
    """

    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    fit_seconds: float = 0.0
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.seconds = python_number(self.seconds)
        number = self.seconds is None or (isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool))
        if not number or (self.seconds is not None and not self.seconds > 0):
            raise SpecError(f"got max_seconds={self.seconds!r}; expected a positive number of seconds, or None")
        self.begun = self.clock()

    @property
    def spent(self) -> float:
        """Seconds since the search began."""
        return self.clock() - self.begun

    def left(self) -> float:
        """Return the seconds that are left for the search.

        With a limit, what the final fit leaves of it. Without one, a search takes as long as the final fit, but 5
        minutes where that is less and 10 minutes where it is more: then it doubles at most the time of a long fit, and
        small tables are searched to the end, on a slow machine or one that others use, too.
        """
        if self.seconds is None:
            return min(max(self.fit_seconds, _LEAST_S), _MOST_S) - self.spent
        return self.seconds - _MARGIN * self.fit_seconds - self.spent

    def allows(self, seconds: float) -> bool:
        """Return whether trials that take about so many seconds fit into what is left."""
        return _MARGIN * seconds <= self.left() and self.left() > 0

    def for_fit(self) -> float | None:
        """Return the seconds after which the final fit has to end, or None.

        At least a tenth of the limit, and up to half of it if the fit probably takes so long: where the start of the
        search alone has used up the time, a fit of no epoch would be worth nothing.
        """
        if self.seconds is None:
            return None
        least = max(0.1 * self.seconds, min(_MARGIN * self.fit_seconds, 0.5 * self.seconds))
        return max(self.seconds - self.spent, least)
