"""The kernel regressor: a scikit-learn estimator that fits on a cluster."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskkern.basis import BasisSpec
from daskkern.data.cubes.packages import is_cube
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.rows.finite import refuse_masks
from daskkern.data.schema.schema import Scaling
from daskkern.estimators.array_inputs import numeric_arrays, numeric_rows
from daskkern.estimators.base import KernelEstimator
from daskkern.estimators.direct_inputs import direct_source, is_direct, named_roles
from daskkern.estimators.frame_blocks import labelled_blocks, named_blocks
from daskkern.estimators.inputs import is_lazy, is_store, lazy_source, only_store, store_source, validation_source
from daskkern.estimators.parameters import can_continue, computed_by_client, fits, unknown_choice
from daskkern.estimators.uncertainty import ValueUncertainty
from daskkern.evaluation.cell_scores import cell_score
from daskkern.evaluation.lazy_scores import lazy_r2
from daskkern.evaluation.tables.scoring import score_place
from daskkern.events import Listener
from daskkern.kernels import Kernel
from daskkern.losses import Loss
from daskkern.solvers import Solver
from daskkern.training.direct.roles import RowRoles
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.jobs.handle import FitHandle

_UNDEFINED = "R2 is undefined: a target has the same value in all rows; score other rows, or compare the RMSE"


class KernelRegressor(MultiOutputMixin, RegressorMixin, ValueUncertainty, KernelEstimator):
    """A kernel regressor, trained by preconditioned mini-batch SGD; the model is sharded over a cluster's workers.

    With `alpha`, no intercept, all rows as centres and ``batch_size=n_samples`` it converges to scikit-learn's
    ``KernelRidge(alpha * n_samples)``; smaller batches, with a constant step, end near it (measured: within 10%
    of the largest value at alpha = 1e-2 on 60 rows).

    Parameters
    ----------
    kernel
        As in :class:`daskkern.KernelClassifier`.
    basis
        As in :class:`daskkern.KernelClassifier`.
    solver
        As in :class:`daskkern.KernelClassifier`.
    alpha
        As in :class:`daskkern.KernelClassifier`.
    max_epochs
        As in :class:`daskkern.KernelClassifier`.
    batch_size
        As in :class:`daskkern.KernelClassifier`.
    random_state
        As in :class:`daskkern.KernelClassifier`.
    client
        As in :class:`daskkern.KernelClassifier`.
    dtype
        As in :class:`daskkern.KernelClassifier`.
    device
        As in :class:`daskkern.KernelClassifier`.
    memory_budget
        As in :class:`daskkern.KernelClassifier`.
    verbose
        As in :class:`daskkern.KernelClassifier`.
    keep_blocks
        As in :class:`daskkern.KernelClassifier`.
    precision
        As in :class:`daskkern.KernelClassifier`.
    warm_start
        As in :class:`daskkern.KernelClassifier`.
    checkpoint
        As in :class:`daskkern.KernelClassifier`.
    reading
        As in :class:`daskkern.KernelClassifier`.
    groups
        As in :class:`daskkern.KernelClassifier`.
    loss : str or Loss
        "squared", "huber", "absolute", "quantile", "epsilon_insensitive" or "squared_epsilon_insensitive". A parameter
        follows the name: "huber:0.5"; "quantile:0.1,0.5,0.9" predicts several quantiles of one target. Lengths are in
        units of the targets' standard deviation. "auto" is "squared", and "epsilon_insensitive" with the solver "svm".
    early_stopping : bool
        Stop when validation rows no longer improve (see `monitor`), and return the best epoch's model.
    validation_fraction
        As in :class:`daskkern.KernelClassifier`.
    n_iter_no_change
        As in :class:`daskkern.KernelClassifier`.
    tol
        As in :class:`daskkern.KernelClassifier`.
    fit_intercept : bool
        Train on the targets minus their mean, and add the mean to predictions.
    sampling : "uniform", "fresh", "fixed", "independent" or "weighted"
        How rows come to batches: once an epoch, with "fresh" in other batches every time and with "fixed" in one order;
        drawn from all rows independently, or in proportion to their weights. Rows drawn more often count less, so that
        the objective is unchanged. Draws need landmarks or features as the basis.
    max_seconds : float or None
        Time after which the fit stops, with the model so far.
    virtual_shards : int or None
        Give bitwise the same model on any number of workers up to this one; costs time, see ``docs/recovery.md``.
    callbacks : sequence of callables or None
        Called with every event of a fit (:mod:`daskkern.events`), such as the loggers of
        :mod:`daskkern.monitor.loggers`. An exception raised by one ends the fit.
    monitor : "auto", "loss" or "score"
        What early stopping monitors on the validation rows: the mean loss, or R2; "auto" is R2.
    scale : "auto", "always", "affine", "arcsinh", "ranks", "standard", "common", "robust", "minmax", ..., Scaling, None
        How features are scaled; as in :class:`daskkern.KernelClassifier`.
    learn_features : bool, "auto", "diagonal", "full", FeatureLearning or None
        Learn the metric of the kernel; as in :class:`daskkern.KernelClassifier`. None learns it with
        ``kernel="auto"`` and the squared loss, of up to 100 features, unless more than 3,000 rows come with another
        solver than "auto", `memory_budget`, `max_seconds`, ``alpha=0``, `warm_start` or `checkpoint`; of more
        features, in exact fits of up to ``sqrt(9e8 / n_features)`` rows. False never does.
    calibrate : bool or float
        Calibrate the model for `predict_interval`; as in :class:`daskkern.KernelClassifier`.
    handle_unknown
        As in :class:`daskkern.KernelClassifier`.

    Attributes
    ----------
    dual_coef_ : (p, t) array
        For targets in units of their standard deviation; ``model_.target_scale`` holds it.
    alpha_, kernel_, landmarks_, landmark_indices_, history_, model_, n_iter_, best_epoch_, n_features_in_, stop_reason_
        As in :class:`daskkern.KernelClassifier`.
    """

    def __init__(
        self,
        kernel: Kernel | str = "auto",
        loss: str | Loss = "auto",
        basis: BasisSpec | str = "auto",
        solver: str | Solver[Any] = "auto",
        alpha: float | str = "auto",
        max_epochs: int = 10,
        batch_size: int | str = "auto",
        early_stopping: bool = False,
        random_state: Any = 0,
        client: Any = None,
        fit_intercept: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        tol: float = 1e-4,
        dtype: str = "auto",
        device: str = "auto",
        memory_budget: int | None = None,
        verbose: bool = False,
        keep_blocks: str = "auto",
        precision: str | None = None,
        warm_start: bool = False,
        checkpoint: str | None = None,
        sampling: str = "uniform",
        max_seconds: float | None = None,
        virtual_shards: int | None = None,
        callbacks: Sequence[Listener] | None = None,
        monitor: str = "auto",
        scale: str | Scaling | None = "auto",
        learn_features: Any = None,
        calibrate: bool | float = True,
        reading: str = "auto",
        groups: int | str = "auto",
        handle_unknown: str = "error",
    ) -> None:
        self.kernel, self.loss, self.basis, self.solver, self.alpha = kernel, loss, basis, solver, alpha
        self.max_epochs, self.max_seconds, self.batch_size = max_epochs, max_seconds, batch_size
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.n_iter_no_change, self.tol, self.monitor = n_iter_no_change, tol, monitor
        self.random_state, self.sampling = random_state, sampling
        self.scale, self.fit_intercept, self.dtype, self.precision = scale, fit_intercept, dtype, precision
        self.client, self.device, self.virtual_shards = client, device, virtual_shards
        self.memory_budget, self.keep_blocks, self.reading = memory_budget, keep_blocks, reading
        self.warm_start, self.checkpoint, self.handle_unknown = warm_start, checkpoint, handle_unknown
        self.verbose, self.callbacks = verbose, callbacks
        self.learn_features, self.calibrate, self.groups = learn_features, calibrate, groups

    @fits
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        validation: Any = None,
        detach: bool = False,
        out: Any = None,
        target: Any = None,
        sample_dims: Any = None,
        coords: Any = None,
        drop: Any = None,
    ) -> "KernelRegressor | FitHandle":
        """Fit the regressor.

        Parameters
        ----------
        X : path, URL, Zarr group, dask array (n, d), array-like (n, d), xarray Dataset or DataArray, TableFiles
            Training rows; a path or URL names a store, a table or a Zarr group.
        y : dask array or array-like (n,) or (n, t), optional
            Targets of the rows; a store brings its own.
        sample_weight : dask array or array-like (n,), optional
            Weights of the rows, 0 or more; None counts all alike.
        validation : store or (X, y), optional
            Rows that are scored after each epoch, and that early stopping watches.
        detach : bool
            Submit the fit to the cluster and return a :class:`daskkern.FitHandle` at once; the estimator stays
            unfitted, and a worker writes the model.
        out : path or URL, optional
            Where the worker writes the model, with `detach`; an existing model there is replaced.
        target, sample_dims, coords, drop : str or list of str, optional
            Of a Dataset, as in :meth:`daskkern.KernelClassifier.fit`; several targets are possible.

        Raises
        ------
        daskkern.errors.DaskkernError
            With one sentence: what was given, what was expected, what to do.
        """
        roles = named_roles(target, sample_dims, coords, drop)
        source = self._source(X, y, sample_weight, roles=roles)
        rows = partial(numeric_rows, encoding=source.info.encoding, unknown=unknown_choice(self))
        watched = validation_source(validation, rows, self, roles, source)
        if detach:
            return self._submit(source, watched, out)
        self._fit_source(source, watched, out)
        return self

    @available_if(can_continue)
    @fits
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "KernelRegressor":
        """Run one epoch on these rows from the current model; see :meth:`daskkern.KernelClassifier.partial_fit`.

        The targets are centred and scaled by the mean and spread of the first call's rows.
        """
        source = self._source(X, y, sample_weight, reset=getattr(self, "_carried", None) is None)
        self._go_on(source)
        return self

    def _source(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool = True, roles: RowRoles | None = None
    ) -> RowSource:
        roles = RowRoles() if roles is None else roles
        if is_direct(X, roles):
            return direct_source(self, X, y, sample_weight, roles, "regression")
        if is_store(X):
            return store_source(X, y, sample_weight, "regression")
        if is_lazy(X):
            return lazy_source(X, y, sample_weight, "regression")[0]
        if is_dask_frame(X):
            features, y, weight, encoding = labelled_blocks(self, X, y, sample_weight, reset=reset)
            return named_blocks(lazy_source(features, y, weight, "regression")[0], encoding)
        return numeric_arrays(self, X, y, sample_weight, reset=reset)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions (n,), (n, t), or quantiles (n, q), float64: NumPy in, NumPy out; dask in, lazy dask out.

        A store is streamed, and so are table files, local or behind a URL, which are encoded as the training rows
        were. With `return_std` a pair of predictions and the standard deviations of new targets, of the same shape:
        those of a Gaussian process, its noise included; see :meth:`daskkern.models.KernelModel.predict_std`.
        """
        check_is_fitted(self, "model_")
        mean = self._apply(X, self.model_.labels, self.model_.labels(self.model_.coef[:0]))
        return (mean, self._deviations(X)) if return_std else mean

    @computed_by_client
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2 on arrays with targets `y`, on a store or table files, in one pass, or on a Dataset's cells.

        Of several quantiles, that of the one nearest to 1/2. NaN, with an ``UndefinedMetricWarning``, for rows of a
        store or a file in which a target has one value; for arrays, scikit-learn's rule, 1 or 0.
        """
        refuse_masks(y, "y")
        refuse_masks(sample_weight, "sample_weight")
        if is_store(X):
            check_is_fitted(self, "model_")
            only_store(y, sample_weight)
            r2 = float(score_place(self.model_, X, unknown_choice(self)).r2 or 0.0)
            if np.isnan(r2):
                warnings.warn(_UNDEFINED, UndefinedMetricWarning, stacklevel=3)
            return r2
        if is_cube(X):
            return cell_score(self._central(X), self.model_, X, y, sample_weight)
        if is_lazy(X):
            return lazy_r2(self._central(X), y, sample_weight)
        return float(r2_score(y, self._central(X), sample_weight=sample_weight))

    def _central(self, X: Any) -> Any:
        """Return predictions (n,) or (n, t); of several quantiles, the one nearest to 1/2."""
        check_is_fitted(self, "model_")
        return self._apply(X, self.model_.central, self.model_.central(self.model_.coef[:0]))
