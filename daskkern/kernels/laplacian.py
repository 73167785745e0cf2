"""The Laplacian (Euclidean) kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair, exp
from daskkern.kernels.length_scale import check_length_scale, number, resolved


@dataclass(frozen=True)
class Laplacian(Kernel):
    """``k(x, z) = exp(-|x - z| / length_scale)`` with the Euclidean distance, as EigenPro and
    Falkon mean it. scikit-learn's ``laplacian_kernel`` uses the L1 distance instead: another kernel.

    Parameters
    ----------
    length_scale : float or "median"
        In the units of the features; "median" is the median distance between training rows.
    """

    name: ClassVar[str] = "laplacian"

    length_scale: float | str = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", check_length_scale(self.name, self.length_scale))

    def formula(self, pair: Pair) -> Expression:
        return exp(pair.distance * (-1.0 / number(self.name, self.length_scale)))

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "length_scale": self.length_scale}

    def resolve(self, sample: Array) -> "Laplacian":
        return Laplacian(resolved(self.length_scale, sample))
