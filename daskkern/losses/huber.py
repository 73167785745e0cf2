"""Huber's loss."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss, check_parameter
from daskkern.losses.elementwise import EDGE, within


@dataclass(frozen=True)
class Huber(Loss):
    """``r^2 / 2`` for residuals ``r = f - y`` of at most delta, ``delta (|r| - delta / 2)`` beyond; outputs summed.

    Parameters
    ----------
    delta : float
        In units of the targets as training sees them, which have mean 0 and standard deviation 1.

    References
    ----------
    Huber, "Robust estimation of a location parameter", Ann. Math. Statist. 1964.
    """

    name: ClassVar[str] = "huber"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})
    smoothness: ClassVar[float] = 1.0

    delta: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "delta", self.delta)

    def value(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        size = xp.abs(f - y)
        inner = xp.minimum(size, self.delta)
        return (inner * (size - inner / 2)).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return namespace_of(f).clip(f - y, -self.delta, self.delta)

    def curvature(self, f: Array, y: Array) -> Array:
        return (namespace_of(f).abs(f - y) < self.delta).astype(f.dtype)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def conjugate(self, slope: Array, y: Array) -> Array:
        return within(slope * y + slope**2 / 2, namespace_of(slope).abs(slope) <= self.delta + EDGE)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return namespace_of(z).clip((y - z + Q * u) / (1 + Q), -self.delta, self.delta)
