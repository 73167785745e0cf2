"""Normalising constants of kernels, by which sums of kernel values become densities.

    Gaussian            (2 pi)^(d/2)
    exp(-|x|_p^q)       V_p Gamma(d/q + 1) ,          V_p = (2 Gamma(1/p + 1))^d / Gamma(d/p + 1)   (the unit ball of p)
    Matern nu           2^d pi^(d/2) Gamma(nu + d/2) / Gamma(nu) (2 nu)^(-d/2)
    (1 + r^2/(2 a))^-a  (2 a pi)^(d/2) Gamma(a - d/2) / Gamma(a) ,  a > d/2        (Cauchy: a = 1 in units of 2^(1/2))

for a length scale of 1; times its product over the features. The Matern row is the spectral density at frequency 0
(Rasmussen and Williams, "Gaussian processes for machine learning", 2006, equation 4.15).
"""

from math import lgamma, log, pi

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Kernel, Laplacian, PowerLaplacian, RadialKernel, RationalQuadratic
from daskkern.kernels.functions.cauchy import Cauchy
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel


def log_integral(kernel: Kernel, counted: HostArray) -> float:
    """Return the logarithm of the integral of ``k(x, 0)`` over rows x, by the features that `counted` (d,) bool has.

    Raises
    ------
    SpecError
        For kernels whose integral is not known here or not finite, and for metrics.
    """
    if not isinstance(kernel, ScaledDistanceKernel) or (isinstance(kernel, RadialKernel) and kernel.has_metric):
        raise SpecError(
            f"got the {kernel.name} kernel for a density; choose gaussian, laplacian, laplacian_l1, laplacian_pq, "
            "matern12, matern32, matern52, cauchy or rational_quadratic, without a metric"
        )
    if kernel.categories:
        raise SpecError(
            f"got the {kernel.name} kernel with categories for a density, and it has none over codes; ingest with "
            "--categorical onehot"
        )
    d = max(1, int(counted.sum()))
    return _of_unit_scale(kernel, d) + _log_scales(kernel, counted, d)


def _of_unit_scale(kernel: ScaledDistanceKernel, d: int) -> float:
    if isinstance(kernel, Gaussian):
        return d / 2 * log(2 * pi)
    if isinstance(kernel, Laplacian | PowerLaplacian):
        p, q = (kernel.p, kernel.q) if isinstance(kernel, PowerLaplacian) else (2.0, 1.0)
        return d * (log(2) + lgamma(1 / p + 1)) - lgamma(d / p + 1) + lgamma(d / q + 1)
    if isinstance(kernel, Matern):
        nu = kernel.nu
        return d * log(2) + d / 2 * (log(pi) - log(2 * nu)) + lgamma(nu + d / 2) - lgamma(nu)
    if isinstance(kernel, RationalQuadratic | Cauchy):
        alpha, unit = (kernel.alpha, 2 * kernel.alpha) if isinstance(kernel, RationalQuadratic) else (1.0, 1.0)
        if alpha > d / 2:
            return d / 2 * (log(pi) + log(unit)) + lgamma(alpha - d / 2) - lgamma(alpha)
        raise SpecError(
            f"got the {kernel.name} kernel for a density of {d} features, over which its integral is infinite; choose "
            "gaussian, or a rational_quadratic with alpha above half the number of features"
        )
    raise SpecError(f"got the {kernel.name} kernel for a density, whose integral is not known; choose gaussian")


def _log_scales(kernel: ScaledDistanceKernel, counted: HostArray, d: int) -> float:
    scale = np.asarray(kernel.length_scale, np.float64)
    if scale.ndim == 2:
        return float(np.linalg.slogdet(scale)[1])
    return d * float(np.log(scale)) if scale.ndim == 0 else float(np.log(scale[counted]).sum())
