"""The Laplacian kernels of L1 and L_pq distances."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.formula import Expression, Pair, exp, log, maximum, sqrt
from daskkern.kernels.functions.differences.base import DifferenceKernel
from daskkern.kernels.functions.length_scale import median_of_pairs
from daskkern.kernels.norms import Difference, difference_norms
from daskkern.kernels.parameters import as_number

_TINY = 1e-36  # below, a power of a sum is linear
_EQUAL = 1e-13  # of the sums of two rows themselves: distances of equal sparse rows are below


@dataclass(frozen=True)
class PowerLaplacian(DifferenceKernel):
    """``k(x, z) = exp(-|x - z|_p^q / length_scale^q)``, ``|x - z|_p = (sum_j |x_j - z_j|^p)^(1/p)``.

    With p below 2 it is not a function of the Euclidean distance: directions along one feature differ from the others,
    so that functions which change with few features are learned from fewer rows, as trees learn them. With p = q it is
    a product over the features. A value takes a difference and a sum for each feature, which no matrix product gives.

    Parameters
    ----------
    length_scale : float, "median", sequence (d,) or matrix (d, d)
        See :class:`ScaledDistanceKernel`. "median" is the median of ``|x - z|_p``.
    p, q : float
        ``0 < q <= p <= 2``, for which the kernel is positive definite (Schoenberg: ``|t|^p`` is conditionally negative
        definite for ``0 < p <= 2``, and so are sums of such functions and their powers ``q / p`` up to 1).

    categories : sequence of int
        Columns that hold codes of categories, for p below 2. See :class:`DifferenceKernel`.

    Raises
    ------
    SpecError
        For other p and q.

    References
    ----------
    Schoenberg, "Metric spaces and positive definite functions", Trans. AMS 1938. Beaglehole, Holzmueller, Radhakrishnan
    and Belkin, "xRFM: accurate, scalable, and interpretable feature learning models for tabular data", 2025, section 3.
    """

    name: ClassVar[str] = "laplacian_pq"

    p: float = 1.0
    q: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        p, q = as_number(self.p), as_number(self.q)
        if not 0 < q <= p <= 2:
            raise SpecError(
                f"got p={self.p!r} and q={self.q!r} for the {self.name} kernel; expected 0 < q <= p <= 2, where it is "
                "positive definite"
            )
        object.__setattr__(self, "p", p)
        object.__setattr__(self, "q", q)
        if self.categories and p == 2:
            raise SpecError(f"got categories for the {self.name} kernel with p=2; expected p below 2")

    def formula(self, pair: Pair) -> Expression:
        scale = -(self.unit**-self.q)
        if self.p == 2:
            return exp((pair.squared_distance if self.q == 2 else _power(pair.distance, self.q)) * scale)
        return exp(_power(self.sum(pair), self.q / self.p) * scale)

    def sum(self, pair: Pair) -> Expression:
        return self._counted(pair.power_sum(self.p))

    def shared(self, pair: Pair) -> Expression:
        return super().shared(pair) if self.p == 2 else self.sum(pair)

    def spec(self) -> Spec:
        return {**super().spec(), "p": self.p, "q": self.q}

    @property
    def coordinates(self) -> Hashable:
        return super().coordinates if self.p == 2 else ("differences", self.p, self._applied, self.categories)

    def shift_for(self, Z: Array) -> Array | None:
        """Return None where differences are those of the rows themselves: subtracting a point before gains nothing."""
        return None if self._map is None and self.p != 2 else super().shift_for(Z)

    def median(self, rows: Array) -> float:
        sums = self.sums().block(rows, rows)
        return median_of_pairs(sums, _EQUAL, difference_norms(rows, self._terms(rows))) ** (1 / self.p)

    def distances(self, gaps: Array) -> Array:
        found: Array = difference_norms(gaps, self._terms(gaps)) ** (1 / self.p)
        return found

    def _terms(self, rows: Array) -> Difference:
        return Difference(self.p, caps=self.caps(rows.shape[1]))

    def term_derivative(self, gaps: Array) -> Array:
        return _derivative(gaps, self.p)

    def slope(self, sums: Array) -> Array:
        xp, a = namespace_of(sums), self.q / self.p
        scale = self.unit**-self.q
        size = xp.maximum(sums, _TINY)
        found: Array = -a * scale * size ** (a - 1) * xp.exp(-scale * size**a)
        return found


@dataclass(frozen=True)
class L1Laplacian(PowerLaplacian):
    """``k(x, z) = exp(-|x - z|_1 / length_scale)``: scikit-learn's ``laplacian_kernel`` with gamma = 1 / length_scale.

    :class:`PowerLaplacian` with p = q = 1. :class:`Laplacian` has the Euclidean distance.
    """

    name: ClassVar[str] = "laplacian_l1"

    p: float = field(default=1.0, init=False, repr=False)
    q: float = field(default=1.0, init=False, repr=False)

    def spec(self) -> Spec:
        return {key: value for key, value in super().spec().items() if key not in ("p", "q")}


def _power(base: Expression, a: float) -> Expression:
    """Return ``base^a`` for positive a and base at least 0, exactly 0 at 0."""
    if a in (0.5, 1.0):
        return base if a == 1 else sqrt(base)
    return base * exp(log(maximum(base, _TINY)) * (a - 1))


def _derivative(gaps: Array, p: float) -> Array:
    """Return ``p |g|^(p - 1) sign(g)``, 0 at 0."""
    xp = namespace_of(gaps)
    found: Array = xp.sign(gaps)
    if p != 1:
        size = xp.abs(gaps)
        found *= p * xp.where(size > 0, size, 1) ** (p - 1)
    return found
