"""The arc-cosine kernel of degree 1."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar

from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair, arccos, sqrt


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

    degree: int = 1

    def __post_init__(self) -> None:
        if self.degree != 1:
            raise SpecError(f"degree={self.degree!r} was asked of the arc_cosine kernel; only degree 1 is there")

    def formula(self, pair: Pair) -> Expression:
        angle = arccos(pair.cosine)
        sine = sqrt((1 - pair.cosine) * (1 + pair.cosine))
        return pair.norms * (sine + (pi - angle) * pair.cosine) / pi

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name, "degree": self.degree}
