"""The loss of an epoch so far, which a GPU may still be computing: reading it waits for all that the GPU was given.

Where ranks are in groups that divide the batches, each group knows the losses of its own rows. They are added when the
loss is read, by all ranks together.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.errors import DivergenceError
from daskkern.training.checkpoints.commits import Position


@dataclass(frozen=True)
class LossOfGroup:
    """A loss of which the part `known` is that of all groups, and `own` that of the rows of this rank's group."""

    own: float | Array
    known: float = 0.0

    def __add__(self, other: "LossOfGroup") -> "LossOfGroup":
        return LossOfGroup(self.own + other.own, self.known + other.known)

    def __radd__(self, known: float) -> "LossOfGroup":
        return LossOfGroup(self.own, known + self.known)


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
