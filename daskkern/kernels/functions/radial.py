"""The base class of radial kernels: length scales and metrics, and gradients with respect to rows."""

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices, tile_shape
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.coordinates import Coordinates
from daskkern.kernels.derivative import differentiate
from daskkern.kernels.formula import PAIR, Expression, Pair
from daskkern.kernels.functions.length_scale import (
    LengthScale,
    Matrix,
    check_factor,
    check_metric,
    median_distance,
    metric_factor,
    plain,
)
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import as_rows, module_of, rows_dtype


@dataclass(frozen=True)
class RadialKernel(ScaledDistanceKernel):
    """``k(x, z) = profile(r)`` with ``r = |x - z| / length_scale``.

    Parameters
    ----------
    length_scale : float, "median", sequence (d,) or matrix (d, d)
        In the units of the features. "median" is the median distance between training rows. One per feature:
        ``r^2 = sum_i (x_i - z_i)^2 / s_i^2``. A matrix L: ``r^2 = |L^-1 (x - z)|^2``, the same for a diagonal L.
    metric : matrix (d, d), optional
        M in ``r^2 = (x - z)^T M (x - z) / length_scale^2``; symmetric, positive semi-definite, of any rank. The
        length scale is then a number or "median". See :meth:`from_metric`.
    factor : matrix (d, k), optional
        F in ``M = F F^T``, in place of the metric: rows are used as ``F^T x`` (k,), and nothing of d times d is kept.

    Notes
    -----
    Arrays are stored as tuples, so that kernels compare and hash. Scales per feature leave CSR rows sparse; a matrix
    or metric makes them dense, (m, k) for a metric or factor of rank k, a batch at a time.
    """

    metric: Matrix | None = field(default=None, kw_only=True, repr=False)
    factor: Matrix | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("metric", "factor") if getattr(self, name) is not None]
        if not given:
            return
        if len(given) == 2 or isinstance(self.length_scale, tuple):
            raise SpecError(
                f"got a {given[0]} and {'a factor' if len(given) == 2 else 'length scales per feature'} for the "
                f"{self.name} kernel; give a metric or a factor with a number or 'median'"
            )
        check = check_metric if self.factor is None else check_factor
        object.__setattr__(self, given[0], check(self.name, getattr(self, given[0])))

    @classmethod
    def from_metric(cls, metric: npt.ArrayLike, **parameters: Any) -> Self:
        """Return the kernel with ``r^2 = (x - z)^T M (x - z)`` for `metric` M (d, d), as recursive feature machines
        mean it; `parameters` are the constructor's.
        """
        return cls(**parameters, metric=metric)  # type: ignore[arg-type]

    @abstractmethod
    def profile(self, r: Expression, r2: Expression) -> Expression:
        """Return the kernel's value in terms of r and r squared. Use only one of them where possible."""

    def formula(self, pair: Pair) -> Expression:
        return self.profile(*self._radius(pair))

    def derivative(self, pair: Pair) -> Expression:
        """Return the formula's derivative by ``|x - z|^2``, 0 at equal rows where it has none."""
        return differentiate(self.formula(pair), "squared_distance")

    def spec(self) -> Spec:
        given = {name: getattr(self, name) for name in ("metric", "factor")}
        return {**super().spec(), **{name: plain(value) for name, value in given.items() if value is not None}}

    def median(self, rows: Array) -> float:
        return median_distance(rows)

    def distances(self, gaps: Array) -> Array:
        found: Array = np.sqrt((gaps * gaps).sum(axis=1))
        return found

    @property
    def has_units(self) -> bool:
        return self.has_metric or super().has_units

    @property
    def has_metric(self) -> bool:
        """Whether there is a metric, or a factor of one."""
        return self.metric is not None or self.factor is not None

    def weighted(self, factor: npt.ArrayLike, length_scale: LengthScale = "median") -> Self:
        if np.ndim(factor) == 1:
            return super().weighted(factor, length_scale)
        return replace(self, length_scale=length_scale, metric=None, factor=factor)  # type: ignore[arg-type]

    @property
    def coordinates(self) -> Hashable:
        return (self._applied, self.metric, self.factor) if self._map is not None else ()

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of ``sum_j w_ij k(x_i, z_j) A_jc`` by x_i.

        ``2 (x_i sum_j k'_ij A_jc - sum_j k'_ij A_jc z_j)`` with k' the derivative by the squared distance
        (:meth:`derivative`) times w, of which one tile is held at a time and used for every column of A. Where two rows
        are equal and the kernel has no gradient, 0 is used.

        Parameters
        ----------
        X : (m, d), Z : (p, d)
            Rows; CSR points stay sparse, CSR rows X become dense a tile at a time.
        A : (p, c)
            Coefficients.
        weights : (m, p), optional
            w; ones by default.

        Returns
        -------
        (m, c, d) float64 array
        """
        dtype = np.promote_types(rows_dtype(X), rows_dtype(Z))
        placement = self.placement_for(Z)
        shift, dtype = placement.shift, np.dtype(np.float64) if placement.wide else dtype
        left, right = (self._placed(as_rows(rows, dtype), shift) for rows in (X, Z))
        slope = _Slope(self.derivative(PAIR))
        points = slope.points(right)
        xp = module_of(left)
        A = xp.asarray(A, dtype)
        out = xp.empty((X.shape[0], A.shape[1], X.shape[1]), np.float64)
        for part in slices(X.shape[0], tile_shape(xp, X.shape[0], 0)[0]):
            slopes = slope.block(slope.left(left[part], points), points)
            if weights is not None:
                slopes = slopes * weights[part]
            rows = _dense(left[part])
            for c in range(A.shape[1]):
                weighted = slopes * A[:, c]
                gradient = 2 * (rows * weighted.sum(axis=1, dtype=np.float64)[:, None] - weighted @ right)
                out[part, c] = gradient if self._map is None else self._map.backward(gradient)
        return out

    def _radius(self, pair: Pair) -> tuple[Expression, Expression]:
        return pair.distance * (1 / self.unit), pair.squared_distance * self.unit**-2

    @cached_property
    def _map(self) -> Coordinates | None:
        if not self.has_metric:
            return super()._map
        factor = np.asarray(self.factor) if self.metric is None else metric_factor(self.metric)
        return Coordinates(self.name, factor / np.asarray(self._applied or 1.0))


@dataclass(frozen=True)
class _Slope(Kernel):
    """A function of two rows that is not a kernel, for products only."""

    expression: Expression

    def formula(self, pair: Pair) -> Expression:
        return self.expression

    def spec(self) -> Spec:
        raise SpecError("the derivative of a kernel has no spec; use that of the kernel")


def _dense(rows: Array) -> Array:
    return rows.toarray() if is_sparse(rows) else rows
