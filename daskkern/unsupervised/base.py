"""Base class of the unsupervised estimators: rows without targets, settings of the fit, and its model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from textwrap import shorten
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import is_sparse, namespace_for
from daskkern.basis import AllRows, BasisSpec, Landmarks, is_basis
from daskkern.data.cubes.packages import is_cube, is_labelled
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.rows.csr import as_csr
from daskkern.data.rows.finite import check_finite
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import Scaling
from daskkern.display import rounded
from daskkern.errors import DataError, SpecError
from daskkern.estimators.checked_rows import checked_rows, checked_weight
from daskkern.estimators.frame_blocks import fit_blocks, lazy_column, named_blocks
from daskkern.estimators.frame_codes import frame_encoding
from daskkern.estimators.frames import check_raw, named
from daskkern.estimators.inputs import is_lazy, is_store, only_store, unlabelled_lazy_source
from daskkern.estimators.model_estimator import ModelEstimator
from daskkern.estimators.parameters import active_client, as_basis, as_kernel, as_seed, unknown_choice
from daskkern.losses import Squared
from daskkern.models import KernelModel
from daskkern.monitor.environment import environment
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import RowSource, SourceInfo
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.kernel_choice import with_categories
from daskkern.unsupervised.feature_map import FeatureMap, set_up
from daskkern.unsupervised.passes import RowPasses, row_passes

EXACT = 2000
"""Rows up to which ``basis="auto"`` takes all of them: the kernel matrix is then used as it is."""
_LONGEST = 200  # characters of a recorded parameter


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows of a fit, scaled, and their features.

    Attributes
    ----------
    passes : RowPasses
    features : FeatureMap
    scaling : Scaling
    settings : FitSettings
        With the resolved kernel.
    """

    passes: RowPasses
    features: FeatureMap
    scaling: Scaling
    settings: FitSettings

    @property
    def info(self) -> SourceInfo:
        return self.passes.source.info


