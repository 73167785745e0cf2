"""Spectral clustering of the graph whose edge weights are kernel values."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.basis import BasisSpec
from daskkern.data.rows.rows import Rows
from daskkern.errors import DataError
from daskkern.estimators.inputs import is_lazy
from daskkern.estimators.parameters import fits
from daskkern.kernels import Kernel
from daskkern.linalg import top_eigenpairs
from daskkern.unsupervised.base import UnsupervisedEstimator, whole
from daskkern.unsupervised.feature_map import FeatureMap
from daskkern.unsupervised.kernel_k_means import codes
from daskkern.unsupervised.lloyd import Embedding, KMeansSettings, k_means
from daskkern.unsupervised.passes import Totals

_LEAST = 1e-10  # of the largest eigenvalue, which is 1


class SpectralClustering(ClusterMixin, UnsupervisedEstimator):
    """Normalised spectral clustering of rows, with labels for new ones.

    The rows are a graph whose edges weigh k(x_i, x_j). With degrees ``d_i = sum_j k(x_i, x_j)``, its embedding is
    ``D^-1/2 E`` of the leading eigenvectors E of ``D^-1/2 K D^-1/2``, which k-means cuts into clusters. With all rows
    as the basis this is :class:`sklearn.cluster.SpectralClustering` with this affinity. With landmarks K is its
    Nystrom approximation ``Phi Phi^T``: two passes over the rows give the degrees ``Phi Phi^T 1`` and
    ``Phi^T D^-1 Phi``, whose eigenvectors are those of the graph in other coordinates. A degree is at least k(x, x)
    there. The centre m that is nearest to a row's embedding e / d has the largest ``2 e^T m - d |m|^2``: e and the
    degree d are sums of kernel values, and so are these scores, which are what a saved model has.

    Parameters
    ----------
    n_clusters : int
        How many clusters to find.
    kernel : Kernel, str or function of two tables of rows
        With values of 0 or more. Clusters that are thin or close to each other need a length scale below the median
        distance, such as ``"gaussian:0.3"`` for scaled rows.
    n_components : int or None
        Eigenvectors of the embedding; None takes `n_clusters`.
    n_init : int
        Starts of k-means.
    basis : Landmarks, AllRows, NystromFeatures or "auto"
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
    eigenvalues_ : (n_components,) float64
        Of ``D^-1/2 K D^-1/2``, descending, the first one 1: as many are close to 1 as there are separate clusters.
    model_ : KernelModel
        Its scores are those above, one for each cluster, and its labels are the clusters; :meth:`save` writes it.
    kernel_ : Kernel
    n_features_in_ : int

    References
    ----------
    Shi and Malik, "Normalized cuts and image segmentation", PAMI 2000. Fowlkes, Belongie, Chung and Malik, "Spectral
    grouping using the Nystrom method", PAMI 2004. Their one-shot orthogonalisation is the same for Phi of full rank.
    """

    _random_features = False

    def __init__(
        self,
        n_clusters: int = 8,
        kernel: Kernel | str = "gaussian:median",
        n_components: int | None = None,
        n_init: int = 10,
        basis: BasisSpec | str = "auto",
        scale: str | None = "auto",
        random_state: Any = 0,
        dtype: str = "float64",
        device: str = "auto",
        client: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.n_clusters, self.kernel, self.n_components, self.n_init = n_clusters, kernel, n_components, n_init
        self.basis, self.scale, self.random_state = basis, scale, random_state
        self.dtype, self.device, self.client = dtype, device, client
        self.handle_unknown = handle_unknown

    @fits
    def fit(self, X: Any, y: Any = None) -> "SpectralClustering":
        """Cluster rows `X`; see :meth:`daskkern.KernelPCA.fit`. Weights of a store are not used.

        Raises
        ------
        daskkern.errors.DaskkernError
            Also for a kernel whose sum over all rows is negative for some of the rows.
        """
        k = whole("n_clusters", self.n_clusters)
        q = k if self.n_components is None else whole("n_components", self.n_components)
        n_init = whole("n_init", self.n_init)
        with self._fit_rows(X) as of:
            (s,) = of.passes.totals(_FeatureSum(of.features))
            (C,) = of.passes.totals(_DegreeScaled(of.features, s))
            pairs = top_eigenpairs(0.5 * (C + C.T), min(q, C.shape[0]), seed=of.settings.seed)
            found = max(1, int((pairs.values > _LEAST).sum()))
            V = pairs.vectors[:, :found] / np.sqrt(pairs.values[:found])
            embedding = Embedding(of.features, V, s)
            settings = KMeansSettings(k, n_init, 300, 1e-4, of.settings.seed)
            clusters = k_means(of.passes, embedding, settings)
            M = clusters.centres
            W = 2 * V @ M.T - np.outer(s, (M * M).sum(axis=1))
            self.model_ = self._model(of, W, None, classes=tuple(range(k)))
            self.eigenvalues_, self.kernel_ = pairs.values[:found], of.settings.kernel
            self.labels_ = self.predict(X) if is_lazy(X) else of.passes.values(_Labels(of.features, W))
        return self

    def predict(self, X: Any) -> Any:
        """Return the clusters (n,) int32 of rows: NumPy in, NumPy out; dask in, lazy dask out; a store is streamed."""
        check_is_fitted(self, "model_")
        return self._apply(X, codes, np.empty(0, np.int32))


@dataclass(frozen=True, eq=False)
class _FeatureSum:
    """The sum of the features of rows (r,)."""

    features: FeatureMap

    def __call__(self, rows: Rows, part: slice) -> Totals:
        total = np.zeros(self.features.n_features)
        for phi, _, _ in self.features.blocks(rows, part):
            total += to_host(phi.sum(axis=0, dtype=np.float64))
        return (total,)


@dataclass(frozen=True, eq=False)
class _DegreeScaled:
    """``sum_i phi_i phi_i^T / d_i`` (r, r) of rows, with degrees from the sum of all features `s` (r,)."""

    features: FeatureMap
    s: FloatArray

    def __call__(self, rows: Rows, part: slice) -> Totals:
        r = self.features.n_features
        total = None
        for phi, X, _ in self.features.blocks(rows, part):
            xp = namespace_of(phi)
            own = xp.asarray(self.features.kernel.diagonal(X), np.float64)
            if not bool((own > 0).all()):
                raise DataError(
                    "the kernel is 0 for some row with itself, so that the row has no edges; leave such rows out"
                )
            found = phi @ xp.asarray(self.s, phi.dtype)
            if bool((found < -own).any()):  # a kernel of 0 or more has degrees of at least k(x, x), but for rounding
                raise DataError(
                    "the kernel is negative for many pairs of rows, and weights of edges cannot be; choose one that is "
                    "0 or more, such as gaussian or laplacian"
                )
            degree = xp.maximum(found, own)
            product = ((phi / degree[:, None]).T @ phi).astype(np.float64)
            total = product if total is None else total + product
        return (np.zeros((r, r)) if total is None else to_host(total),)


@dataclass(frozen=True, eq=False)
class _Labels:
    """The output of the largest value ``phi(x)^T W`` (k,) for each row, (m,) int32."""

    features: FeatureMap
    W: FloatArray

    def __call__(self, rows: Rows, part: slice) -> HostArray:
        found = []
        for phi, _, _ in self.features.blocks(rows, part):
            xp = namespace_of(phi)
            found.append(to_host((phi.astype(np.float64, copy=False) @ xp.asarray(self.W)).argmax(axis=1)))
        return np.concatenate(found).astype(np.int32)
