"""What is wished of a run while it runs, agreed on by all of its ranks."""

from dataclasses import dataclass

import numpy as np

from daskkern.backend.communicator import Communicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.training.checkpoints.checkpointing import Checkpointing


@dataclass(frozen=True)
class ControlSignals:
    """Whether to `stop`, since it is `late` or at somebody's wish; to `commit`; and to `regroup` after that.

    `seconds` is what the first rank's clock says that the run has taken.
    """

    seconds: float = 0.0
    stop: bool = False
    late: bool = False
    commit: bool = False
    regroup: bool = False


def agree(
    comm: Communicator, context: RankContext, checkpointing: Checkpointing, seconds: float, limit_s: float
) -> ControlSignals:
    """Return what any rank wishes after `seconds`; commits and time are the first rank's matter. A collective."""
    first = comm.rank == 0
    mine = (context.should_stop(), context.should_regroup(), first and checkpointing.due(), seconds if first else 0.0)
    *signals, seconds = comm.allreduce(np.array(mine, float)).tolist()
    stop, regroup, due = (count > 0 for count in signals)
    late, regroup = seconds > limit_s, regroup and checkpointing.outlives
    return ControlSignals(seconds, stop or late, late, regroup or due, regroup)
