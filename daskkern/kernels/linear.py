"""The linear kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.kernels.base import Kernel, Statistic


@dataclass(frozen=True)
class Linear(Kernel):
    """``k(x, z) = x.z``."""

    name: ClassVar[str] = "linear"
    statistic: ClassVar[Statistic] = Statistic.INNER_PRODUCT

    def profile(self, s: Array) -> None:
        del s

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name}
