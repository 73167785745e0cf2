"""The arc-cosine kernels of degree 0, 1 and 2, and their parts."""

from dataclasses import dataclass
from math import pi
from typing import ClassVar

from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.formula import Expression, Pair, arccos, sqrt
from daskkern.kernels.parameters import as_number


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """Kernels of an infinitely wide layer of step (degree 0), rectified linear (1) or rectified quadratic (2) units.

    With t the angle between x and z: ``1 - t / pi``; ``|x| |z| (sin t + (pi - t) cos t) / pi``;
    ``|x|^2 |z|^2 (3 sin t cos t + (pi - t)(1 + 2 cos^2 t)) / pi``. A zero row is at a right angle to all rows and to
    itself: it gives 1/2 for degree 0, and 0 otherwise.

    Parameters
    ----------
    degree : int
        0, 1 or 2.

    References
    ----------
    Cho and Saul, "Kernel methods for deep learning", NeurIPS 2009, equations 4 to 6; Pfahler and Morik, "Nystrom-SGD",
    ECML PKDD 2018, section 6.1.
    """

    name: ClassVar[str] = "arc_cosine"

    degree: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or as_number(self.degree) not in (0, 1, 2):
            raise SpecError(f"got degree={self.degree!r} for the arc_cosine kernel; give 0, 1 or 2")
        object.__setattr__(self, "degree", int(self.degree))

    def formula(self, pair: Pair) -> Expression:
        cosine = pair.cosine
        if self.degree == 0:
            return step_part(cosine)
        if self.degree == 1:
            return pair.norms * ramp_part(cosine)
        angle, sine = arccos(cosine), sqrt((1 - cosine) * (1 + cosine))
        turned = (3 * sine * cosine + (pi - angle) * (1 + 2 * cosine * cosine)) * (1 / pi)
        return pair.norms * (pair.norms * turned)

    def spec(self) -> Spec:
        return {"name": self.name, "degree": self.degree}


def step_part(cosine: Expression) -> Expression:
    """Return ``1 - t / pi``, exactly 1 at the angle 0."""
    return 1 - arccos(cosine) * (1 / pi)


def ramp_part(cosine: Expression) -> Expression:
    """Return ``(sin t + (pi - t) cos t) / pi``, written so that it is exactly 1 at the angle 0."""
    sine = sqrt((1 - cosine) * (1 + cosine))
    return cosine + (sine - arccos(cosine) * cosine) * (1 / pi)
