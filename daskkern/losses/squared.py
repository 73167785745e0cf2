"""The squared loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss


class Squared(Loss):
    """``(f - y)^2 / 2``, summed over the outputs: the only loss here that is written with a half."""

    name: ClassVar[str] = "squared"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification", "regression"})
    smoothness: float = 1.0

    def value(self, f: Array, y: Array) -> Array:
        return 0.5 * ((f - y) ** 2).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return f - y

    def curvature(self, f: Array, y: Array) -> Array:
        del y
        return namespace_of(f).ones_like(f)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        del f, y
        return v

    def conjugate(self, slope: Array, y: Array) -> Array:
        return (slope * y + slope**2 / 2).sum(axis=1)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return u + (y - z - u) / (1 + Q)
