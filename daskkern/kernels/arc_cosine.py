"""The arc-cosine kernel of degree 1."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Statistic


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """``k(x, z) = |x| |z| (sin t + (pi - t) cos t) / pi`` with t the angle between x and z.

    The kernel of an infinitely wide layer of rectified linear units. Zero rows give 0.

    Parameters
    ----------
    degree : int
        Only degree 1 is here.

    References
    ----------
    Cho and Saul, "Kernel methods for deep learning", NeurIPS 2009, equation 6; Pfahler and Morik, "Nystrom-SGD",
    ECML PKDD 2018, section 6.1.
    """

    name: ClassVar[str] = "arc_cosine"
    statistic: ClassVar[Statistic] = Statistic.COSINE
    norm_power: ClassVar[int] = 1

    degree: int = 1

    def __post_init__(self) -> None:
        if self.degree != 1:
            raise SpecError(f"degree={self.degree!r} was asked of the arc_cosine kernel; only degree 1 is there")

    def profile(self, s: Array) -> None:
        xp = namespace_of(s)
        angle = xp.arccos(s)
        sine = xp.sqrt((1 - s) * (1 + s))
        xp.subtract(np.pi, angle, out=angle)
        s *= angle
        s += sine
        s *= 1 / np.pi

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "degree": self.degree}
