"""The smoothed hinge loss."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss, check_parameter
from daskkern.losses.elementwise import EDGE, within


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """``h(1 - y f)`` for y in {-1, +1} with ``h(t) = t^2 / (2 gamma)`` up to gamma and ``t - gamma / 2`` beyond.

    0 where t is negative; summed over the outputs (one-vs-rest).

    Parameters
    ----------
    gamma : float
        Width of the parabola; the hinge loss is the limit 0.

    References
    ----------
    Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods", JMLR 2013.
    """

    name: ClassVar[str] = "smoothed_hinge"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_parameter(self.name, "gamma", self.gamma)

    @property
    def smoothness(self) -> float:
        return 1 / self.gamma

    def value(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        t = xp.maximum(1 - y * f, 0)
        inner = xp.minimum(t, self.gamma)
        return (inner * (t - inner / 2) / self.gamma).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return -y * namespace_of(f).clip((1 - y * f) / self.gamma, 0, 1)

    def curvature(self, f: Array, y: Array) -> Array:
        t = 1 - y * f
        return ((t > 0) & (t < self.gamma)).astype(f.dtype) / self.gamma

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def conjugate(self, slope: Array, y: Array) -> Array:
        t = y * slope
        return within(t + self.gamma / 2 * t**2, (t >= -1 - EDGE) & (t <= EDGE))

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        t = y * u
        return y * namespace_of(z).clip((1 - y * z - self.gamma * t) / (Q + self.gamma) + t, 0, 1)
