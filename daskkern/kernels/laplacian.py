"""The Laplacian (Euclidean) kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.base import Kernel, Statistic
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
    statistic: ClassVar[Statistic] = Statistic.SQUARED_DISTANCE
    singular_at_zero: ClassVar[bool] = True

    length_scale: float | str = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", check_length_scale(self.name, self.length_scale))

    def profile(self, s: Array) -> None:
        xp = namespace_of(s)
        xp.sqrt(s, out=s)
        s *= -1.0 / number(self.name, self.length_scale)
        xp.exp(s, out=s)

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "length_scale": self.length_scale}

    def resolve(self, sample: Array) -> "Laplacian":
        return Laplacian(resolved(self.length_scale, sample))
