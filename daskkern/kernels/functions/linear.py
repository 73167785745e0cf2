"""The linear kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair


@dataclass(frozen=True)
class LinearKernel(Kernel):
    """``k(x, z) = x.z``."""

    name: ClassVar[str] = "linear"

    def formula(self, pair: Pair) -> Expression:
        return pair.inner

    def spec(self) -> dict[str, str | float]:
        return {"name": self.name}
