"""What a loss is: value and gradient per sample, for scores and targets of shape (m, c).

Optional abilities are small protocols beside the contract (:class:`Smooth`, :class:`Probabilistic`); a solver
that needs one asks :func:`require`, whose refusal names both parties.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from daskkern.arrays import Array
from daskkern.errors import SpecError

Ability = TypeVar("Ability")


class Loss(ABC):
    """A convex loss of scores f and targets y, both (m, c). Stateless: two of one class are interchangeable."""

    name: ClassVar[str]
    tasks: ClassVar[frozenset[str]]
    """Which of "classification" and "regression" the loss is for."""
    joint: ClassVar[bool] = False
    """True when one score a class enters a single loss; False for one-vs-rest sums over the outputs."""

    @abstractmethod
    def value(self, f: Array, y: Array) -> Array:
        """Return the loss of each sample, shape (m,): the sum over its outputs, not averaged, not weighted."""

    @abstractmethod
    def gradient(self, f: Array, y: Array) -> Array:
        """Return the derivative (or a subgradient) with respect to `f`, shape (m, c), one row a sample."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@runtime_checkable
class Smooth(Protocol):
    """A loss whose gradient is Lipschitz in the scores."""

    smoothness: float
    """The Lipschitz constant L of the gradient."""


@runtime_checkable
class Curved(Protocol):
    """A loss with a second derivative (where it has kinks in the first, one of its limits), for Newton's method."""

    def curvature(self, f: Array, y: Array) -> Array:
        """Return the second derivative with respect to each score, (m, c), 0 or more."""
        ...

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        """Return the second derivative, a (c, c) matrix a row, times `v` (m, c)."""
        ...


@runtime_checkable
class Probabilistic(Protocol):
    """A loss whose scores have a reading as class probabilities."""

    def probabilities(self, f: Array) -> Array:
        """Return class probabilities (m, n_classes), each row summing to 1, for scores (m, c)."""
        ...


def require(loss: Loss, ability: type[Ability], asker: str, what: str) -> Ability:
    """Return `loss` as one that has `ability`, or raise a SpecError naming `asker`, the loss and `what` it lacks."""
    if not isinstance(loss, ability):
        raise SpecError(f"{asker} needs a loss with {what}, and the {loss.name} loss has none; choose another loss")
    return loss
