"""The epsilon-insensitive loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import DualBox, Loss, check_parameter
from daskkern.losses.elementwise import EDGE, soft_threshold, within


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """``max(0, |f - y| - epsilon)``, summed over the outputs: the loss of support vector regression. Not smooth.

    Parameters
    ----------
    epsilon : float
        In units of the targets as training sees them, which have mean 0 and standard deviation 1.

    References
    ----------
    Vapnik, "The Nature of Statistical Learning Theory", 1995.
    """

    name: ClassVar[str] = "epsilon_insensitive"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_parameter(self.name, "epsilon", self.epsilon)

    def value(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        return xp.maximum(xp.abs(f - y) - self.epsilon, 0).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        return xp.sign(f - y) * (xp.abs(f - y) > self.epsilon)

    def conjugate(self, slope: Array, y: Array) -> Array:
        size = namespace_of(slope).abs(slope)
        return within(slope * y + self.epsilon * size, size <= 1 + EDGE)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return namespace_of(z).clip(soft_threshold(u + (y - z) / Q, self.epsilon / Q), -1, 1)

    def dual_boxes(self, y: FloatArray) -> tuple[DualBox, ...]:
        none, ones = np.zeros_like(y), np.ones_like(y)
        return DualBox(none, ones, self.epsilon - y), DualBox(-ones, none, -self.epsilon - y)
