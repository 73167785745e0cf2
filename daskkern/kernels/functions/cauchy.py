"""The Cauchy kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.kernels.formula import Expression
from daskkern.kernels.functions.radial import RadialKernel


@dataclass(frozen=True)
class Cauchy(RadialKernel):
    """``k(x, z) = 1 / (1 + r^2)``, ``r = |x - z| / length_scale``.

    Parameters are those of :class:`RadialKernel`.

    Notes
    -----
    The released code of EigenPro 1 uses this name for ``1 / exp(1 + r^2 / s^2)``, a scaled Gaussian; here it is the
    Cauchy kernel of the literature.
    """

    name: ClassVar[str] = "cauchy"

    def profile(self, r: Expression, r2: Expression) -> Expression:
        return 1 / (1 + r2)
