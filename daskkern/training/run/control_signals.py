"""Control signals of a running fit - stop, commit, regroup - on which all ranks agree."""

from dataclasses import dataclass
from math import inf

import numpy as np

from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.training.checkpoints.checkpointing import Checkpointing

REGROUPING = "regrouping"
"""The reason of epochs that have not ended: another gang continues from the commit."""

_INTERRUPTED, _LATE = "interrupted", "max_seconds"
STOPPED = (_INTERRUPTED, _LATE)
"""Reasons of epochs that were stopped early, with the model so far."""


@dataclass(frozen=True)
class ControlSignals:
    """Whether to `stop`, on request or because the run is `late`; to `commit`; and to `regroup` after that.

    `seconds` is the time that the run has taken by the clock of rank 0.
    """

    seconds: float = 0.0
    stop: bool = False
    late: bool = False
    commit: bool = False
    regroup: bool = False

    @property
    def reason(self) -> str:
        """Why the run stops; "" where it goes on."""
        return "" if not self.stop else _LATE if self.late else _INTERRUPTED


@dataclass
class TimeLimit:
    """The seconds that a run may take over all of its gangs, and those that its steps have in any case.

    `least_s` counts from when the first batch is there: a model without a step is worth nothing.
    """

    seconds: float = inf
    least_s: float = 0.0
    _until: float | None = None

    def begin(self, taken_s: float, steps: int) -> None:
        """Take note that a batch is there after `taken_s` and `steps`; only the first call counts."""
        if self._until is None:
            self._until = self.seconds if steps else max(self.seconds, taken_s + self.least_s)

    def is_over(self, taken_s: float) -> bool:
        """Return whether a run that has taken `taken_s` must end."""
        return taken_s > (self.seconds if self._until is None else self._until)


def agree(
    comm: Communicator, context: RankContext, checkpointing: Checkpointing, seconds: float, limit: TimeLimit
) -> ControlSignals:
    """Return the signals of any rank after `seconds`; rank 0 decides on commits and time. A collective."""
    first = comm.rank == 0
    clock = -seconds if limit.is_over(seconds) else seconds  # one number tells both
    of_first = (checkpointing.due(), clock) if first else (0, 0)
    mine = (context.should_stop(), context.should_regroup(), *of_first)
    *signals, clock = comm.allreduce(np.array(mine, float)).tolist()
    stop, regroup, due = (count > 0 for count in signals)
    late, seconds, regroup = clock < 0, abs(clock), regroup and checkpointing.outlives
    return ControlSignals(seconds, stop or late, late, regroup or due, regroup)
