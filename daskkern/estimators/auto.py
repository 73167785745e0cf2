"""Estimators that search for the model themselves, within a time budget."""

from typing import Any

from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskkern.errors import DataError
from daskkern.estimators.auto_base import AutoKernelEstimator
from daskkern.estimators.class_inputs import class_source
from daskkern.estimators.classifier import KernelClassifier
from daskkern.estimators.direct_inputs import named_roles
from daskkern.estimators.parameters import computed_by_client, fits
from daskkern.estimators.regressor import KernelRegressor


def _offers(name: str) -> Any:
    """Return a check whether the estimator of the search has a method, which needs a fit."""

    def check(estimator: "AutoKernelEstimator") -> bool:
        check_is_fitted(estimator, "best_estimator_")
        getattr(estimator.best_estimator_, name)  # AttributeError says why it has not
        return True

    return check


class AutoKernelClassifier(ClassifierMixin, AutoKernelEstimator):
    """A kernel classifier that chooses scaling, kernel, length scale, metric, penalty, loss and solver itself.

    Kernels are compared by ridge regression on sampled rows, then whole fits with the defaults of
    :class:`daskkern.KernelClassifier`; another model is taken where it predicts held-out rows better beyond chance.
    See ``docs/auto.md``.

    Parameters
    ----------
    max_seconds : float or None
        Time of search and final fit together. A short time shortens the search first, down to the defaults, then the
        fit. None limits the search to the time that the fit will probably take, and to between 5 and 10 minutes.
    scoring : "auto", "log_loss" or "accuracy"
        What models are compared by on held-out rows: log loss at the best temperature ("auto"), or the accuracy.
    random_state : int, RandomState or None
        With an int and time enough the same data give the same model, whatever the number of workers, up to rounding.
    client : distributed.Client or None
        The cluster, of whose workers trials are tasks. None: the active client's, or this process.
    device : "auto", "cpu" or "gpu"
        Where trials and the fit compute; "auto" takes the GPU where there is one.
    memory_budget : int or None
        Bytes that one rank of the fit may use.
    verbose : bool
        Whether to show the progress of search and fit.
    class_weight : dict, "balanced" or None
        Weights of the classes, by label.
    handle_unknown : "error" or "ignore"
        Whether a category of a data frame or table that the training rows lack is refused, or its features are 0.

    Attributes
    ----------
    best_estimator_ : KernelClassifier
        The fitted ordinary estimator.
    best_params_ : dict
        Its parameters, as far as they were chosen: ``KernelClassifier(**best_params_)`` fits this model again.
    trials_ : TrialTable
        What was tried: ``trials_["loss"]``, ``trials_.to_pandas()``. The model keeps it.
    model_ : KernelModel
    classes_ : (n_classes,) array
    n_features_in_ : int
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        scoring: str = "auto",
        random_state: Any = 0,
        client: Any = None,
        device: str = "auto",
        memory_budget: int | None = None,
        verbose: bool = False,
        class_weight: Any = None,
        handle_unknown: str = "error",
    ) -> None:
        self.max_seconds, self.scoring, self.random_state, self.client = max_seconds, scoring, random_state, client
        self.device, self.memory_budget, self.verbose = device, memory_budget, verbose
        self.class_weight, self.handle_unknown = class_weight, handle_unknown

    @fits
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        sample_dims: Any = None,
        coords: Any = None,
        drop: Any = None,
    ) -> "AutoKernelClassifier":
        """Search for a model, and fit it to all rows.

        Parameters
        ----------
        X : path, URL, Zarr group, dask array (n, d), array-like (n, d), xarray Dataset or DataArray, TableFiles
            Training rows; a path or URL names a store, a table or a Zarr group.
        y : dask array or array-like (n,), optional
            Class labels; a store brings its own.
        sample_weight : dask array or array-like (n,), optional
            Weights of the rows, 0 or more; None counts all alike.
        target, sample_dims, coords, drop : str or list of str, optional
            Of table files and Datasets, as in :meth:`daskkern.KernelClassifier.fit`.

        Raises
        ------
        daskkern.errors.DaskkernError
            With one sentence: what was given, what was expected, what to do.
        """
        plain = KernelClassifier(
            random_state=self.random_state,
            client=self.client,
            device=self.device,
            memory_budget=self.memory_budget,
            verbose=self.verbose,
            class_weight=self.class_weight,
            handle_unknown=self.handle_unknown,
        )
        roles = named_roles(target, sample_dims, coords, drop)
        source, classes = class_source(plain, X, y, sample_weight, roles=roles)
        if source.info.task == "regression":
            raise DataError(
                f"got {source.info.n_targets} labels a row; a search takes one; fit a KernelClassifier to several"
            )
        self._search(plain, source)
        self.classes_ = self.best_estimator_.classes_ = classes
        return self

    @computed_by_client
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on arrays with labels `y`, or on a store, in one streaming pass."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y, sample_weight)

    @available_if(_offers("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Return scores (n, n_classes), or (n,) for two classes; lazy for a dask array."""
        return self.best_estimator_.decision_function(X)

    @available_if(_offers("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities (n, n_classes); see :meth:`daskkern.KernelClassifier.predict_proba`."""
        return self.best_estimator_.predict_proba(X)

    def predict_set(self, X: Any, confidence: float = 0.9) -> Any:
        """Return which labels may be the true one; see :meth:`daskkern.KernelClassifier.predict_set`."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_set(X, confidence)


class AutoKernelRegressor(MultiOutputMixin, RegressorMixin, AutoKernelEstimator):
    """A kernel regressor that chooses scaling, kernel, length scale, metric, penalty and solver itself.

    Parameters
    ----------
    scoring : "auto", "squared_error" or "absolute_error"
        What models are compared by on held-out rows; "auto" is the squared error.
    max_seconds
        As in :class:`daskkern.AutoKernelClassifier`.
    random_state
        As in :class:`daskkern.AutoKernelClassifier`.
    client
        As in :class:`daskkern.AutoKernelClassifier`.
    device
        As in :class:`daskkern.AutoKernelClassifier`.
    memory_budget
        As in :class:`daskkern.AutoKernelClassifier`.
    verbose
        As in :class:`daskkern.AutoKernelClassifier`.
    handle_unknown
        As in :class:`daskkern.AutoKernelClassifier`.

    Attributes
    ----------
    best_estimator_ : KernelRegressor
    best_params_, trials_, model_, n_features_in_
        As in :class:`daskkern.AutoKernelClassifier`.
    """

    def __init__(
        self,
        max_seconds: float | None = None,
        scoring: str = "auto",
        random_state: Any = 0,
        client: Any = None,
        device: str = "auto",
        memory_budget: int | None = None,
        verbose: bool = False,
        handle_unknown: str = "error",
    ) -> None:
        self.max_seconds, self.scoring, self.random_state, self.client = max_seconds, scoring, random_state, client
        self.device, self.memory_budget, self.verbose = device, memory_budget, verbose
        self.handle_unknown = handle_unknown

    @fits
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        sample_dims: Any = None,
        coords: Any = None,
        drop: Any = None,
    ) -> "AutoKernelRegressor":
        """Search for a model, and fit it to all rows; see :meth:`daskkern.AutoKernelClassifier.fit`."""
        plain = KernelRegressor(
            random_state=self.random_state,
            client=self.client,
            device=self.device,
            memory_budget=self.memory_budget,
            verbose=self.verbose,
            handle_unknown=self.handle_unknown,
        )
        roles = named_roles(target, sample_dims, coords, drop)
        self._search(plain, plain._source(X, y, sample_weight, roles=roles))
        return self

    @computed_by_client
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R2 on arrays with targets `y`, or on a store, in one streaming pass."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return predictions, or a pair of them and standard deviations; see :meth:`daskkern.KernelRegressor.predict`.

        NumPy in, NumPy out; dask in, lazy dask out; a store is streamed.
        """
        check_is_fitted(self, "best_estimator_")
        best: KernelRegressor = self.best_estimator_
        return best.predict(X, return_std=return_std)

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Any:
        """Return lower and upper bounds of the targets; see :meth:`daskkern.KernelRegressor.predict_interval`."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_interval(X, confidence)
