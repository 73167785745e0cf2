"""k-means in the feature space of a kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from daskkern.arrays import HostArray
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec
from daskkern.errors import SpecError
from daskkern.estimators.checked_rows import checked_weight
from daskkern.estimators.inputs import host_weights, is_lazy, lazy_weights
from daskkern.estimators.parameters import computed_by_client, fits
from daskkern.kernels import Kernel
from daskkern.models import KernelModel
from daskkern.unsupervised.base import UnsupervisedEstimator, whole
from daskkern.unsupervised.feature_map import BLOCK
from daskkern.unsupervised.lloyd import Embedding, KMeansSettings, NearestCentres, k_means


class KernelKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, UnsupervisedEstimator):
    """k-means of rows in the feature space of a kernel: ``min sum_i w_i |phi(x_i) - m_c(i)|^2`` over clusters c.

    The features phi are those of a basis; with all rows as the basis this is kernel k-means itself. Starts by
    k-means++ on a sample of the rows are followed by Lloyd's passes over all of them.

    Parameters
    ----------
    n_clusters : int
        How many clusters to find.
    kernel : Kernel, str or function of two tables of rows
        The kernel, by name such as "gaussian:median", as an object, or as a function of two tables.
    n_init : int
        Starts, of which the best one is continued.
    max_iter : int
        Most iterations of a start, and most passes over all rows where these are more than the sample.
    tol : float
        Passes end when one lowers the inertia by less than this share.
    basis : Landmarks, AllRows, NystromFeatures, RandomFeatures or "auto"
        "auto" takes all rows up to 2,000, where the result is exact, and 1,000 landmarks for more rows.
    scale
        As for :class:`daskkern.KernelPCA`.
    random_state
        As for :class:`daskkern.KernelPCA`.
    dtype
        As for :class:`daskkern.KernelPCA`.
    device
        As for :class:`daskkern.KernelPCA`.
    client
        As for :class:`daskkern.KernelPCA`.
    handle_unknown
        As for :class:`daskkern.KernelPCA`.

    Attributes
    ----------
    labels_ : (n,) int32
        A lazy dask array after a fit to one.
    inertia_ : float
        Weighted sum of the squared distances of the features from the nearest centre. What lies outside the span of
        landmarks is not counted; :meth:`score` counts it.
    n_iter_ : int
    model_ : KernelModel
        Its classes are the clusters; :meth:`save` writes it.
    kernel_ : Kernel
    n_features_in_ : int

    References
    ----------
    Dhillon, Guan and Kulis, "Kernel k-means, spectral clustering and normalized cuts", KDD 2004, equation 1. Wang,
    Gittens and Mahoney, "Scalable kernel k-means clustering with Nystrom approximation", JMLR 2019.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        kernel: Kernel | str = "gaussian:median",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-4,
        basis: BasisSpec | str = "auto",
        scale: str | None = "auto",
        random_state: Any = 0,
        dtype: str = "float64",
        device: str = "auto",
        client: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.n_clusters, self.kernel, self.n_init = n_clusters, kernel, n_init
        self.max_iter, self.tol, self.basis, self.scale = max_iter, tol, basis, scale
        self.random_state, self.dtype, self.device, self.client = random_state, dtype, device, client
        self.handle_unknown = handle_unknown

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    @fits
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "KernelKMeans":
        """Cluster rows `X`; see :meth:`daskkern.KernelPCA.fit`. A store brings its own weights."""
        k, n_init = whole("n_clusters", self.n_clusters), whole("n_init", self.n_init)
        if not 0 <= self.tol < 1:
            raise SpecError(f"got tol={self.tol!r}; expected a number from 0 to less than 1")
        with self._fit_rows(X, sample_weight) as of:
            settings = KMeansSettings(k, n_init, whole("max_iter", self.max_iter), self.tol, of.settings.seed)
            embedding = Embedding(of.features)
            clusters = k_means(of.passes, embedding, settings)
            centres = clusters.centres
            shift = -(centres * centres).sum(axis=1)
            self.model_ = self._model(of, 2 * centres.T, shift, classes=tuple(range(k)))
            self.kernel_, self.inertia_, self.n_iter_ = of.settings.kernel, clusters.inertia, clusters.n_iter
            self._n_features_out = k
            near = NearestCentres(embedding, centres)
            self.labels_ = self.predict(X) if is_lazy(X) else of.passes.values(near)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return the clusters of the rows that are fitted; see :meth:`fit`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def predict(self, X: Any) -> Any:
        """Return the clusters (n,) int32 of rows: NumPy in, NumPy out; dask in, lazy dask out; a store is streamed."""
        check_is_fitted(self, "model_")
        return self._apply(X, codes, np.empty(0, np.int32))

    def transform(self, X: Any) -> Any:
        """Return the distances (n, n_clusters) of rows from the centres in feature space, float64; see :meth:`predict`.

        ``(k(x, x) - 2 m^T phi(x) + |m|^2)^(1/2)``
        """
        check_is_fitted(self, "model_")
        return self._apply_rows(X, _Distances(self.kernel_), np.empty((0, self._n_features_out)))

    @computed_by_client
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the sum of the weighted squared distances of rows from their centres; `y` is not used."""
        nearest = self.transform(X).min(axis=1) ** 2
        weight: Any = (lazy_weights if is_lazy(nearest) else checked_weight)(sample_weight, nearest)
        if is_lazy(weight):
            weight = weight.map_blocks(host_weights, dtype=np.float64)
        return -float((nearest if weight is None else nearest * weight).sum())


def codes(scores: HostArray) -> HostArray:
    """Return the numbers (m,) int32 of the largest of scores (m, k), one for each cluster."""
    return scores.argmax(axis=1).astype(np.int32)


@dataclass(frozen=True, eq=False)
class _Distances:
    """Distances of rows from the centres of a model."""

    kernel: Kernel

    def __call__(self, model: KernelModel, X: Any, threads: int | None) -> HostArray:
        found = np.empty((X.shape[0], model.coef.shape[1]))
        for part in slices(X.shape[0], BLOCK):
            rows = model.scaling.apply(X[part], model.points.dtype)
            scores = model.scores(rows, scaled=True, threads=threads).astype(np.float64)
            own = self.kernel.diagonal(rows).astype(np.float64)
            found[part] = np.sqrt(np.maximum(own[:, None] - scores, 0))
        return found
