"""Explicit feature maps as a scikit-learn transformer."""

import os
from dataclasses import replace
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import zarr
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec, RandomFeatures, is_basis
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.ingest.readers.frames import arrow_table, is_frame
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.csr import as_csr
from daskkern.data.rows.finite import check_chunk, check_finite, refuse_masks
from daskkern.data.rows.rows import Rows
from daskkern.data.schema.encoding import Encoding, code_columns, feature_names_of
from daskkern.data.schema.layout import float32_rounds
from daskkern.data.schema.same_columns import column_names, other_codes, other_name
from daskkern.data.schema.schema import Scaling
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError
from daskkern.estimators.checked_rows import checked_rows
from daskkern.estimators.frame_blocks import lazy_features
from daskkern.estimators.frame_codes import check_columns, frame_encoding, needs_encoding
from daskkern.estimators.frames import as_table
from daskkern.estimators.inputs import is_lazy, is_store
from daskkern.estimators.parameters import NestedEstimator, as_basis, as_kernel, as_seed, fits, unknown_choice
from daskkern.evaluation.score import raw_blocks
from daskkern.kernels import Kernel
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.explicit_columns import column_functions
from daskkern.training.setup.kernel_choice import with_categories
from daskkern.training.setup.shared import some_rows

_BLOCK = 2048


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NestedEstimator):
    """A feature map whose inner products equal or approximate a kernel's values, for pipelines with linear models.

    Parameters
    ----------
    kernel : Kernel, str or function of two tables of rows
        Such as ``Gaussian(5.0)`` or ``"gaussian:median"``.
    basis : RandomFeatures, NystromFeatures, Landmarks, int or None
        Random features, the span of landmarks in orthonormal coordinates (Nystrom features), or the kernel values at
        landmarks. A number is ``RandomFeatures(n)``, and None ``RandomFeatures(1000)``.
    random_state : int, RandomState or None
        Seed of all random draws.
    dtype : "float32" or "float64"
        The dtype of the features; Nystrom features are computed in float64.
    handle_unknown : "error" or "ignore"
        What becomes of texts that the training rows lack: an error, or columns of 0 where each category is a column.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with the parameters that were estimated from the data.
    n_features_in_ : int

    Notes
    -----
    `fit` takes arrays, sparse matrices and stores. It reads only the rows of a store that it needs, and `transform`
    applies the scaling that the store records. `transform` of a dask array is lazy.
    """

    _columns_of_numbers = RandomFeatures

    def __init__(
        self,
        kernel: Kernel | str = "gaussian:median",
        basis: BasisSpec | None = None,
        random_state: Any = 0,
        dtype: str = "float32",
        handle_unknown: str = "error",
    ) -> None:
        self.kernel = kernel
        self.basis = basis
        self.random_state = random_state
        self.dtype = dtype
        self.handle_unknown = handle_unknown

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    @fits
    def fit(self, X: Any, y: Any = None) -> "KernelFeatures":
        """Draw the features for rows `X`: an array, a sparse matrix, or a store by path or group. `y` is not used."""
        X = as_table(X)
        basis = RandomFeatures(1000) if self.basis is None else as_basis(self.basis, RandomFeatures)
        if not is_basis(basis) or basis.of_one_fit:
            raise SpecError(
                f"got basis={basis!r} for KernelFeatures; give RandomFeatures(n), NystromFeatures(n) or Landmarks(n)"
            )
        unknown_choice(self)  # refuses other words, also where no table is encoded
        settings = FitSettings(
            as_kernel(self.kernel), Squared(), basis, EigenPro(), seed=as_seed(self.random_state), dtype=self.dtype
        )
        if basis.is_mapped or _is_wide(X):
            # The map of landmarks divides by square roots of small eigenvalues, which amplifies rounding errors; and
            # of values far from 0, such as seconds since 1970, float32 keeps nothing of what tells rows apart.
            settings = replace(settings, dtype="float64")
        self._working = np.dtype(settings.dtype)
        rows, self._scaling, categories = self._rows(X)
        self._width = rows.n_features
        self.kernel_ = with_categories(settings, categories).kernel.resolve(some_rows(rows, settings))
        self._function, weights = column_functions(rows, replace(settings, kernel=self.kernel_))
        self._points = self._function.points(weights, self._function.placement_for(weights))
        self._n_features_out = int(weights.shape[0])
        return self

    def transform(self, X: Any) -> Any:
        """Return the features (n, r) of rows `X` in the units of the training data.

        NumPy in, NumPy out; lazy for dask arrays and data frames. A store is streamed.
        """
        check_is_fitted(self, "kernel_")
        if is_dask_frame(X):
            if self._encoding is None and hasattr(self, "feature_names_in_"):
                check_columns(tuple(map(str, self.feature_names_in_)), X)
            elif self._encoding is None:
                self._check_names(column_names(X), "X")
            X = lazy_features(X, self._encoding, unknown_choice(self))
        if is_lazy(X):
            refuse_masks(X, "X")
            fix_places(X)
            self._check_width(X.shape[1] if X.ndim == 2 else 0, f"X with shape {X.shape}")
            lazy = X.rechunk({1: -1})
            width = self._n_features_out
            return da.map_blocks(self._chunk, lazy, dtype=self.dtype, chunks=(lazy.chunks[0], (width,)))
        if is_store(X):
            store = open_store(X)
            self._check_width(store.info.n_features, f"the store {store.path}")
            self._check_names(store.info.feature_names, f"the store {store.path}")
            coded = other_codes(self._encoding, store.info.encoding)
            if coded is not None:
                raise DataError(
                    f"the categories of column {coded!r} have other numbers in the store {store.path} than in fit; "
                    "ingest it with --like and the training store"
                )
            return np.concatenate([self._block(block) for block in raw_blocks(store)])
        return self._block(self._checked(X))

    def _checked(self, X: Any) -> Any:
        """Return rows in memory as features, in the order of those of the fit."""
        if self._names is None or hasattr(self, "feature_names_in_") or needs_encoding(X, self._encoding):
            return checked_rows(self, X, self._encoding, reset=False, accept_sparse="csr", dtype="numeric")
        self._check_names(column_names(X), "X")  # of a store; scikit-learn would warn of names that it does not know
        refuse_masks(X, "X")
        rows = check_array(as_table(X), estimator=self, accept_sparse="csr")
        self._check_width(rows.shape[1], f"X with shape {rows.shape}")
        return rows

    def _check_names(self, found: tuple[str, ...] | None, what: str) -> None:
        other = other_name(self._names, found)
        if other is not None:
            raise DataError(
                f"{what} has {other[1]!r} where the features were fitted to {other[0]!r}; give the same columns in the "
                "same order"
            )

    def _check_width(self, found: int, what: str) -> None:
        if found != self._width:
            raise DataError(f"got {what}, of {found} features; expected rows of {self._width} features, as in fit")

    def _chunk(self, X: Any, block_info: Any = None) -> HostArray:
        refuse_masks(X, "a chunk of X")
        check_chunk(X, block_info)
        return self._block(X)

    def _block(self, X: Any) -> HostArray:
        check_finite(X)
        out = np.empty((X.shape[0], self._n_features_out), self.dtype)
        for rows in slices(X.shape[0], _BLOCK):
            out[rows] = self._function.block(self._scaling.apply(X[rows], self._working), self._points)
        if not np.isfinite(out).all():
            raise DataError(f"some rows have values too large for {self.dtype}; scale the features")
        return out

    def _rows(self, X: Any) -> tuple[Rows, Scaling, tuple[int, ...]]:
        self._encoding: Encoding | None = None
        self._names: tuple[str, ...] | None = None  # of the features
        if is_store(X):
            source = StoreSource.at(X if isinstance(X, zarr.Group) else os.fspath(X))
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = source.info.n_features
            self._encoding, self._names = source.info.encoding, source.info.feature_names
            return source.open(self._working.name), source.info.scaling or Scaling(), source.info.categories
        if is_lazy(X) or is_dask_frame(X):
            kind = "array" if is_lazy(X) else "dataframe"
            raise DataError(f"got a dask {kind} for fit; give a store, or a sample of its rows in memory")
        self._encoding = frame_encoding(X, unknown_choice(self))
        X = checked_rows(
            self, X, self._encoding, reset=True, accept_sparse="csr", dtype="numeric", ensure_min_samples=2
        )
        check_finite(X)
        known = getattr(self, "feature_names_in_", None) if self._encoding is None else feature_names_of(self._encoding)
        self._names = None if known is None else tuple(known)
        rows = ArrayRows(as_csr(X) if is_sparse(X) else X, None, dtype=self._working)
        return rows, Scaling(), code_columns(self._encoding)


def _is_wide(X: Any) -> bool:
    """Return whether an array or frame has floats or integers that float32 rounds."""
    if is_store(X):
        return False
    if is_frame(X) and not hasattr(X, "iloc"):
        kinds = [
            kind for kind in arrow_table(X).schema.types if pa.types.is_integer(kind) or pa.types.is_floating(kind)
        ]
        return any(float32_rounds(np.dtype(kind.to_pandas_dtype())) for kind in kinds)
    dtypes = X.dtypes if hasattr(X, "columns") else [getattr(X, "dtype", np.dtype(float))]
    return any(float32_rounds(getattr(dtype, "numpy_dtype", dtype)) for dtype in dtypes)
