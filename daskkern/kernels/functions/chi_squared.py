"""The chi-squared kernels of histograms, whose features are non-negative."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.csr import with_entries
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.engines.quotient_sums import quotient_sums
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.callable_kernel import ValuesKernel
from daskkern.kernels.parameters import as_number
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rows import as_rows, is_unchecked, module_of


@dataclass(frozen=True)
class _OfHistograms(ValuesKernel):
    """A kernel of features of 0 or more, which are checked when rows are prepared, once for all their products.

    On a GPU a look at the rows of every batch would wait for it: there, negative features become NaN, and so do all
    values of their rows.
    """

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        if module_of(Z) is np or not is_unchecked():
            self._check(Z)
            return super().points(Z, placement, blocks, dtype=dtype, precision=precision)
        Z = rounded(_marked(Z), precision, checked=False)
        side = Side(Z, None, None, None)
        return Points(Z.shape[0], Z.shape[1], Z.dtype, PLAIN, cut_blocks(Z.shape[0], blocks), side, precision=precision)

    def left(self, X: Array, right: Points) -> Left:
        return super().left(self._valid(rows_like(X, right)), right)

    def diagonal(self, X: Array) -> Array:
        return super().diagonal(self._valid(as_rows(X)))

    def check_rows(self, rows: Array) -> None:
        self._check(rows)

    def _valid(self, rows: Array) -> Array:
        if module_of(rows) is not np:
            return _marked(rows)
        self._check(rows)
        return rows

    def _check(self, rows: Array) -> None:
        numbers = rows.data if is_sparse(rows) else rows
        if numbers.size and not bool(numbers.min() >= 0):
            raise DataError(
                "the chi-squared kernels need features of 0 or more, but found negative ones; take scale=None, "
                "or ingest with --scale none (minmax makes numbers below the least of the training rows negative)"
            )


def _marked(rows: Array) -> Array:
    """Return rows with NaN in place of negative features, without waiting for the device."""
    xp = module_of(rows)
    return _with_data(rows, lambda numbers: xp.where(numbers >= 0, numbers, xp.nan).astype(numbers.dtype, copy=False))


@dataclass(frozen=True)
class AdditiveChiSquared(_OfHistograms):
    """``k(x, z) = sum_j 2 x_j z_j / (x_j + z_j)`` of features of 0 or more; a term of two zeros is 0.

    A fit leaves such rows as they are (``scale="auto"``); ingest with ``--scale none`` or ``minmax``.

    References
    ----------
    Vedaldi and Zisserman, "Efficient additive kernels via explicit feature maps", PAMI 2012, table 1.
    """

    name: ClassVar[str] = "additive_chi2"

    def values(self, X: Array, Z: Array) -> Array:
        return _sums(X, Z, "harmonic")

    def formula(self, pair: Pair) -> Expression:
        raise SpecError(_NO_FORMULA.format(self.name))

    def spec(self) -> Spec:
        return {"name": self.name}


@dataclass(frozen=True)
class ChiSquared(_OfHistograms):
    """``k(x, z) = exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j))`` of features of 0 or more.

    A fit leaves such rows as they are (``scale="auto"``); ingest with ``--scale none`` or ``minmax``.

    Parameters
    ----------
    gamma : float
        Positive.

    References
    ----------
    Zhang, Marszalek, Lazebnik and Schmid, "Local features and kernels for classification of texture and object
    categories", IJCV 2007, equation 2.
    """

    name: ClassVar[str] = "chi2"

    gamma: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < as_number(self.gamma) < np.inf:
            raise SpecError(f"got gamma={self.gamma!r} for the chi2 kernel; give a positive number")
        object.__setattr__(self, "gamma", float(self.gamma))

    def values(self, X: Array, Z: Array) -> Array:
        found = _sums(X, Z, "chi_squared")
        return namespace_of(found).exp(found * -self.gamma)

    def formula(self, pair: Pair) -> Expression:
        raise SpecError(_NO_FORMULA.format(self.name))

    def spec(self) -> Spec:
        return {"name": self.name, "gamma": self.gamma}


_NO_FORMULA = "the {} kernel sums quotients of features: it has no formula of products or differences, and no gradients"


def _sums(X: Array, Z: Array, term: str) -> Array:
    """Return the sums (m, p) over the features of a term; see :mod:`daskkern.kernels.engines.quotient_sums`."""
    return quotient_sums(_dense(X), _dense(Z), term)


def _with_data(rows: Array, work: Callable[[Array], Array]) -> Array:
    """Return rows, dense or CSR, with their numbers changed."""
    return with_entries(rows, work(rows.data)) if is_sparse(rows) else work(rows)


def _dense(rows: Array) -> Array:
    return rows.toarray() if is_sparse(rows) else rows
