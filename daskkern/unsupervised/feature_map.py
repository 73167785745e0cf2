"""Feature maps whose inner products are kernel values: coordinates in the span of landmarks, or random features.

With all rows as landmarks the coordinates are exact on these rows: what is computed from them is what the kernel
matrix of all rows gives.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.namespace import namespace_with, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec, Landmarks
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.kernels import Kernel
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.explicit_columns import request_of
from daskkern.training.setup.scaling import learn_scaling, scaled_points, with_scaling
from daskkern.training.setup.shared import some_rows

BLOCK = 2048
"""Rows whose features are computed at once."""
_ROUNDING = 10  # times the rounding of the dtype: landmarks that are as close to the span of others are left out


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """``phi(x) = T^T k(Z, x)`` (r,), or random features of a kernel.

    Attributes
    ----------
    kernel : Kernel
        The kernel that the inner products are values of, with every parameter known.
    columns : Kernel
        The function of the columns: the kernel itself, or that of random features.
    points : (p, d) array or CSR matrix
        Landmarks Z, or the parameters of random features; scaled.
    projection : (p, r) array or None
        T; None where the columns are the features.
    device : "cpu", "gpu" or "auto"
    """

    kernel: Kernel
    columns: Kernel
    points: Any
    projection: HostArray | None
    device: str

    @property
    def n_features(self) -> int:
        """Number of features r."""
        return int(self.points.shape[0] if self.projection is None else self.projection.shape[1])

    def coefficients(self, W: FloatArray) -> HostArray:
        """Return the coefficients (p, c) of the columns of which ``phi(x)^T W`` is a sum, in the dtype of the points.

        W is (r, c).
        """
        made = W if self.projection is None else self.projection.astype(np.float64) @ W
        return np.ascontiguousarray(made.astype(self.points.dtype))

    def placed(self) -> Callable[[FeatureRows], Array]:
        """Return the function that gives the features (m, r) of scaled rows, on a GPU where the device has room."""
        p, r, d = self.points.shape[0], self.n_features, self.points.shape[1]
        xp = namespace_with(self.device, 16.0 * (BLOCK * (p + r + d) + p * (r + d) + r * r))
        points = self.columns.points(to_device(self.points, xp), self.columns.placement_for(self.points).on(xp))
        projection = None if self.projection is None else xp.asarray(self.projection)

        def features(X: FeatureRows) -> Array:
            values = self.columns.block(to_device(X, xp), points)
            return values if projection is None else values @ projection

        return features

    def blocks(self, rows: Rows, part: slice) -> Iterator[tuple[Array, FeatureRows, HostArray | None]]:
        """Yield the features (m, r) of blocks of rows, the rows themselves, and their weights (m,) or None."""
        features = self.placed()
        for cut in slices(part.stop - part.start, BLOCK):
            start, stop = part.start + cut.start, part.start + cut.stop
            block = rows.read(start, stop, Fields.X | Fields.weight)
            assert block.X is not None
            phi = features(block.X)
            if not bool(np.isfinite(to_host(phi.sum()))):
                raise DataError(
                    f"some of the rows {start} to {stop} have values too large for {rows.dtype}; scale the features"
                )
            yield phi, block.X, block.weight


@dataclass(frozen=True, eq=False)
class SetUp:
    """What a fit begins with: the scaling of its rows, and features with settings that hold the resolved kernel."""

    scaling: Scaling
    settings: FitSettings
    features: FeatureMap


def set_up(source: RowSource, settings: FitSettings) -> SetUp:
    """Learn the scaling, the parameters of the kernel, and the landmarks, from the rows of `source`."""
    scaling, settings = scaled_settings(source, settings)
    rows = with_scaling(source, scaling).open(settings.dtype)
    return SetUp(scaling, settings, feature_map(rows, settings))


def scaled_settings(source: RowSource, settings: FitSettings) -> tuple[Scaling, FitSettings]:
    """Return the scaling of the rows, and the settings for scaled rows, with every parameter of the kernel known."""
    scaling = learn_scaling(source, settings)
    rows = with_scaling(source, scaling).open(settings.dtype)
    basis = scaled_points(settings.basis, source, scaling)
    return scaling, replace(settings, basis=basis, kernel=settings.kernel.resolve(some_rows(rows, settings)))


def feature_map(rows: Rows, settings: FitSettings) -> FeatureMap:
    """Return the features of the basis of `settings`, whose kernel is resolved; all rows are distinct landmarks.

    Memory: the landmarks, and four (p, p) matrices in float64.

    Raises
    ------
    DataError
        When the kernel is not finite on the landmarks.
    """
    basis: BasisSpec = settings.basis
    kernel = settings.kernel
    if basis.all_rows:
        basis = Landmarks(rows.n_rows)
    elif basis.is_mapped:
        basis = spanned(basis)
    found = basis.columns(rows, request_of(replace(settings, basis=basis)))
    Z = found.chosen.points
    if basis.is_explicit:
        return FeatureMap(kernel, found.kernel, Z, None, settings.device)
    kept, T = _independent(kernel, Z, settings.dtype, settings.device)
    return FeatureMap(kernel, kernel, Z[kept], T, settings.device)


def spanned(basis: BasisSpec) -> Landmarks:
    """Return the landmarks whose span a mapped basis is."""
    n, selector = basis.n_landmarks, basis.selection
    assert n is not None
    assert selector is not None
    return Landmarks(n, selector)


def _independent(kernel: Kernel, Z: Any, dtype: str, device: str) -> tuple[IntArray, HostArray]:
    """Return landmarks whose kernel columns are independent, by number (r,), and T (r, r) of their features.

    With the pivoted Cholesky decomposition ``K = L L^T``, ``T = L^-T``: the coordinates of a row in the orthonormal
    basis that Gram and Schmidt make of the landmarks, the next one always that farthest from the span of the others.
    It ends at rounding errors. A third of p^3 multiply-adds: a small part of an eigendecomposition.
    """
    xp = namespace_with(device, 16.0 * Z.shape[0] * (Z.shape[0] + Z.shape[1]))
    placed = to_device(Z, xp)
    K = to_host(kernel.block(placed, kernel.points(placed, kernel.placement_for(Z).on(xp)))).astype(np.float64)
    if not np.isfinite(K).all():
        raise DataError(f"the {kernel.name} kernel is not finite on the landmarks; scale the features")
    largest = float(K.diagonal().max())
    if not largest > 0:
        raise DataError(f"the {kernel.name} kernel is 0 on all landmarks; check the features")
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(K, lower=1, tol=_ROUNDING * np.finfo(dtype).eps * largest)
    lower = np.tril(factor[:rank, :rank])
    T = scipy.linalg.solve_triangular(lower, np.eye(rank), lower=True, check_finite=False).T
    return (pivots[:rank] - 1).astype(np.int64), np.ascontiguousarray(T.astype(dtype))
