"""Conversion between class codes and the targets and scores of a loss."""

from collections.abc import Sequence

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.losses.base import Loss

_SHOWN = 10


def check_classes(loss: Loss, classes: Sequence[object]) -> None:
    """Raise SpecError when the loss has costs of another number of classes."""
    if loss.costs is None or len(loss.costs) == len(classes):
        return
    shown = ", ".join(map(str, classes[:_SHOWN])) + (", ..." if len(classes) > _SHOWN else "")
    raise SpecError(
        f"got costs of {len(loss.costs)} classes for the {loss.name} loss, but the rows have {len(classes)}: {shown}; "
        "give a row and a column of costs for each, in this order"
    )


def n_outputs(loss: Loss, n_classes: int) -> int:
    """Return c: one score a class, or a single one for two classes under a one-vs-rest loss."""
    return 1 if n_classes == 2 and not loss.joint else n_classes


def encode(loss: Loss, codes: Array, n_classes: int, dtype: str) -> Array:
    """Return targets (m, c) for class codes (m,): -1/+1 one-vs-rest, or one-hot for a joint loss."""
    xp = namespace_of(codes)
    low = 0 if loss.joint else -1
    if n_outputs(loss, n_classes) == 1:
        return xp.where(codes[:, None] == 1, 1, low).astype(dtype)
    return xp.where(codes[:, None] == xp.arange(n_classes)[None, :], 1, low).astype(dtype)


def decode(scores: Array) -> Array:
    """Return class codes (m,) for scores (m, c): the sign of a single score, else the largest."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype("int64")
    return scores.argmax(axis=1)


def best_of(scores: Array, each: int) -> Array:
    """Return for scores (m, c b) the largest of the `each` = b of every output, (m, c)."""
    return scores if each == 1 else scores.reshape(len(scores), -1, each).max(axis=2)
