"""The loss of an epoch so far, which a GPU may still be computing: reading it waits for all that the GPU was given."""

from dataclasses import replace

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DivergenceError
from daskkern.training.checkpoints.commits import Position


def is_known(loss: float | Array) -> bool:
    """Return whether the loss is a number of the host."""
    return namespace_of(loss) is np


def with_known_loss(position: Position) -> Position:
    """Return the position with its loss as a number.

    Raises
    ------
    DivergenceError
        When it came from a GPU and is not finite.
    """
    if is_known(position.loss):
        return position
    position = replace(position, loss=float(position.loss))
    check_loss(position.loss, position)
    return position


def check_loss(loss: float, position: Position) -> None:
    """Raise DivergenceError when the loss of a batch, or of some batches up to `position`, is not finite."""
    if not np.isfinite(loss):
        raise DivergenceError(
            f"the loss became {loss} in epoch {position.epoch}, batch {position.batch}: the iteration "
            "diverged; take a smaller batch_size, a larger kernel length scale or alpha, or scaled features"
        )
