"""The Matern kernels with closed forms."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from daskkern.errors import SpecError
from daskkern.kernels.formula import Expression, Pair, exp, log, maximum
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.parameters import as_number

_WORDS = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
_FAR = 800.0  # exp(-800) is 0; powers of larger numbers would overflow


@dataclass(frozen=True)
class Matern(RadialKernel):
    """``exp(-r)``, ``(1 + t) exp(-t)`` with ``t = 3^(1/2) r``, or ``(1 + t + t^2/3) exp(-t)`` with ``t = 5^(1/2) r``.

    For nu = 1/2, 3/2 and 5/2, with ``r = |x - z| / length_scale``, as in scikit-learn. Functions of their spaces have
    nu derivatives, a half rounded down.

    Parameters
    ----------
    length_scale
        See :class:`RadialKernel`.
    metric
        See :class:`RadialKernel`.
    nu : float
        0.5, 1.5 or 2.5.

    References
    ----------
    Rasmussen and Williams, "Gaussian processes for machine learning", 2006, equations 4.16 and 4.17.
    """

    name: ClassVar[str] = "matern"

    nu: float = 1.5

    def __post_init__(self) -> None:
        nu = as_number(self.nu)
        if nu not in _WORDS:
            raise SpecError(f"got nu={self.nu!r} for the matern kernel; give 0.5, 1.5 or 2.5")
        object.__setattr__(self, "nu", nu)
        object.__setattr__(self, "name", _WORDS[nu])
        super().__post_init__()

    def profile(self, r: Expression, r2: Expression) -> Expression:
        if self.nu == 0.5:
            return exp(r * -1.0)
        minus_t = self._minus_t(r)
        first = 1 - minus_t
        return (first if self.nu == 1.5 else first + minus_t * minus_t * (1 / 3)) * exp(minus_t)

    def logarithm(self, pair: Pair) -> Expression:
        """Return the formula's logarithm, also where its value is below the smallest numbers."""
        t = self._radius(pair)[0] * sqrt(2 * self.nu)
        if self.nu == 0.5:
            return t * -1.0
        first = 1 + t
        return log(first if self.nu == 1.5 else first + t * t * (1 / 3)) - t

    def derivative(self, pair: Pair) -> Expression:
        if self.nu == 0.5:
            return super().derivative(pair)
        minus_t = self._minus_t(self._radius(pair)[0])
        lower = exp(minus_t) if self.nu == 1.5 else (1 - minus_t) * exp(minus_t)  # finite where rows are equal
        return lower * (-self.nu / (2 * self.nu - 2) * self.unit**-2)

    def _minus_t(self, r: Expression) -> Expression:
        return maximum(r * -sqrt(2 * self.nu), -_FAR)
