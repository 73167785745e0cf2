"""The Gaussian-process view of kernel ridge regression: the data that posterior variances need besides the points.

The minimiser of ``(1/n) sum_i (f(x_i) - y_i)^2 / 2 + (alpha/2) |f|^2`` is the posterior mean of a Gaussian process with
the prior covariance ``tau^2 k`` and noise of variance ``tau^2 n alpha``. Of n rows, m points stand for n / m rows each,
``K_mn K_nm = (n/m) K_mm^2``, so that the predictive variance of the Nystrom approximation with its correction term

    k(x, x) - k_xm K_mm^-1 k_mx + n alpha k_xm (K_mn K_nm + n alpha K_mm)^-1 k_mx

(Quinonero-Candela and Rasmussen, JMLR 2005, equation 20: deterministic training conditional) becomes
``k(x, x) - k_xm (K_mm + m alpha I)^-1 k_mx``. With all rows as points it is exact. ``tau^2`` of a target is the mean of
``r_i^2 / (v(x_i) + n alpha)`` over the calibration rows, r_i their errors and v(x_i) their variances.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray


@dataclass(frozen=True)
class Posterior:
    """What the posterior variance of a model needs besides its points.

    Attributes
    ----------
    alpha : float
        The penalty, or where the fit ended before its minimum, the one that it amounts to.
    n_rows : int
        Training rows n.
    amplitude : tuple of float
        ``tau^2`` of each target, in squared target units.
    """

    alpha: float
    n_rows: int
    amplitude: tuple[float, ...]

    @property
    def noise(self) -> float:
        """Variance of the noise, in units of the amplitude."""
        return self.n_rows * self.alpha

    @classmethod
    def of_errors(cls, alpha: float, n_rows: int, errors: FloatArray, variance: FloatArray) -> "Posterior":
        """Return the posterior for errors (k, t) of calibration rows whose variances are (k,)."""
        scaled = np.mean(errors**2 / np.maximum(variance + n_rows * alpha, np.finfo(float).tiny)[:, None], axis=0)
        return cls(alpha, n_rows, tuple(float(value) for value in scaled))

    def deviations(self, variance: FloatArray, *, noisy: bool = True) -> FloatArray:
        """Return the standard deviations (n, t) of new targets at rows of posterior variance (n,).

        With `noisy` false those of the function without the noise of a target.
        """
        total = variance + self.noise if noisy else variance
        found: FloatArray = np.sqrt(total[:, None] * np.asarray(self.amplitude))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"alpha": self.alpha, "n_rows": self.n_rows, "amplitude": list(self.amplitude)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], n_targets: int) -> "Posterior":
        """Return what :meth:`to_json` describes. Raises ValueError, TypeError or KeyError for malformed values."""
        found = cls(float(value["alpha"]), int(value["n_rows"]), tuple(float(v) for v in value["amplitude"]))
        numbers = (found.alpha, *found.amplitude)
        if not all(math.isfinite(v) and v >= 0 for v in numbers) or found.n_rows < 1 or found.alpha == 0:
            raise ValueError(f"the posterior variance is that of {value!r:.60}")
        if len(found.amplitude) != n_targets:
            raise ValueError(f"the posterior variance is for {len(found.amplitude)} targets")
        return found
