"""The inverse polynomial kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair


@dataclass(frozen=True)
class InversePolynomial(Kernel):
    """``k(x, z) = 1 / (2 - x.z / (|x| |z|))`` on rows scaled to unit length; a zero row has cosine 0 with all.

    References
    ----------
    Pfahler and Morik, "Nystrom-SGD: fast learning of kernel-classifiers with conditioned stochastic gradient
    descent", ECML PKDD 2018, section 6.1.
    """

    name: ClassVar[str] = "inverse_polynomial"

    def formula(self, pair: Pair) -> Expression:
        return 1 / (2 - pair.cosine)

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name}
