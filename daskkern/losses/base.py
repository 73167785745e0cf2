"""The base class of losses: value and gradient per sample, for scores and targets of shape (m, c).

Optional abilities are small protocols in addition to it (:class:`Smooth`, :class:`Probabilistic`); a solver names
the one that it needs in :attr:`daskkern.solvers.Solver.ability`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.nested_parameters import NestedParameters
from daskkern.errors import SpecError


class Loss(NestedParameters, ABC):
    """A convex loss of scores f and targets y, both (m, c).

    Stateless: instances of one class are interchangeable. One with parameters is a frozen dataclass of them.
    """

    name: ClassVar[str]
    tasks: ClassVar[frozenset[str]]
    """The tasks of the loss: "classification", "regression" or both."""
    joint: ClassVar[bool] = False
    """True when one score a class enters a single loss; False for one-vs-rest sums over the outputs."""
    costs: tuple[tuple[float, ...], ...] | None = None
    """The cost of each wrong class (column) for each class (row), of losses that have them; None: all the same."""

    @abstractmethod
    def value(self, f: Array, y: Array) -> Array:
        """Return the loss of each sample, shape (m,): the sum over its outputs, not averaged, not weighted."""

    @abstractmethod
    def gradient(self, f: Array, y: Array) -> Array:
        """Return the derivative (or a subgradient) with respect to `f`, shape (m, c), one row a sample."""

    def value_and_gradient(self, f: Array, y: Array) -> tuple[Array, Array]:
        """Return :meth:`value` and :meth:`gradient`, to the bit; losses whose terms are in both compute them once."""
        return self.value(f, y), self.gradient(f, y)

    @property
    def heads(self) -> int:
        """Outputs for each target of a regression; 1 but for losses that predict several numbers."""
        return 1

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The quantiles that the outputs of a target are; empty for losses of other values."""
        return ()

    def least_alpha(self, error: float, variance: float, n: int) -> float:
        """Return the least penalty that ``alpha="auto"`` may choose for `n` rows; 0 where squared errors are enough.

        Parameters
        ----------
        error : float
            Root mean square error of the mean, in units of targets of variance 1.
        variance : float
            Mean of ``k(x, x)``.
        n : int
            Training rows.
        """
        del error, variance, n
        return 0.0

    @staticmethod
    def parameter(word: str) -> Any:
        """Return the parameter that a word after the name of a loss means. ValueError for other words."""
        return float(word)

    def spec(self) -> str:
        """Return what :func:`parse_loss` reads: the name, and after it the parameters, as in ``"huber:1.0"``."""
        values: list[str] = (
            [str(float(getattr(self, item.name))) for item in fields(self)] if is_dataclass(self) else []
        )
        return ":".join([self.name, *values])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@runtime_checkable
class Smooth(Protocol):
    """A loss whose gradient is Lipschitz in the scores."""

    @property
    def smoothness(self) -> float:
        """The Lipschitz constant L of the gradient."""
        ...


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
    """A loss whose scores determine class probabilities."""

    def probabilities(self, f: Array) -> Array:
        """Return class probabilities (m, n_classes), each row summing to 1, for scores (m, c)."""
        ...


@runtime_checkable
class Dual(Protocol):
    """A loss whose conjugate is known, for dual coordinate ascent.

    A dual variable u (c,) of a row is minus a slope of the loss: at the optimum ``u = -gradient(f, y)``.
    """

    def conjugate(self, slope: Array, y: Array) -> Array:
        """Return ``sup_f (<slope, f> - value(f, y))`` of each sample, shape (m,): infinity outside its domain."""
        ...

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        """Return the dual variables (m, c) that maximise the dual in those of each row alone.

        That is ``-conjugate(-v, y) - <v - u, z> - (Q / 2) |v - u|^2`` over v, for scores `z` (m, c), dual variables `u`
        (m, c), targets `y` (m, c) and ``Q = w |x|^2 / (alpha n)`` (m, 1), positive. Float64 arrays of the host.
        """
        ...


@dataclass(frozen=True, eq=False)
class DualBox:
    """A part of the dual variables, all (m, c) float64: a box, and the slope of the conjugate there.

    The dual variable ``u`` of a row, as :class:`Dual` has it, is the sum of a variable in each box of the loss.
    """

    low: FloatArray
    high: FloatArray
    slope: FloatArray

    def of_output(self, output: int) -> "DualBox":
        """Return the part of one output, (m, 1)."""
        part = slice(output, output + 1)
        return DualBox(self.low[:, part], self.high[:, part], self.slope[:, part])


@runtime_checkable
class BoxDual(Protocol):
    """A loss with kinks and no curvature: the conjugate of minus u is linear in one box or several, infinite outside.

    What support vector machines minimise: the dual of such a loss is a quadratic function in boxes.
    """

    def dual_boxes(self, y: FloatArray) -> tuple[DualBox, ...]:
        """Return the boxes for targets (m, c), float64."""
        ...


def check_parameter(loss: str, name: str, value: object, most: float = math.inf) -> None:
    """Raise SpecError when a loss's parameter is not a number above 0 and below `most`."""
    known = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (known and 0 < float(value) < most):  # type: ignore[arg-type]
        wanted = "a positive number" if most == math.inf else f"a number between 0 and {most:g}"
        raise SpecError(f"got {name}={value!r} for the {loss} loss; give {wanted}")
