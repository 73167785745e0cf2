"""The one-class support vector machine, for novelty detection."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from daskkern.arrays import HostArray
from daskkern.basis import BasisSpec, Landmarks
from daskkern.errors import SpecError
from daskkern.estimators.parameters import active_client, fits
from daskkern.kernels import Kernel
from daskkern.models import KernelModel
from daskkern.training.feeding.row_source import RowSource
from daskkern.unsupervised.base import UnsupervisedEstimator, whole
from daskkern.unsupervised.exact_one_class import exact_one_class
from daskkern.unsupervised.margin import SAMPLE, hyperplane
from daskkern.unsupervised.passes import row_passes

_MOST_NU = 1 - 1e-9
"""At 1 all coefficients are at their bound, and no row says where the plane is."""


class OneClassSVM(OutlierMixin, UnsupervisedEstimator):
    """A function that is positive where most rows are: the one-class SVM of Schoelkopf and others, for novelty.

    Up to 4,000 rows are solved exactly, in the features of the basis, by :class:`sklearn.svm.OneClassSVM`, with which
    scores agree (they are its scores divided by ``nu n``). With more rows, of which at most 2,000 are outliers
    (``nu n``), that solver is given the support vectors and the rows of the least scores until the duality gap is
    small. With more outliers, its solution for a sample begins Newton's method on all rows, with a loss that is
    smoothed by a twentieth of the spread of the scores.

    With ``basis=AllRows()`` more than 4,000 rows are solved exactly, too, by working sets of kernel rows, of which
    at most 1 GiB is kept (:mod:`daskkern.solvers.support_vectors`), for up to about 50,000 rows in one process. Ctrl-C
    ends that after the current working set, also on a worker, and leaves no model.

    Parameters
    ----------
    nu : float
        Above 0, at most 1. At most this share of the rows (of their weight) has negative decision values, and nearly
        that many; at least this share are support vectors.
    kernel : Kernel, str or function of two tables of rows
        The kernel, by name such as "gaussian:median", as an object, or as a function of two tables.
    max_iter : int
        Most passes over all rows.
    tol : float
        Of the objective, relatively, where there are passes over all rows; of the scores, in units of scikit-learn's,
        with more than 4,000 rows as centres.
    basis : Landmarks, AllRows, NystromFeatures, RandomFeatures or "auto"
        "auto" takes all rows up to 2,000, and for more rows 1,000 landmarks by "rp_cholesky", which are near the
        unusual rows, too: an outlier far from all landmarks has no features, and with a `nu` below the share of such
        rows the offset is near 0.
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
    offset_ : float
        ``decision_function = score_samples - offset_``.
    n_iter_ : int
        Passes over all rows, or iterations of the exact solution, or its working sets.
    model_ : KernelModel
        Its output is the decision function; :meth:`save` writes it.
    kernel_ : Kernel
    n_features_in_ : int

    References
    ----------
    See :mod:`daskkern.unsupervised.margin`.
    """

    _usual_landmarks = Landmarks(1000, "rp_cholesky")

    def __init__(
        self,
        nu: float = 0.5,
        kernel: Kernel | str = "gaussian:median",
        max_iter: int = 30,
        tol: float = 1e-5,
        basis: BasisSpec | str = "auto",
        scale: str | None = "auto",
        random_state: Any = 0,
        dtype: str = "float64",
        device: str = "auto",
        client: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.nu, self.kernel, self.max_iter, self.tol = nu, kernel, max_iter, tol
        self.basis, self.scale, self.random_state = basis, scale, random_state
        self.dtype, self.device, self.client = dtype, device, client
        self.handle_unknown = handle_unknown

    @fits
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "OneClassSVM":
        """Fit to rows `X`; see :meth:`daskkern.KernelPCA.fit`. A store brings its own weights."""
        if isinstance(self.nu, bool) or not isinstance(self.nu, int | float | np.number) or not 0 < self.nu <= 1:
            raise SpecError(f"got nu={self.nu!r}; expected a number above 0, at most 1")
        if not self.tol > 0:
            raise SpecError(f"got tol={self.tol!r}; expected a positive number")
        most, nu = whole("max_iter", self.max_iter), min(float(self.nu), _MOST_NU)
        source = self._source(X, sample_weight)
        if self._settings_for(source).basis.all_rows and source.info.n_rows > SAMPLE:
            return self._fit_exactly(source, nu)
        with self._rows_of(source) as of:
            plane = hyperplane(of.passes, of.features, nu, most, self.tol, of.settings.seed)
            self.model_ = self._model(of, plane.w[:, None], np.array([-plane.rho]))
        self.offset_, self.n_iter_, self.kernel_ = plane.rho, plane.n_iter, of.settings.kernel
        return self

    def _fit_exactly(self, source: RowSource, nu: float) -> "OneClassSVM":
        """Fit all rows as centres, in one task."""
        settings = self._settings_for(source)
        with row_passes(source, settings.dtype, active_client(self.client)) as passes:
            solve = partial(exact_one_class, settings=settings, nu=nu, tol=self.tol)
            found = passes.once(solve)
        self.model_ = KernelModel(
            kernel=found.settings.kernel,
            points=found.points,
            coef=found.coef[:, None].astype(settings.dtype),
            loss="squared",
            task="regression",
            classes=None,
            scaling=found.scaling,
            target_shift=np.array([-found.rho]),
            feature_names=source.info.feature_names,
            encoding=source.info.encoding,
            single_target=True,
            provenance=self._provenance(source, found.settings) | {"duality_gap": found.gap},
        )
        self.offset_, self.n_iter_, self.kernel_ = found.rho, found.n_rounds, found.settings.kernel
        return self

    def score_samples(self, X: Any) -> Any:
        """Return ``w^T phi(x)`` (n,), float64, smaller for rows that are unlike the others; see :meth:`predict`."""
        return self._apply(X, _first, np.empty(0))

    def decision_function(self, X: Any) -> Any:
        """Return the scores less the offset (n,), float64, negative for outliers; see :meth:`predict`."""
        check_is_fitted(self, "model_")
        return self._apply(X, self.model_.labels, np.empty(0))

    def predict(self, X: Any) -> Any:
        """Return 1 for inliers and -1 for outliers (n,) int64: NumPy in, NumPy out; dask in, lazy dask out.

        A store is streamed.
        """
        check_is_fitted(self, "model_")
        return self._apply(X, _Signs(self.model_.labels), np.empty(0, np.int64))


def _first(scores: HostArray) -> HostArray:
    return scores[:, 0].astype(np.float64)


class _Signs:
    """1 where decision values are 0 or more, else -1."""

    def __init__(self, decisions: Any) -> None:
        self._decisions = decisions

    def __call__(self, scores: HostArray) -> HostArray:
        found: HostArray = np.where(self._decisions(scores) >= 0, 1, -1).astype(np.int64)
        return found
