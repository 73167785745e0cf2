"""Losses: one class, one file, one row in :data:`LOSSES` each."""

import difflib

from daskkern.errors import SpecError
from daskkern.losses.base import Curved, Loss, Probabilistic, Smooth, require
from daskkern.losses.hinge import Hinge
from daskkern.losses.logistic import Logistic
from daskkern.losses.multinomial_logistic import MultinomialLogistic
from daskkern.losses.squared import Squared
from daskkern.losses.squared_hinge import SquaredHinge
from daskkern.losses.targets import decode, encode, n_outputs

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Squared, SquaredHinge, Hinge, Logistic, MultinomialLogistic)
}


def parse_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name (or `loss` itself); SpecError lists the known names."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    close = difflib.get_close_matches(str(loss), LOSSES, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise SpecError(f"loss {loss!r} is unknown{hint} Known losses: {', '.join(LOSSES)}")


__all__ = [
    "LOSSES",
    "Curved",
    "Hinge",
    "Logistic",
    "Loss",
    "MultinomialLogistic",
    "Probabilistic",
    "Smooth",
    "Squared",
    "SquaredHinge",
    "decode",
    "encode",
    "n_outputs",
    "parse_loss",
    "require",
]
