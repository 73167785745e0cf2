"""The quantile loss."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import constants_like, namespace_of
from daskkern.errors import SpecError
from daskkern.losses.base import DualBox, Loss, check_parameter
from daskkern.losses.elementwise import EDGE, within


@dataclass(frozen=True)
class Quantile(Loss):
    """``max(q (y - f), (1 - q) (f - y))``, summed over the outputs: its minimiser is the q-quantile. Not smooth.

    Parameters
    ----------
    q : float or tuple of float
        Between 0 and 1: the share of targets that are to lie below the prediction. Several, ascending, give one target
        as many outputs, one for each; as a string ``"quantile:0.1,0.5,0.9"``.

    References
    ----------
    Koenker and Bassett, "Regression quantiles", Econometrica 1978.
    """

    name: ClassVar[str] = "quantile"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})

    q: float | tuple[float, ...] = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.q, list | tuple):
            object.__setattr__(self, "q", tuple(self.q))
        for q in self.levels:
            check_parameter(self.name, "q", q, 1)
        if not self.levels or any(not low < high for low, high in pairwise(self.levels)):
            raise SpecError(f"got q={self.q!r} for the quantile loss; give one number, or several that ascend")

    @property
    def levels(self) -> tuple[float, ...]:
        """The quantiles, ascending."""
        return self.q if isinstance(self.q, tuple) else (self.q,)

    @property
    def heads(self) -> int:
        return len(self.levels)

    @property
    def quantiles(self) -> tuple[float, ...]:
        return self.levels

    @staticmethod
    def parameter(word: str) -> Any:
        found = tuple(float(part) for part in word.split(","))
        return found if len(found) > 1 else found[0]

    def spec(self) -> str:
        return f"{self.name}:{','.join(str(float(q)) for q in self.levels)}"

    def value(self, f: Array, y: Array) -> Array:
        q = self._q(f)
        return namespace_of(f).maximum(q * (y - f), (1 - q) * (f - y)).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        q = self._q(f)
        return (1 - q) * (f > y).astype(f.dtype) - q * (f < y).astype(f.dtype)

    def conjugate(self, slope: Array, y: Array) -> Array:
        q = self._q(slope)
        return within(slope * y, (slope >= -q - EDGE) & (slope <= 1 - q + EDGE))

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        q = self._q(z)
        return namespace_of(z).clip((y - z) / Q + u, q - 1, q)

    def dual_boxes(self, y: FloatArray) -> tuple[DualBox, ...]:
        q = np.broadcast_to(self._q(y), y.shape).astype(np.float64)
        return (DualBox(q - 1, q, -y),)

    def least_alpha(self, error: float, variance: float, n: int) -> float:
        """Return the penalty below which quantiles follow single rows: ``error * variance / n``.

        It is that of a Gaussian process of variance 1 whose noise has the density of the asymmetric Laplace
        distribution, proportional to ``exp(-loss / error)`` (Yu and Moyeed, "Bayesian quantile regression", Statistics
        and Probability Letters 2001, section 2). The penalty of the least squared error may be far less where rows lie
        far apart: then all quantiles are near the row, if it is alone. Parameters are those of the base class.
        """
        return error * variance / n

    def _q(self, f: Array) -> Any:
        """Return the quantile, or those of the outputs (c,)."""
        return constants_like(self.q, f) if isinstance(self.q, tuple) else self.q
