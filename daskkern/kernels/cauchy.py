"""The Cauchy kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.length_scale import check_length_scale, number, resolved


@dataclass(frozen=True)
class Cauchy(Kernel):
    """``k(x, z) = 1 / (1 + |x - z|^2 / length_scale^2)``.

    Parameters
    ----------
    length_scale : float or "median"
        In the units of the features; "median" is the median distance between training rows.

    Notes
    -----
    EigenPro 1's released code calls ``1 / exp(1 + r^2 / s^2)`` by this name, which is a scaled Gaussian; here it
    is the Cauchy kernel of the literature.
    """

    name: ClassVar[str] = "cauchy"

    length_scale: float | str = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", check_length_scale(self.name, self.length_scale))

    def formula(self, pair: Pair) -> Expression:
        return 1 / (1 + pair.squared_distance * number(self.name, self.length_scale) ** -2)

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "length_scale": self.length_scale}

    def resolve(self, sample: Array) -> "Cauchy":
        return Cauchy(resolved(self.length_scale, sample))
