"""The base class of kernels of a sum over features of functions of their differences."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.backend.tiles import TILE_ROWS, slices
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.coordinates import Coordinates
from daskkern.kernels.formula import DIFFERENCES, Expression, Pair, evaluate
from daskkern.kernels.functions.differences.categories import check_categories, exact_divisors, in_range
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import as_rows, rows_dtype


@dataclass(frozen=True)
class DifferenceKernel(ScaledDistanceKernel):
    """``k(x, z) = g(sum_j t(x_j - z_j))`` for terms t of single features.

    Parameters
    ----------
    categories : sequence of int
        Columns that hold codes of categories, whole numbers up to 16,777,216. Different codes count as a difference of
        1 in the units of the features, whichever they are: ``k`` is that of one-hot features of half the weight, which
        L1 distances are 1 apart, at the cost of one feature for each column. None by default.
    """

    categories: tuple[int, ...] = field(default=(), kw_only=True, repr=False)  # long, and mostly empty

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "categories", check_categories(self.name, self.categories))
        if self.categories and np.ndim(self.length_scale) == 2:
            raise SpecError(f"got a matrix as length_scale of the {self.name} kernel with categories; expected numbers")

    def with_categories(self, columns: Sequence[int]) -> Self:
        return replace(self, categories=tuple(columns)) if len(columns) else self

    def spec(self) -> Spec:
        return {**super().spec(), **({"categories": list(self.categories)} if self.categories else {})}

    @property
    def feature_weights(self) -> FloatArray | None:
        if not self.categories or not isinstance(self.length_scale, tuple):
            return super().feature_weights
        return 1 / np.asarray(self.length_scale, np.float64) ** 2

    def caps(self, n_features: int) -> FloatArray | None:
        if not self.categories:
            return None
        found = np.full(n_features, np.inf)
        found[self._codes(n_features)] = 1 / self._code_scales
        return found

    def transform(self, rows: Array) -> Array:
        if not self.categories or self._applied is None:
            return super().transform(rows)
        scales = np.array(np.broadcast_to(np.asarray(self._applied, np.float64), rows.shape[1:]))
        scales[self._codes(rows.shape[1])] = exact_divisors(self._code_scales)
        return Coordinates(self.name, scales).forward(rows)

    def shift_for(self, Z: Array) -> Array | None:
        """Return the point to subtract, which is 0 in code columns: they stay whole numbers."""
        shift = super().shift_for(Z)
        if shift is not None and self.categories:
            shift[self._codes(Z.shape[1])] = 0
        return shift

    @abstractmethod
    def sum(self, pair: Pair) -> Expression:
        """Return the sum of the terms."""

    def sums(self) -> Kernel:
        """Return the sum of the terms of rows after :meth:`transform`, in place of a kernel."""
        return DifferenceSum(self)

    @abstractmethod
    def slope(self, sums: Array) -> Array:
        """Return ``g'(sums)``, finite where the sums are 0."""

    @abstractmethod
    def term_derivative(self, gaps: Array) -> Array:
        """Return ``t'(gaps)``, and 0 where the term has no derivative."""

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of ``sum_j w_ij k(x_i, z_j) A_jc`` by x_i.

        ``sum_j w_ij g'(s_ij) t'(x_ik - z_jk) A_jc`` for feature k, with s the sums. Where two rows have the same
        feature and the kernel has no derivative by it, 0 is used. A tile of pairs is held at a time, and used for each
        feature in turn.

        A code column has no derivative: what is returned in its place is by how much the function differs from its mean
        over the categories of Z, the rest of the row being the same. Its mean square is half that of the difference
        between two categories, as the squared slope is for a feature of unit variance, and 0 where categories do not
        matter. Derivatives by the mismatch would not be: a constant has coefficients in all categories.

        Parameters
        ----------
        X : (m, d), Z : (p, d)
            Rows; CSR ones are made dense, as the result is.
        A : (p, c)
            Coefficients.
        weights : (m, p), optional
            w; ones by default.

        Returns
        -------
        (m, c, d) float64 array
        """
        dtype = np.promote_types(rows_dtype(X), rows_dtype(Z))
        shift = self.shift_for(as_rows(Z))
        left, right = (self._placed(_dense(as_rows(rows, dtype)), shift) for rows in (X, Z))
        xp = namespace_of(left)
        A = xp.asarray(A, dtype)
        d = left.shape[1]
        out = xp.zeros((left.shape[0], A.shape[1], d), np.float64)
        sums, codes = self.sums(), set(self.categories)
        shares = {k: _shares(right[:, k]) for k in self.categories}
        mismatches = dict(zip(self.categories, self._mismatch_terms, strict=True))
        for cols in slices(right.shape[0], TILE_ROWS):
            points = sums.points(right[cols])
            for rows in slices(left.shape[0], TILE_ROWS):
                found = sums.block(left[rows], points)
                counted = 1.0 if weights is None else weights[rows, cols]
                slope = self.slope(found) * counted
                for k in range(d):
                    gaps = left[rows, k, None] - right[None, cols, k]
                    if k in codes:
                        each = self._mismatched(found, gaps != 0, mismatches[k], shares[k][cols]) * counted
                    else:
                        each = slope * self.term_derivative(gaps)
                    out[rows, :, k] += each @ A[cols]
        return self._by_features(out)

    def _mismatched(self, sums: Array, differ: Array, term: float, shares: Array) -> Array:
        """Return what pairs contribute to the difference from the mean over categories, which have `shares` (p,)."""
        xp = namespace_of(sums)
        agreeing = xp.maximum(sums - term * differ, 0)
        gain = self._values(agreeing) - self._values(agreeing + term)
        found: Array = gain * (~differ - shares[None])
        return found

    def _values(self, sums: Array) -> Array:
        """Return ``g(sums)``."""
        return evaluate(self.program, {name: sums.copy() for name in DIFFERENCES}, namespace_of(sums))

    def _by_features(self, gradients: Array) -> Array:
        """Return gradients (m, c, d) by features, for those by :meth:`transform`'s; code columns stay as they are."""
        if self._map is None:
            return gradients
        xp = namespace_of(gradients)
        found = xp.stack([self._map.backward(gradients[:, c]) for c in range(gradients.shape[1])], axis=1)
        found[:, :, self._at] = gradients[:, :, self._at]
        return found

    def _counted(self, sums: Expression) -> Expression:
        """Return a sum of differences, capped where there are categories."""
        return Pair.capped(sums) if self.categories else sums

    def _codes(self, n_features: int) -> list[int]:
        if self.categories and self.categories[-1] >= n_features:
            raise DataError(
                f"the {self.name} kernel has categories in column {self.categories[-1]}, but rows have {n_features} "
                "features; give the same features as in training"
            )
        return self._at

    @cached_property
    def _code_scales(self) -> FloatArray:
        """What the code columns are divided by in :meth:`transform`, but for rounding."""
        applied = np.asarray(1.0 if self._applied is None else self._applied, np.float64)
        return in_range(np.broadcast_to(applied, len(self.categories)) if not applied.ndim else applied[self._at])

    @property
    def _mismatch_terms(self) -> list[float]:
        """The term of a mismatch in each code column."""
        terms = self.sums().program.difference
        assert terms is not None
        found: list[float] = terms.of(1 / self._code_scales).tolist()
        return found

    @property
    def _at(self) -> list[int]:
        return list(self.categories)


@dataclass(frozen=True)
class DifferenceSum(Kernel):
    """The sum of the terms of a kernel, in place of a kernel: what length scales are taken from, and derivatives."""

    name: ClassVar[str] = "difference_sum"

    kernel: DifferenceKernel

    def formula(self, pair: Pair) -> Expression:
        return self.kernel.sum(pair)

    def caps(self, n_features: int) -> FloatArray | None:
        return self.kernel.caps(n_features)

    def spec(self) -> Spec:
        raise SpecError("a sum of differences has no spec; use that of the kernel")


def _shares(codes: Array) -> Array:
    """Return for each of the codes (p,) the share of those that are equal to it."""
    xp = namespace_of(codes)
    _, place, counts = xp.unique(codes, return_inverse=True, return_counts=True)
    found: Array = counts[place.reshape(-1)] / codes.shape[0]
    return found


def _dense(rows: Array) -> Array:
    return rows.toarray() if is_sparse(rows) else rows
