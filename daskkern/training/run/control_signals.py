"""Control signals of a running fit - stop, commit, regroup - on which all ranks agree."""

from dataclasses import dataclass

import numpy as np

from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.training.checkpoints.checkpointing import Checkpointing


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


def agree(
    comm: Communicator, context: RankContext, checkpointing: Checkpointing, seconds: float, limit_s: float
) -> ControlSignals:
    """Return the signals of any rank after `seconds`; rank 0 decides on commits and time. A collective."""
    first = comm.rank == 0
    mine = (context.should_stop(), context.should_regroup(), first and checkpointing.due(), seconds if first else 0.0)
    *signals, seconds = comm.allreduce(np.array(mine, float)).tolist()
    stop, regroup, due = (count > 0 for count in signals)
    late, regroup = seconds > limit_s, regroup and checkpointing.outlives
    return ControlSignals(seconds, stop or late, late, regroup or due, regroup)
