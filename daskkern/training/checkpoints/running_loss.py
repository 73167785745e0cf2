"""The loss of the current epoch, which a GPU may still be computing: reading it synchronises with the GPU.

Where ranks are in groups that divide the batches, each group knows the losses of its own rows. They are added when the
loss is read, by all ranks together.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import DivergenceError
from daskkern.training.checkpoints.commits import Position

_INTERVAL_S = 0.02


@dataclass(frozen=True)
class LossOfGroup:
    """A loss of which the part `known` is that of all groups, and `own` that of the rows of this rank's group."""

    own: float | Array
    known: float = 0.0

    def __add__(self, other: "LossOfGroup") -> "LossOfGroup":
        return LossOfGroup(self.own + other.own, self.known + other.known)

    def __radd__(self, known: float) -> "LossOfGroup":
        return LossOfGroup(self.own, known + self.known)


class LossReads:
    """Decides after which batches to wait for a loss that a GPU computes.

    That is every `batches` of them, but not more often than 50 times a second. Groups add their losses when they read
    them, and thus go by the number of batches alone.
    """

    def __init__(self, batches: int, across: Communicator) -> None:
        self._batches, self._by_time = batches, across.size == 1
        self._next = 0.0

    def due(self, batch: int) -> bool:
        """Return whether to read the loss after this number of batches of an epoch."""
        now = time.perf_counter()
        if batch % self._batches or (self._by_time and now < self._next):
            return False
        self._next = now + _INTERVAL_S
        return True


def of_group(loss: Any, across: Communicator) -> Any:
    """Return a loss of rows of this group so that it is added to those of the others, where there are groups."""
    return loss if across.size == 1 else LossOfGroup(loss)


def is_known(loss: Any) -> bool:
    """Return whether the loss is a number of the host, that of all rows."""
    return not isinstance(loss, LossOfGroup) and namespace_of(loss) is np


def with_known_loss(position: Position, across: Communicator) -> Position:
    """Return the position with its loss as a number. A collective of `across`, where that has several groups.

    Raises
    ------
    DivergenceError
        When it came from a GPU or from groups, and is not finite.
    """
    loss: Any = position.loss
    if is_known(loss):
        return position
    if isinstance(loss, LossOfGroup):
        loss = loss.known + across.allreduce(np.array([float(to_host(loss.own))]))[0]
    position = replace(position, loss=float(loss))
    check_loss(position.loss, position)
    return position


def check_loss(loss: float, position: Position) -> None:
    """Raise DivergenceError when the loss of a batch, or of some batches up to `position`, is not finite."""
    if not np.isfinite(loss):
        raise DivergenceError(
            f"the loss became {loss} in epoch {position.epoch}, batch {position.batch}: the iteration "
            "diverged; take a smaller batch_size, a larger kernel length scale or alpha, or scaled features"
        )
