"""The Gaussian kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair, exp
from daskkern.kernels.length_scale import check_length_scale, number, resolved


@dataclass(frozen=True)
class Gaussian(Kernel):
    """``k(x, z) = exp(-|x - z|^2 / (2 length_scale^2))``, scikit-learn's ``rbf`` with
    ``gamma = 1 / (2 length_scale^2)``.

    Parameters
    ----------
    length_scale : float or "median"
        In the units of the features; "median" is the median distance between training rows.
    """

    name: ClassVar[str] = "gaussian"

    length_scale: float | str = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", check_length_scale(self.name, self.length_scale))

    def formula(self, pair: Pair) -> Expression:
        return exp(pair.squared_distance * (-0.5 / number(self.name, self.length_scale) ** 2))

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "length_scale": self.length_scale}

    def resolve(self, sample: Array) -> "Gaussian":
        return Gaussian(resolved(self.length_scale, sample))
