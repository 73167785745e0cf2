"""Principal components in the feature space of a kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from daskkern.backend.namespace import namespace_of, to_host
from daskkern.basis import BasisSpec
from daskkern.data.rows.rows import Rows
from daskkern.errors import DataError, SpecError
from daskkern.estimators.parameters import fits
from daskkern.kernels import Kernel
from daskkern.linalg import top_eigenpairs
from daskkern.unsupervised.base import UnsupervisedEstimator, signs_fixed, whole
from daskkern.unsupervised.feature_map import FeatureMap
from daskkern.unsupervised.passes import Totals

_LEAST = 1e-12  # of the largest eigenvalue: those below are rounding


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, UnsupervisedEstimator):
    """Principal components of rows in the feature space of a kernel, from one pass over them.

    With the features phi(x) of a basis, ``C = (1/n) sum_i (phi(x_i) - m)(phi(x_i) - m)^T = sum_j (l_j / n) u_j u_j^T``
    and component j of a row is ``u_j^T (phi(x) - m)``. With all rows as the basis these are the components of
    :class:`sklearn.decomposition.KernelPCA`, up to signs; with landmarks their Nystrom approximation.

    Parameters
    ----------
    n_components : int or None
        None keeps all whose eigenvalue is not 0.
    kernel : Kernel, str or function of two tables of rows
        Such as ``Gaussian(5.0)``, ``"polynomial:3"`` or ``"gaussian:median"``. "auto" is ``"laplacian:median"``.
    basis : Landmarks, AllRows, NystromFeatures, RandomFeatures or "auto"
        "auto" takes all rows up to 2,000, where the result is exact, and 1,000 landmarks for more rows.
    scale : "auto", "always", "standard", "common", "robust", "minmax", "maxabs", "unit_variance" or None
        Scaling of the features, as for :class:`daskkern.KernelClassifier`; without targets nothing is bent.
    random_state : int, RandomState or None
        Seed of all random draws.
    dtype : "float32" or "float64"
        Of rows, kernel values and coefficients; sums and eigenproblems are in float64.
    device : "auto", "cpu" or "gpu"
        Where to compute; "auto" takes a GPU where there is one.
    client : distributed.Client, str, path, cluster or None
        The cluster that shares the passes over the rows; None takes the active client, and without one this process.
    handle_unknown : "error" or "ignore"
        What becomes of texts that the training rows lack: an error, or features of 0 where each category is a feature.

    Attributes
    ----------
    eigenvalues_ : (n_components,) float64
        ``l_j``, descending: those of the centred kernel matrix.
    explained_variance_ratio_ : (n_components,) float64
        Their shares of the trace of the centred kernel matrix.
    model_ : KernelModel
        Its outputs are the components; :meth:`save` writes it.
    kernel_ : Kernel
        With the parameters that were estimated from the rows.
    n_features_in_ : int

    References
    ----------
    Schoelkopf, Smola and Mueller, "Nonlinear component analysis as a kernel eigenvalue problem", Neural Computation
    1998, equations 2 to 16. Sterge and Sriperumbudur, "Statistical optimality and computational efficiency of Nystrom
    kernel PCA", JMLR 2022.
    """

    def __init__(
        self,
        n_components: int | None = None,
        kernel: Kernel | str = "gaussian:median",
        basis: BasisSpec | str = "auto",
        scale: str | None = "auto",
        random_state: Any = 0,
        dtype: str = "float64",
        device: str = "auto",
        client: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.n_components, self.kernel, self.basis, self.scale = n_components, kernel, basis, scale
        self.random_state, self.dtype, self.device, self.client = random_state, dtype, device, client
        self.handle_unknown = handle_unknown

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    @fits
    def fit(self, X: Any, y: Any = None) -> "KernelPCA":
        """Fit the components.

        Parameters
        ----------
        X : path, URL, Zarr group, dask array (n, d) or array-like (n, d)
            Rows; of stores and dask arrays a chunk at a time is read. Weights of a store are not used.
        y : ignored
            Not used: the conventions of scikit-learn ask for it.

        Raises
        ------
        daskkern.errors.DaskkernError
            With one sentence: what was given, what was expected, what to do.
        """
        wanted = None if self.n_components is None else whole("n_components", self.n_components)
        with self._fit_rows(X) as of:
            count, first, second, trace = of.passes.totals(_Moments(of.features))
            n, mean = float(count[0]), first / float(count[0])
            scatter = second - n * np.outer(mean, mean)
            spread = float(trace[0]) - n * float(mean @ mean)
            most = min(scatter.shape[0], of.info.n_rows)
            pairs = top_eigenpairs(0.5 * (scatter + scatter.T), min(wanted or most, most), seed=of.settings.seed)
            found = int((pairs.values > _LEAST * max(float(trace[0]), np.finfo(float).tiny)).sum())
            if not found:
                raise DataError("all rows are equal under the kernel and have no components; check the rows")
            if wanted is not None and wanted > found:
                raise SpecError(
                    f"got n_components={wanted}, but the rows have {found} components with this kernel and basis; "
                    f"give {found} or fewer"
                )
            vectors = signs_fixed(pairs.vectors[:, :found])
            self.model_ = self._model(of, vectors, -(mean @ vectors))
        self.kernel_ = of.settings.kernel
        self.eigenvalues_ = pairs.values[:found]
        self.explained_variance_ratio_ = self.eigenvalues_ / max(spread, float(self.eigenvalues_.sum()))
        self._n_features_out = found
        return self

    def transform(self, X: Any) -> Any:
        """Return the components (n, n_components), float64: NumPy in, NumPy out; dask in, lazy dask out.

        A store is streamed.
        """
        check_is_fitted(self, "model_")
        return self._apply(X, _Components(self.model_.target_shift), np.empty((0, self._n_features_out)))


@dataclass(frozen=True, eq=False)
class _Components:
    """Scores with what the model adds to them, float64."""

    shift: Any

    def __call__(self, scores: Any) -> Any:
        return scores.astype(np.float64) + self.shift


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over rows: their number, phi (r,), ``phi phi^T`` (r, r), and k(x, x)."""

    features: FeatureMap

    def __call__(self, rows: Rows, part: slice) -> Totals:
        r = self.features.n_features
        first, second, trace = np.zeros(r), None, 0.0
        for phi, X, _ in self.features.blocks(rows, part):
            xp = namespace_of(phi)
            first += to_host(phi.sum(axis=0, dtype=np.float64))
            product = (phi.T @ phi).astype(np.float64)
            second = product if second is None else xp.add(second, product, out=second)
            trace += float(self.features.kernel.diagonal(X).sum(dtype=np.float64))
        return np.array([float(part.stop - part.start)]), first, to_host(second), np.array([trace])
