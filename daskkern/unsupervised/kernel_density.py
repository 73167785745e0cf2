"""Kernel density estimation, exact over all rows of a store, or with weighted landmarks in their place."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import AllRows, BasisSpec
from daskkern.data.rows.rows import Fields, take
from daskkern.data.schema.learned_scaling import IGNORED
from daskkern.data.schema.schema import Scaling
from daskkern.errors import ModelError, SpecError
from daskkern.estimators.inputs import is_lazy
from daskkern.estimators.parameters import active_client, as_kernel, as_seed, computed_by_client, fits
from daskkern.kernels import Gaussian
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.models import KernelModel, save_model
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.scaling import learn_scaling, scaled_points, with_scaling
from daskkern.unsupervised.base import UnsupervisedEstimator, whole
from daskkern.unsupervised.coreset import coreset, total_weight
from daskkern.unsupervised.density_norms import log_integral
from daskkern.unsupervised.feature_map import scaled_settings, spanned
from daskkern.unsupervised.log_sums import QUERIES, log_kernel_sums
from daskkern.unsupervised.passes import RowPasses, row_passes

_MOST_BYTES = 1 << 30  # of the points of a model, which is held in memory
_DRAW = 93
_RULES: dict[str, Callable[[int, int], float]] = {
    "scott": lambda n, d: float(n ** (-1 / (d + 4))),
    "silverman": lambda n, d: float((n * (d + 2) / 4) ** (-1 / (d + 4))),
}


class KernelDensity(UnsupervisedEstimator):
    """The density of rows as a mean of kernels around them: ``p(x) = sum_i w_i k(x, x_i) / (sum_i w_i int k)``.

    With all rows the sum is exact, and the same as that of :class:`sklearn.neighbors.KernelDensity`: the rows of a
    store stay there, and scores are sums over one pass for each 8,192 rows that are scored. With ``Landmarks(p)`` the
    landmarks take their place, with the weights of 0 or more that bring the estimate closest to the one of all rows in
    the kernel's norm: a pass in the fit, and p kernel values a row afterwards.

    Parameters
    ----------
    bandwidth : "scott", "silverman", float or None
        The length scale of the kernel: ``n^(-1/(d + 4))`` ("scott") or ``(n (d + 2) / 4)^(-1/(d + 4))``, for features
        of unit spread; a number, in the units of the features; or None, for that of `kernel`.
    kernel : str or Kernel
        "gaussian" is scikit-learn's, "laplacian" its "exponential"; also "laplacian_l1", "laplacian_pq", "matern12",
        "matern32", "matern52", and where their integrals are finite "cauchy" and "rational_quadratic".
    basis : AllRows, Landmarks, NystromFeatures or "auto"
        "auto" is all rows.
    scale : "auto", "always", "standard", "common", "robust", "minmax", "maxabs", "unit_variance" or None
        Scaling of the features, as for :class:`daskkern.KernelPCA`: "auto" scales where `bandwidth` is a rule.
        Densities are in the units of the rows all the same. Constant features do not count with "always" and
        "robust", nor with "auto" where that scales.
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
    bandwidth_ : float or tuple
        The length scale, in units of the scaled features.
    kernel_ : Kernel
    model_ : KernelModel
        Describes the rows; :meth:`save` writes a model of the density.
    n_features_in_ : int

    References
    ----------
    Scott, "Multivariate density estimation", 1992, section 6.5. Bach, Lacoste-Julien and Obozinski, "On the equivalence
    between herding and conditional gradient algorithms", ICML 2012, section 2: weights of points in the kernel's norm.
    """

    _random_features = False

    def __init__(
        self,
        bandwidth: float | str | None = "scott",
        kernel: ScaledDistanceKernel | str = "gaussian",
        basis: BasisSpec | str = "auto",
        scale: str | None = "auto",
        random_state: Any = 0,
        dtype: str = "float64",
        device: str = "auto",
        client: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.bandwidth, self.kernel, self.basis, self.scale = bandwidth, kernel, basis, scale
        self.random_state, self.dtype, self.device, self.client = random_state, dtype, device, client
        self.handle_unknown = handle_unknown

    def fit_settings(self, n_rows: int) -> FitSettings:
        """Return the parameters as checked settings, whose kernel has the bandwidth where that is known."""
        kernel, bandwidth = _named_kernel(self.kernel), self.bandwidth
        if isinstance(bandwidth, str):
            if bandwidth not in _RULES:
                raise SpecError(
                    f"got bandwidth={bandwidth!r}; expected 'scott', 'silverman', a positive number or None"
                )
            if not isinstance(kernel.length_scale, str) and kernel.length_scale != 1.0:  # 1 where none is given
                raise SpecError(
                    f"got kernel={kernel!r:.80} with bandwidth={bandwidth!r}, which replaces its length scale; set "
                    "bandwidth=None for that of the kernel, or leave it out of the kernel"
                )
            bandwidth = "median"  # a length scale without units, so that features are scaled
        if bandwidth is not None:
            kernel = replace(kernel, length_scale=bandwidth)
        return replace(super().fit_settings(n_rows), kernel=kernel)

    def _basis(self, n_rows: int) -> BasisSpec:
        if isinstance(self.basis, str) and self.basis == "auto":
            return AllRows()
        basis = super()._basis(n_rows)
        return spanned(basis) if basis.is_mapped else basis

    @fits
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "KernelDensity":
        """Estimate the density of rows `X`; see :meth:`daskkern.KernelPCA.fit`.

        A store brings its own weights. Arrays are kept, not copied; the rows of a store are read again when rows are
        scored.

        Raises
        ------
        daskkern.errors.DaskkernError
            Also for kernels whose integral is not known or infinite, and for columns of categories.
        """
        source = self._source(X, sample_weight, least=1)
        n, settings = source.info.n_rows, self.fit_settings(source.info.n_rows)
        _refuse_categories(source, settings)
        with row_passes(source, settings.dtype, active_client(self.client)) as passes:
            if isinstance(self.bandwidth, str):
                scaling = passes.once(partial(learn_scaling, settings=settings))
                d = max(1, int(_units(scaling, source.info.n_features)[0].sum()))
                length_scale = _RULES[self.bandwidth](n, d)
                kernel = replace(_named_kernel(self.kernel), length_scale=length_scale)
                settings = replace(settings, kernel=kernel, basis=scaled_points(settings.basis, source, scaling))
            else:
                scaling, settings = passes.once(partial(scaled_settings, settings=settings))
            counted, log_units = _units(scaling, source.info.n_features)
            self._log_norm = log_integral(settings.kernel, counted) + log_units
            passes = passes.scaled(scaling)
            points: RowSource = with_scaling(source, scaling)
            self._total = total_weight(passes)
            if not settings.basis.all_rows:
                points, self._total = coreset(passes, settings, self._total), 1.0
        self._points, self._scaling, self._settings = points, scaling, settings
        self._described = source
        scaled: Any = settings.kernel
        self.kernel_: ScaledDistanceKernel = scaled
        self.bandwidth_: Any = scaled.length_scale
        self.model_ = self._density_model(1, 1.0)
        return self

    def score_samples(self, X: Any) -> Any:
        """Return the logarithms of densities (n,) float64: NumPy in, NumPy out; dask in, lazy dask out.

        A store is streamed. On a cluster the workers share the points.
        """
        check_is_fitted(self, "model_")
        client = None if is_lazy(X) else active_client(self.client)
        with row_passes(self._points, self._settings.dtype, client) as passes:
            density = _LogDensity(passes, self.kernel_, float(np.log(self._total)) + self._log_norm, self.device)
            return self._apply_rows(X, density, np.empty(0))

    @computed_by_client
    def score(self, X: Any, y: Any = None) -> float:
        """Return the sum of the logarithms of the densities of rows: their log-likelihood. `y` is not used."""
        return float(self.score_samples(X).sum())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> HostArray:
        """Return rows (n_samples, d) drawn from the density, for the Gaussian kernel with one length scale.

        Parameters
        ----------
        n_samples : int
            How many rows to draw.
        random_state : int, RandomState or None
            None takes the parameter of the estimator.
        """
        check_is_fitted(self, "model_")
        if not isinstance(self.kernel_, Gaussian) or not isinstance(self.bandwidth_, float):
            raise SpecError(f"got {self.kernel_!r:.60} to draw rows from; fit with kernel='gaussian' and one bandwidth")
        rng = generator(as_seed(self.random_state if random_state is None else random_state), _DRAW)
        rows, m = self._points.open(self._settings.dtype), whole("n_samples", n_samples)
        weight = rows.read(0, rows.n_rows, Fields.weight).weight
        share = None if weight is None else weight / weight.sum()
        X: Any = take(rows, rng.choice(rows.n_rows, m, p=share), Fields.X).X
        X = (X.toarray() if is_sparse(X) else X).astype(np.float64)
        noise = rng.standard_normal(X.shape) * self.bandwidth_
        if self._scaling.kind == "none":
            return X + noise
        scale = np.asarray(self._scaling.scale)
        return (X + np.where(scale < IGNORED, noise, 0.0)) * scale + np.asarray(self._scaling.shift)

    def save(self, path: Any) -> None:
        """Write the density as a model of regression to a Zarr group at `path`: its predictions are densities.

        Raises
        ------
        ModelError
            When the points are more than 1 GiB, or densities leave float64, as of very many features.
        """
        check_is_fitted(self, "model_")
        rows = self._points.open(self._settings.dtype)
        if rows.n_rows * rows.row_bytes > _MOST_BYTES:
            raise ModelError(f"a density of {rows.n_rows:,} rows is too large for a model; fit with basis=Landmarks(n)")
        save_model(self._density_model(rows.n_rows, self._total), path)

    def _density_model(self, n: int, total: float) -> KernelModel:
        """Return the density of the first `n` points as a model; with one it only describes the rows."""
        block = self._points.open(self._settings.dtype).read(0, n, Fields.X | Fields.weight)
        coef = np.ones(n) if block.weight is None else block.weight
        norm = float(np.exp(np.clip(-self._log_norm, -800, 800)))
        if n > 1 and not 0 < norm < np.inf:
            raise ModelError(
                f"densities of {self.n_features_in_} features leave float64, so that no model holds them; use "
                "score_samples, which gives their logarithms"
            )
        info = self._described.info
        assert block.X is not None
        return KernelModel(
            kernel=self.kernel_,
            points=block.X,
            coef=(coef / total)[:, None].astype(block.X.dtype),
            loss="squared",
            task="regression",
            classes=None,
            scaling=self._scaling,
            target_scale=np.array([norm]),
            feature_names=info.feature_names,
            encoding=info.encoding,
            provenance=self._provenance(self._described, self._settings),
        )


@dataclass(frozen=True, eq=False)
class _LogDensity:
    """The logarithm of the density of rows, from the points that `passes` reads."""

    passes: RowPasses
    kernel: ScaledDistanceKernel
    log_norm: float
    device: str

    def __call__(self, model: KernelModel, X: Any, threads: int | None) -> HostArray:
        found = np.empty(X.shape[0])
        for part in slices(X.shape[0], QUERIES):
            queries = model.scaling.apply(X[part], np.dtype(self.passes.dtype))
            found[part] = log_kernel_sums(self.passes, self.kernel, queries, self.device, threads) - self.log_norm
        return found


def _refuse_categories(source: RowSource, settings: FitSettings) -> None:
    """Raise SpecError for codes of categories, which are not numbers that rows could be close in."""
    coded = source.info.categories or settings.kernel.categories
    if coded:
        names = source.info.feature_names
        first = f"column {names[coded[0]]!r} holds" if names else f"column {coded[0]} holds"
        raise SpecError(f"{first} categories, and KernelDensity has densities of numbers alone; leave such columns out")


def _named_kernel(kernel: Any) -> Any:
    found = as_kernel(kernel)
    if not isinstance(found, ScaledDistanceKernel):
        raise SpecError(f"got the {found.name} kernel for a density; choose one of a distance, such as 'gaussian'")
    return found


def _units(scaling: Scaling, n_features: int) -> tuple[HostArray, float]:
    """Return which features count (d,), and the logarithm of the unit of volume of the scaled rows.

    A learned scaling takes constant features out of distances, and so out of densities.
    """
    if not scaling.is_affine:
        raise SpecError("got rows whose features were bent or ranked for a density; ingest or fit with another scale")
    if scaling.kind == "none":
        return np.ones(n_features, bool), 0.0
    scale = np.asarray(scaling.scale)
    counted = scale < IGNORED
    return counted, float(np.log(scale[counted]).sum())
