"""Activation functions of one projection of a row: the columns of random-feature models."""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any, ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.formula import Expression, Pair, cos, exp, maximum, sqrt
from daskkern.kernels.points import Left, Points
from daskkern.kernels.rows import as_rows, with_ones

_TINY = 1e-30
_ROOT2 = 2**0.5

ACTIVATIONS: dict[str, Callable[[Expression], Expression]] = {
    "fourier": lambda t: _ROOT2 * cos(t - pi / 4),
    "step": lambda t: _ROOT2 * (maximum(t, 0) / maximum(sqrt(t * t), _TINY)),
    "relu": lambda t: _ROOT2 * maximum(t, 0),
    "relu2": lambda t: _ROOT2 * (maximum(t, 0) * maximum(t, 0)),
    "projection": lambda t: t,
    "sigmoid": lambda t: 1 / (1 + exp(-t)),
    "tanh": lambda t: 1 - 2 / (1 + exp(2 * t)),
}


@dataclass(frozen=True)
class Neuron(Kernel):
    """``phi(x; w) = activation(x . w) / width^(1/2)``: a column of a basis, not a kernel; its points are the weights w.

    ``sum_j phi(x; w_j) phi(z; w_j)`` over random w approximates a kernel. "fourier" is ``cos t + sin t``, whose columns
    come in pairs w and -w: ``(cos a + sin a)(cos b + sin b) + (cos a - sin a)(cos b - sin b) = 2 cos(a - b)``, the
    same as a pair of a cosine and a sine. "step", "relu" and "relu2" are the units of the arc-cosine kernels, and
    "projection" is a random projection, whose kernel is the linear one.

    Parameters
    ----------
    activation : {"fourier", "step", "relu", "relu2", "projection", "sigmoid", "tanh"}
        The function of a neuron.
    width : int
        Columns in all.
    bias : bool
        The last entry of w is added to ``x . w`` of the others.
    """

    name: ClassVar[str] = "neuron"

    activation: str = "fourier"
    width: int = 1
    bias: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise SpecError(f"got activation {self.activation!r}; choose one of {', '.join(ACTIVATIONS)}")
        if isinstance(self.width, bool) or int(self.width) < 1:
            raise SpecError(f"got width={self.width!r} for random features; give a whole number of at least 1")
        object.__setattr__(self, "width", int(self.width))
        object.__setattr__(self, "bias", bool(self.bias))

    def formula(self, pair: Pair) -> Expression:
        return ACTIVATIONS[self.activation](pair.inner) * self.width**-0.5

    def spec(self) -> Spec:
        return {"name": self.name, "activation": self.activation, "width": self.width, "bias": int(self.bias)}

    def features_of(self, points: Array) -> int:
        return int(points.shape[1]) - self.bias

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of a random-feature model by its rows; see the base class.

        Raises
        ------
        SpecError
            For steps, whose gradients are 0 wherever they have any.
        """
        if self.activation == "step":
            raise SpecError("a model of steps is constant between its jumps and has no gradients")
        if not self.bias:
            return super().gradient_matvec(X, Z, A, weights)
        return super().gradient_matvec(_with_ones(as_rows(X)), Z, A, weights)[:, :, :-1]

    def left(self, X: Array, right: Points) -> Left:
        return super().left(_with_ones(as_rows(X, right.dtype)) if self.bias else X, right)


def _with_ones(X: Array) -> Any:
    if is_sparse(X):
        return with_ones(X, X.shape[1], X.shape[1] + 1)
    xp = namespace_of(X)
    return xp.concatenate([X, xp.ones((X.shape[0], 1), X.dtype)], axis=1)
