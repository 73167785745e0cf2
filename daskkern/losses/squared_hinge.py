"""The squared hinge loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE, within


class SquaredHinge(Loss):
    """``max(0, 1 - y f)^2`` for y in {-1, +1}, summed over the outputs (one-vs-rest); not halved.

    References
    ----------
    Pfahler and Morik, "Nystrom-SGD", ECML PKDD 2018, section 6.1.
    """

    name: ClassVar[str] = "squared_hinge"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    smoothness: float = 2.0

    def value(self, f: Array, y: Array) -> Array:
        return (namespace_of(f).maximum(1 - y * f, 0) ** 2).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return -2 * y * namespace_of(f).maximum(1 - y * f, 0)

    def value_and_gradient(self, f: Array, y: Array) -> tuple[Array, Array]:
        short = namespace_of(f).maximum(1 - y * f, 0)
        return (short**2).sum(axis=1), -2 * y * short

    def curvature(self, f: Array, y: Array) -> Array:
        return 2 * (y * f < 1).astype(f.dtype)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def conjugate(self, slope: Array, y: Array) -> Array:
        t = y * slope
        return within(t + t**2 / 4, t <= EDGE)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return y * namespace_of(z).maximum((1 - y * z + Q * y * u) / (0.5 + Q), 0)
