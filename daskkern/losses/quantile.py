"""The quantile loss."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss, check_parameter
from daskkern.losses.elementwise import EDGE, within


@dataclass(frozen=True)
class Quantile(Loss):
    """``max(q (y - f), (1 - q) (f - y))``, summed over the outputs: its minimiser is the q-quantile. Not smooth.

    Parameters
    ----------
    q : float
        Between 0 and 1: the share of targets that are to lie below the prediction.

    References
    ----------
    Koenker and Bassett, "Regression quantiles", Econometrica 1978.
    """

    name: ClassVar[str] = "quantile"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})

    q: float = 0.5

    def __post_init__(self) -> None:
        check_parameter(self.name, "q", self.q, 1)

    def value(self, f: Array, y: Array) -> Array:
        return namespace_of(f).maximum(self.q * (y - f), (1 - self.q) * (f - y)).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return (1 - self.q) * (f > y).astype(f.dtype) - self.q * (f < y).astype(f.dtype)

    def conjugate(self, slope: Array, y: Array) -> Array:
        return within(slope * y, (slope >= -self.q - EDGE) & (slope <= 1 - self.q + EDGE))

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return namespace_of(z).clip((y - z) / Q + u, self.q - 1, self.q)
