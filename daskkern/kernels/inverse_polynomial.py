"""The inverse polynomial kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.kernels.base import Kernel, Statistic


@dataclass(frozen=True)
class InversePolynomial(Kernel):
    """``k(x, z) = 1 / (2 - x.z / (|x| |z|))`` on rows scaled to unit length; a zero row has cosine 0 with all.

    References
    ----------
    Pfahler and Morik, "Nystrom-SGD: fast learning of kernel-classifiers with conditioned stochastic gradient
    descent", ECML PKDD 2018, section 6.1.
    """

    name: ClassVar[str] = "inverse_polynomial"
    statistic: ClassVar[Statistic] = Statistic.COSINE

    def profile(self, s: Array) -> None:
        xp = namespace_of(s)
        xp.subtract(2, s, out=s)
        xp.reciprocal(s, out=s)

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name}
