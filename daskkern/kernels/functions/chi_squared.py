"""The chi-squared kernels of histograms: features of 0 or more."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.engines.quotient_sums import quotient_sums
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.callable_kernel import ValuesKernel
from daskkern.kernels.parameters import as_number


@dataclass(frozen=True)
class AdditiveChiSquared(ValuesKernel):
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
class ChiSquared(ValuesKernel):
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
    """Return the sums (m, p) over the features of a term, one of :data:`daskkern.kernels.engines.quotient_sums.TERMS`.

    Raises
    ------
    DataError
        For features below 0.
    """
    X, Z = _dense(X), _dense(Z)
    for rows in (X, Z):
        if rows.size and not bool(rows.min() >= 0):
            raise DataError(
                "the chi-squared kernels need features of 0 or more, but found negative ones; take scale=None, "
                "or ingest with --scale none or minmax"
            )
    return quotient_sums(X, Z, term)


def _dense(rows: Array) -> Array:
    return rows.toarray() if is_sparse(rows) else rows
