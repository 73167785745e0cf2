"""The additive Laplacian kernel: a mean of kernels of single features, or a power of it."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.differences.base import DifferenceKernel
from daskkern.kernels.functions.length_scale import LengthScale
from daskkern.kernels.norms import Difference, difference_norms
from daskkern.kernels.parameters import as_number

_MOST_DEGREE = 16
_PAIRS = 512  # rows whose differences from each other are looked at


@dataclass(frozen=True)
class AdditiveLaplacian(DifferenceKernel):
    """``k(x, z) = ((1/d) sum_j exp(-|x_j - z_j| / l_j))^degree`` for rows of d features.

    With degree 1 a model is a sum of functions of single features, with degree q one of interactions of up to q
    features: fewer than a product over all features has, which is what other kernels are. For tables in which features
    matter mostly by themselves. A feature whose length scale is far below the differences of its values counts as a
    category: ``k`` then says in how many such features two rows agree, without a column for each category.

    Parameters
    ----------
    length_scale : float, "median" or sequence (d,)
        "median" is the median of the differences ``|x_j - z_j|`` other than 0 over features and pairs of rows.
    degree : int
        1 to 16.
    n_features : int, optional
        d; that of the rows by default, which :meth:`resolve` looks at.
    categories : sequence of int
        Columns that hold codes of categories. See :class:`DifferenceKernel`.

    Raises
    ------
    SpecError
        For another degree, or a matrix as length scale.

    References
    ----------
    Duvenaud, Nickisch and Rasmussen, "Additive Gaussian processes", NIPS 2011, eq. 3; Stone, "Additive regression and
    other nonparametric models", Ann. Statist. 1985. There features have one scale each, and interactions of each order
    a weight of their own.
    """

    name: ClassVar[str] = "additive_laplacian"

    length_scale: LengthScale = "median"
    degree: int = 1
    n_features: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        degree = as_number(self.degree)
        if degree != int(degree) or not 1 <= degree <= _MOST_DEGREE:
            raise SpecError(f"got degree={self.degree!r} for the {self.name} kernel; expected 1 to {_MOST_DEGREE}")
        object.__setattr__(self, "degree", int(degree))
        if self.n_features is not None:
            count = as_number(self.n_features)
            if count != int(count) or count < 1:
                raise SpecError(f"got n_features={self.n_features!r} for the {self.name} kernel; expected 1 or more")
            object.__setattr__(self, "n_features", int(count))
        if np.ndim(self.length_scale) == 2:
            raise SpecError(f"got a matrix as length_scale of the {self.name} kernel; expected a number, or one each")

    def formula(self, pair: Pair) -> Expression:
        return (1 - self.sum(pair) * (1 / self._d)) ** self.degree

    def sum(self, pair: Pair) -> Expression:
        return self._counted(pair.saturated_sum)

    def shared(self, pair: Pair) -> Expression:
        raise SpecError(
            f"the {self.name} kernel shares nothing between length scales; compare fits, or sweep another kernel"
        )

    def spec(self) -> Spec:
        known = {} if self.n_features is None else {"n_features": self.n_features}
        return {**super().spec(), "degree": self.degree, **known}

    def resolve(self, sample: Array) -> Self:
        scaled = super().resolve(sample)
        return scaled if self.n_features is not None else replace(scaled, n_features=int(sample.shape[1]))

    @property
    def coordinates(self) -> Hashable:
        return ("saturated", self._applied, self.categories)

    @property
    def _applied(self) -> LengthScale | None:
        return None if isinstance(self.length_scale, str) else self.length_scale

    @property
    def _d(self) -> int:
        if self.n_features is None or isinstance(self.length_scale, str):
            raise SpecError(
                f"the {self.name} kernel has length_scale={self.length_scale!r:.40} and n_features={self.n_features}: "
                "call kernel.resolve(rows) first, or give numbers"
            )
        return self.n_features

    def shift_for(self, Z: Array) -> Array | None:
        del Z
        return None  # differences are those of the rows themselves: subtracting a point before gains nothing

    def median(self, rows: Array) -> float:
        some, caps = rows[:_PAIRS], self.caps(rows.shape[1])
        dense = some.toarray() if is_sparse(some) else some
        xp = namespace_of(dense)
        first, second = xp.triu_indices(dense.shape[0], 1)
        found = []
        for k in range(dense.shape[1]):
            gaps = xp.abs(dense[first, k] - dense[second, k])
            gaps = gaps if caps is None else xp.minimum(gaps, caps[k])
            found.append(gaps[gaps > 0])
        gaps = xp.concatenate(found) if found else xp.zeros(0)
        if not gaps.size:
            raise DataError(
                "the differences between rows are 0, because all sampled rows are equal, so their median cannot be a "
                "length scale; add features that differ, or give the length scale as a number"
            )
        return float(xp.median(gaps))

    def median_numbers(self, n_features: int) -> int:
        return 3 * n_features * _PAIRS**2 // 2  # the differences, joined, and a copy for their median

    def distances(self, gaps: Array) -> Array:
        found: Array = difference_norms(gaps, Difference(saturates=True, caps=self.caps(gaps.shape[1])))
        return found

    def slope(self, sums: Array) -> Array:
        d = self._d
        found: Array = (-self.degree / d) * (1 - sums / d) ** (self.degree - 1)
        return found

    def term_derivative(self, gaps: Array) -> Array:
        xp = namespace_of(gaps)
        found: Array = xp.sign(gaps) * xp.exp(-xp.abs(gaps))
        return found
