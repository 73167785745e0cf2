"""Losses: one class, one file, one row in :data:`LOSSES` each."""

from dataclasses import fields, is_dataclass

from daskkern.backend.plugins import Registry, derived_from, unknown
from daskkern.errors import SpecError
from daskkern.losses.absolute import Absolute
from daskkern.losses.base import BoxDual, Curved, Dual, DualBox, Loss, Probabilistic, Smooth
from daskkern.losses.constant import best_constant, with_constant
from daskkern.losses.epsilon_insensitive import EpsilonInsensitive
from daskkern.losses.hinge import Hinge
from daskkern.losses.huber import Huber
from daskkern.losses.logistic import Logistic
from daskkern.losses.multiclass_hinge import MulticlassHinge
from daskkern.losses.multinomial_logistic import MultinomialLogistic
from daskkern.losses.quantile import Quantile
from daskkern.losses.smoothed_hinge import SmoothedHinge
from daskkern.losses.squared import Squared
from daskkern.losses.squared_epsilon_insensitive import SquaredEpsilonInsensitive
from daskkern.losses.squared_hinge import SquaredHinge
from daskkern.losses.targets import best_of, check_classes, decode, encode, n_outputs

_KNOWN: tuple[type[Loss], ...] = (
    Squared,
    SquaredHinge,
    Hinge,
    SmoothedHinge,
    MulticlassHinge,
    Logistic,
    MultinomialLogistic,
    Huber,
    Absolute,
    Quantile,
    EpsilonInsensitive,
    SquaredEpsilonInsensitive,
)


LOSSES: Registry[type[Loss]] = Registry(
    {loss.name: loss for loss in _KNOWN}, "daskkern.losses", derived_from(Loss, "daskkern.losses.Loss")
)
"""Losses by name: the table above, and the classes that installed packages offer as ``daskkern.losses``."""


def parse_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name, or `loss` itself. A parameter follows the name: ``"huber:0.5"``.

    Raises
    ------
    SpecError
        Lists the known names; says which parameters a loss has.
    """
    if isinstance(loss, Loss):
        return loss
    name, *words = loss.split(":") if isinstance(loss, str) else [str(loss)]
    if not isinstance(loss, str) or name not in LOSSES:
        raise unknown("loss", loss, name, LOSSES, default="auto")
    kind = LOSSES[name]
    names: list[str] = [item.name for item in fields(kind)] if is_dataclass(kind) else []
    if len(words) > len(names):
        has = f"takes {', '.join(names)}" if names else "has no parameter"
        raise SpecError(f"got loss {loss!r}; the {name} loss {has}")
    try:
        return kind(*(kind.parameter(word) for word in words))
    except SpecError:
        raise
    except ValueError:
        raise SpecError(f"got loss {loss!r}; write it as {kind().spec()!r}, with a number") from None


__all__ = [
    "LOSSES",
    "Absolute",
    "BoxDual",
    "Curved",
    "Dual",
    "DualBox",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "MulticlassHinge",
    "MultinomialLogistic",
    "Probabilistic",
    "Quantile",
    "Smooth",
    "SmoothedHinge",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "best_constant",
    "best_of",
    "check_classes",
    "decode",
    "encode",
    "n_outputs",
    "parse_loss",
    "with_constant",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
