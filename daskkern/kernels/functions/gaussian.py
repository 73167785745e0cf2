"""The Gaussian kernel."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Self

from daskkern.kernels.formula import Expression, exp
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.parameters import positive


@dataclass(frozen=True)
class Gaussian(RadialKernel):
    """``k(x, z) = exp(-r^2 / 2)``, ``r = |x - z| / length_scale``: scikit-learn's ``rbf``.

    Parameters are those of :class:`RadialKernel`.
    """

    name: ClassVar[str] = "gaussian"

    @classmethod
    def from_gamma(cls, gamma: float) -> Self:
        """Return ``exp(-gamma |x - z|^2)``, scikit-learn's convention: the length scale is ``(2 gamma)^(-1/2)``."""
        return cls(1 / sqrt(2 * positive(cls.name, "gamma", gamma)))

    def profile(self, r: Expression, r2: Expression) -> Expression:
        return exp(r2 * -0.5)
