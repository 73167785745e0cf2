"""The polynomial kernel."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.parameters import as_number, positive


@dataclass(frozen=True)
class Polynomial(Kernel):
    """``k(x, z) = (gamma x.z + coef0) ** degree``, as in scikit-learn.

    Parameters
    ----------
    degree : int
        A positive whole number.
    gamma : float or None
        Positive; None means 1 / n_features, taken from the data.
    coef0 : float
        At least 0, so that the kernel is positive definite.
    """

    name: ClassVar[str] = "polynomial"

    degree: int = 3
    gamma: float | None = None
    coef0: float = 1.0

    def __post_init__(self) -> None:
        degree = as_number(self.degree)
        if not (degree >= 1 and degree.is_integer()):
            raise SpecError(f"got degree={self.degree!r} for the polynomial kernel; give a whole number >= 1")
        if self.gamma is not None:
            object.__setattr__(self, "gamma", positive(self.name, "gamma", self.gamma))
        if not 0 <= as_number(self.coef0) < float("inf"):
            raise SpecError(f"got coef0={self.coef0!r} for the polynomial kernel; give a number >= 0")
        object.__setattr__(self, "degree", int(degree))

    @property
    def has_units(self) -> bool:
        return self.gamma is not None

    def formula(self, pair: Pair) -> Expression:
        if self.gamma is None:
            raise SpecError("the polynomial kernel's gamma depends on data: call kernel.resolve(rows) first")
        return (pair.inner * self.gamma + self.coef0) ** self.degree

    def spec(self) -> dict[str, str | float]:
        parameters: dict[str, str | float] = {"name": self.name, "degree": self.degree, "coef0": self.coef0}
        return parameters if self.gamma is None else {**parameters, "gamma": self.gamma}

    def resolve(self, sample: Array) -> "Polynomial":
        gamma = 1.0 / int(sample.shape[1]) if self.gamma is None else self.gamma
        return Polynomial(self.degree, gamma, self.coef0)
