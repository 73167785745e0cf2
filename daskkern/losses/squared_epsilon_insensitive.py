"""The square of the epsilon-insensitive loss."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss, check_parameter
from daskkern.losses.elementwise import soft_threshold


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """``max(0, |f - y| - epsilon)^2``, summed over the outputs; not halved.

    Parameters
    ----------
    epsilon : float
        In units of the targets as training sees them, which have mean 0 and standard deviation 1.
    """

    name: ClassVar[str] = "squared_epsilon_insensitive"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})
    smoothness: ClassVar[float] = 2.0

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_parameter(self.name, "epsilon", self.epsilon)

    def value(self, f: Array, y: Array) -> Array:
        return (soft_threshold(f - y, self.epsilon) ** 2).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return 2 * soft_threshold(f - y, self.epsilon)

    def curvature(self, f: Array, y: Array) -> Array:
        return 2 * (namespace_of(f).abs(f - y) > self.epsilon).astype(f.dtype)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def conjugate(self, slope: Array, y: Array) -> Array:
        return (slope * y + self.epsilon * namespace_of(slope).abs(slope) + slope**2 / 4).sum(axis=1)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return soft_threshold(y - z + Q * u, self.epsilon) / (0.5 + Q)