class UnsupervisedEstimator(ModelEstimator):
    """Base class of estimators of rows without targets; it is not used by itself."""

    _random_features: ClassVar[bool] = True
    """Whether features whose inner products may be negative, as those of random features are, can be used."""

    _usual_landmarks: ClassVar[Landmarks] = Landmarks(1000)
    """What ``basis="auto"`` is for more rows."""

    def fit_settings(self, n_rows: int) -> FitSettings:
        """Return the parameters as checked settings for a fit to `n_rows` rows. SpecError names an invalid one."""
        namespace_for(self.device)
        unknown_choice(self)  # refuses other words, also where no table is encoded
        return FitSettings(
            as_kernel(self.kernel),
            Squared(),
            self._basis(n_rows),
            EigenPro(),
            seed=as_seed(self.random_state),
            dtype=self.dtype,
            device=self.device,
            scale=self.scale,
        )

    def _basis(self, n_rows: int) -> BasisSpec:
        basis: Any = as_basis(self.basis)
        if isinstance(basis, str) and basis == "auto":
            return AllRows() if n_rows <= EXACT else self._usual_landmarks
        usable = is_basis(basis) and basis.has_blocks
        if not usable or (basis.is_explicit and not basis.is_mapped and not self._random_features):
            others = ", or RandomFeatures(n)" if self._random_features else ""
            raise SpecError(
                f"got basis={basis!r:.80} for {type(self).__name__}; give 'auto', AllRows(), Landmarks(n){others}"
            )
        return basis

    @contextmanager
    def _fit_rows(self, X: Any, sample_weight: Any = None, least: int = 2) -> Iterator[FitRows]:
        """Yield the rows of a fit, of which there must be `least`, while the workers hold them."""
        with self._rows_of(self._source(X, sample_weight, least)) as of:
            yield of

    def _settings_for(self, source: RowSource) -> FitSettings:
        return with_categories(self.fit_settings(source.info.n_rows), source.info.categories)

    @contextmanager
    def _rows_of(self, source: RowSource) -> Iterator[FitRows]:
        """Yield the rows of a source while the workers hold them."""
        settings = self._settings_for(source)
        with row_passes(source, settings.dtype, active_client(self.client)) as passes:
            found = passes.once(partial(set_up, settings=settings))
            yield FitRows(passes.scaled(found.scaling), found.features, found.scaling, found.settings)

    def _source(self, X: Any, sample_weight: Any, least: int = 2, encoding: Encoding | None = None) -> RowSource:
        """Return the rows as a source without targets, whatever targets a store has.

        A frame in memory gets the `encoding`, or its own.
        """
        source: RowSource
        if is_cube(X) and not is_labelled(X):
            raise DataError(
                f"got X of type {type(X).__name__} for {type(self).__name__}, which takes tables; give its cells as "
                "rows, such as ds.to_dataframe().dropna()"
            )
        if is_store(X):
            only_store(None, sample_weight)
            opened = StoreSource.at(X)
            source = replace(opened, info=replace(opened.info, task=None, classes=None))
        elif is_lazy(X):
            source = unlabelled_lazy_source(X, sample_weight)
        elif is_dask_frame(X):
            features, encoding = fit_blocks(self, X, reset=True)
            source = named_blocks(unlabelled_lazy_source(features, lazy_column(sample_weight)), encoding)
        else:
            source = self._array_source(X, sample_weight, least, encoding)
        if not isinstance(source, ArraySource) and not is_dask_frame(X):
            self.__dict__.pop("feature_names_in_", None)
        n, names = source.info.n_rows, getattr(self, "feature_names_in_", None)
        self.n_features_in_ = source.info.n_features if names is None else len(names)
        if n < least:
            raise DataError(f"got n_samples={n} rows for {type(self).__name__}; expected at least {least}")
        return named(source, getattr(self, "feature_names_in_", None))

    def _array_source(self, X: Any, sample_weight: Any, least: int, encoding: Encoding | None) -> ArraySource:
        encoding = frame_encoding(X, unknown_choice(self)) if encoding is None else encoding
        check_raw(None if encoding is not None else X)
        X = checked_rows(
            self,
            X,
            encoding,
            reset=True,
            dtype="numeric",
            order="C",
            accept_sparse="csr",
            ensure_all_finite=False,
            ensure_min_samples=least,
        )
        check_finite(X)
        weight = checked_weight(sample_weight, X)
        stored = int(X.nnz) if is_sparse(X) else None
        info = SourceInfo(X.shape[0], X.shape[1], None, None, Scaling(), None, 0, True, stored, encoding=encoding)
        return ArraySource(as_csr(X) if is_sparse(X) else X, None, weight, info)

    def _model(
        self, of: FitRows, W: FloatArray, shift: FloatArray | None, classes: tuple[int, ...] | None = None
    ) -> KernelModel:
        """Return the model with the outputs ``phi(x)^T W + shift``: values (c,), or scores of classes; W is (r, c)."""
        return KernelModel(
            kernel=of.features.columns,
            points=of.features.points,
            coef=of.features.coefficients(W),
            loss="squared",
            task="regression" if classes is None else "classification",
            classes=classes,
            scaling=of.scaling,
            target_shift=shift,
            feature_names=of.info.feature_names,
            encoding=of.info.encoding,
            single_target=classes is not None or W.shape[1] == 1,
            provenance=self._provenance(of.passes.source, of.settings),
        )

    def _provenance(self, source: RowSource, settings: FitSettings) -> dict[str, Any]:
        return {
            "method": type(self).__name__,
            "parameters": {n: _plain(value) for n, value in self.get_params(deep=False).items() if n != "client"},
            "settings": settings.summary(),
            "data": source.description(),
            "environment": environment(),
        }


def _plain(value: Any) -> bool | int | float | str | None:
    """Return a parameter as a JSON value: others than finite numbers and texts in the words of their repr."""
    if value is None or isinstance(value, bool | int | str) or (type(value) is float and np.isfinite(value)):
        return value
    return shorten(rounded(repr(value)), _LONGEST, placeholder=" ...")


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a parameter as an int; SpecError unless it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SpecError(f"got {name}={value!r}; expected a whole number of at least {least}")
    return int(value)


def signs_fixed(vectors: HostArray) -> HostArray:
    """Return columns with the largest number of each positive: libraries differ in the signs of eigenvectors."""
    largest = np.abs(vectors).argmax(axis=0)
    found: HostArray = vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return found
