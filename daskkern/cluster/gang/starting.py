"""Detection of ranks that do not start in time, so that the gang can be formed without their workers."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from daskkern.cluster.collectives.mailbox import OPENED, WAITING
from daskkern.cluster.gang.calls import Answers

_AGAIN_S = 1.0
EARLIER_RANK_S = 600.0
"""How long a rank may wait for the earlier one of its fit on the same worker, which is deep in a matrix product."""


@dataclass
class StartWatch:
    """Finds the ranks of a generation that have not started within `limit_s`.

    Parameters
    ----------
    limit_s : float
    addresses : sequence of str
        The workers, in rank order.
    ask : callable
        Asks the workers at the given addresses for the state of their ranks.
    """

    limit_s: float
    addresses: Sequence[str]
    ask: Callable[[Sequence[str]], Answers]
    clock: Callable[[], float] = time.monotonic
    _all_run: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._next = self._begun + self.limit_s

    def postpone(self, seconds: float) -> None:
        """Give the ranks so much more time: the scheduler was not answering, and a scheduler that does not answer
        starts nothing."""
        self._begun += seconds
        self._next += seconds

    def late(self) -> dict[int, str]:
        """Return, by rank, the addresses of the workers that have not started their ranks; {} before they are due.

        A rank that waits for the end of an earlier one is not late: its worker is needed, and is known to be alive.
        """
        now = self.clock()
        if self._all_run or now < self._next:
            return {}
        self._next = now + _AGAIN_S
        patient = now - self._begun < self.limit_s + EARLIER_RANK_S
        states = self.ask(self.addresses).values
        self._all_run = all(state not in (OPENED, WAITING) for state in states.values())
        late = [a for a, state in states.items() if state == OPENED or (state == WAITING and not patient)]
        return {rank: address for rank, address in enumerate(self.addresses) if address in late}
