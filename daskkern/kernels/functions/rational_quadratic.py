"""The rational quadratic kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.kernels.base import Spec
from daskkern.kernels.formula import Expression, exp, log
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.parameters import positive

_MOST_PRODUCTS = 8


@dataclass(frozen=True)
class RationalQuadratic(RadialKernel):
    """``k(x, z) = (1 + r^2 / (2 alpha))^-alpha``, ``r = |x - z| / length_scale``, as in scikit-learn.

    A mixture of Gaussians of all length scales, and the Gaussian itself as alpha grows.

    Parameters
    ----------
    length_scale
        See :class:`RadialKernel`.
    metric
        See :class:`RadialKernel`.
    alpha : float
        Positive. Relative errors grow with it, as ``alpha`` times those of a sum.

    References
    ----------
    Rasmussen and Williams, "Gaussian processes for machine learning", 2006, equation 4.19.
    """

    name: ClassVar[str] = "rational_quadratic"

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", positive(self.name, "alpha", self.alpha))

    def profile(self, r: Expression, r2: Expression) -> Expression:
        base = 1 + r2 * (0.5 / self.alpha)
        if (2 * self.alpha).is_integer() and self.alpha <= _MOST_PRODUCTS:
            return (1 / base) ** self.alpha  # powers of numbers below 1 do not overflow
        return exp(log(base) * -self.alpha)

    def spec(self) -> Spec:
        return {**super().spec(), "alpha": self.alpha}
