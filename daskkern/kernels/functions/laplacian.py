"""The Laplacian (Euclidean) kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.kernels.formula import Expression, exp
from daskkern.kernels.functions.radial import RadialKernel


@dataclass(frozen=True)
class Laplacian(RadialKernel):
    """``k(x, z) = exp(-r)``, ``r = |x - z| / length_scale``, the same as ``Matern(nu=0.5)``.

    The distance is the Euclidean one, as EigenPro and Falkon mean it. scikit-learn's ``laplacian_kernel`` uses the L1
    distance instead: another kernel, so its gamma has no meaning here and there is no ``from_gamma``. Parameters are
    those of :class:`RadialKernel`.
    """

    name: ClassVar[str] = "laplacian"

    def profile(self, r: Expression, r2: Expression) -> Expression:
        return exp(r * -1.0)
