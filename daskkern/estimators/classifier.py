"""The kernel classifier: a scikit-learn estimator that fits on a cluster."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from daskkern.basis import BasisSpec
from daskkern.data.cubes.packages import is_cube
from daskkern.data.schema.schema import Scaling
from daskkern.estimators.base import KernelEstimator
from daskkern.estimators.class_inputs import class_source, known_classes, takes_several_labels, validation_rows
from daskkern.estimators.direct_inputs import named_roles
from daskkern.estimators.inputs import is_lazy, is_store, only_store, validation_source
from daskkern.estimators.labels import Labels, scored_labels
from daskkern.estimators.parameters import can_continue, computed_by_client, fits, unknown_choice
from daskkern.estimators.uncertainty import ClassUncertainty
from daskkern.evaluation.cell_scores import cell_score
from daskkern.evaluation.lazy_scores import lazy_accuracy
from daskkern.evaluation.tables.scoring import score_place
from daskkern.events import Listener
from daskkern.kernels import Kernel
from daskkern.losses import Loss
from daskkern.solvers import Solver
from daskkern.training.jobs.handle import FitHandle


class KernelClassifier(ClassifierMixin, ClassUncertainty, KernelEstimator):
    """A kernel classifier, trained by preconditioned mini-batch SGD; the model is sharded over a cluster's workers.

    Parameters
    ----------
    kernel : Kernel, str or function of two tables of rows
        Such as ``Laplacian(10.0)`` or ``"gaussian:median"``, where "median" is the median distance between rows. "auto"
        is the Laplacian of the L1 or the Euclidean distance, or a smoother one; see ``docs/features-and-kernels.md``.
    loss : str or Loss
        "squared_hinge", "squared", "hinge", "smoothed_hinge", "logistic", "multinomial_logistic" or "multiclass_hinge".
        All but the last two are one-vs-rest. A parameter follows the name: "smoothed_hinge:0.5"; a Loss may have costs.
        "auto" is the first of "squared_hinge", "squared", "hinge" and "multiclass_hinge" that the solver can minimise.
    basis : Landmarks, AllRows, LocalRows, RandomFeatures, NystromFeatures, DoublyStochastic, Linear, int or "auto"
        The columns of the model. "auto" takes all rows as centres up to 10,000 rows, and 10,000 landmarks for more
        rows, for `partial_fit`, and where solver, `sampling` or `virtual_shards` require landmarks.
    solver : str or Solver
        "auto" (EigenPro; for the squared loss on up to 5,000 rows the exact "direct", see ``docs/choose.md``), a name
        of ``daskkern.solvers.SOLVERS``, or a configured solver.
    alpha : float, "auto" or "auto/4"
        Ridge penalty in ``(1/n) sum_i w_i loss_i + (alpha/2) |f|^2``; "auto": the best on sampled rows; or a part.
    max_epochs : int
        Passes over the rows.
    batch_size : int or "auto"
        Rows of a step; "auto" takes what the solver and the memory allow.
    early_stopping : bool
        Stop when validation rows no longer improve (see `monitor`); the model is that of the best epoch.
    random_state : int, RandomState or None
        With an int, the same data give the same model, whatever the number of workers, up to rounding.
    client : distributed.Client, str, path, cluster or None
        A client, the address of a scheduler, its scheduler file, or a cluster; None: the active one, or this process.
    class_weight : dict, "balanced" or None
        Weights of the classes, by label; "balanced" weights them by inverse frequency, None all alike.
    validation_fraction : float
        Share of the rows that early stopping holds out where no validation rows are passed.
    n_iter_no_change : int
        Patience of early stopping, in epochs.
    tol : float
        The least improvement that counts for early stopping.
    dtype : "float32", "float64" or "auto", which is float64 for exact fits of up to 5,000 rows and else float32
        Precision of features and coefficients.
    device : "auto", "cpu" or "gpu"
        Where to compute; "auto" takes a GPU where there is one.
    verbose : bool
        Whether to show the progress of the fit.
    memory_budget : int or None
        Bytes that one rank may use; a fit that needs more is refused before it starts.
    keep_blocks : "auto", "memory", "disk" or "never"
        Where kernel blocks are cached from the first epoch on.
    precision : "float32", "float64", "tf32", "float16" or None
        What features are rounded to in training, for a GPU's tensor cores; None rounds nothing.
    warm_start : bool
        Continue from the checkpoint, or the last fit, with the same data and settings but for `max_epochs`: as one run.
    checkpoint : str or None
        Zarr location for the progress of the fit, which all workers must reach. A fit without `warm_start` replaces it.
    sampling : "uniform", "fresh", "fixed", "independent", "weighted" or "balanced"
        How rows come to batches: once an epoch, with "fresh" in other batches every time and with "fixed" in one order;
        drawn independently, in proportion to weights, or every class equally often. Draws need landmarks or features.
    max_seconds : float or None
        Time after which the fit stops, with the model so far.
    virtual_shards : int or None
        Give bitwise the same model on any number of workers up to this one; costs time, see ``docs/recovery.md``.
    callbacks : sequence of callables or None
        Called with every event of a fit, such as the loggers of :mod:`daskkern.monitor.loggers`.
    monitor : "auto", "loss" or "score"
        What early stopping monitors: the mean loss ("auto" for the logistic losses), or accuracy ("auto" otherwise).
    scale : "auto", "always", "affine", "arcsinh", "ranks", "standard", "common", "robust", "minmax", ..., Scaling, None
        How features are scaled, also of rows to predict; None: not. "auto" is "standard", but features of many
        values get logarithmic tails, unless that predicts sampled rows worse; those of two values are divided by half
        their distance, nearly constant or heavy-tailed ones by a robust spread. "auto" leaves alone stores scaled at
        ingestion, and rows for a kernel in units of the features, such as ``"gaussian:5"``; "always", "affine" (no
        tails), "arcsinh" (tails) and "ranks" do not. "common" divides all features by one number. A Scaling is kept.
    fit_intercept : bool
        Add the constant scores that minimise the loss, an intercept without penalty. The hinge: "svm" only.
    learn_features : bool, "auto", "diagonal", "full", FeatureLearning or None
        Learn the kernel's metric from sampled rows: weights ("diagonal"), directions too ("full"), or what suits
        ("auto", True). None: for most fits to up to 3,000, or over 10,000, rows; see ``docs/choose.md``.
    calibrate : bool or float
        Calibrate for `predict_proba` and `predict_set`: on validation rows, else on leave-one-out scores (up to 10,000
        rows) or a twentieth of the rows, set aside; 0.1 sets that share aside. See ``docs/probabilities.md``.
    reading : "auto", "once" or "each"
        Whether each rank reads all rows, or every window is read once and sent on; see ``docs/clusters.md``.
    groups : int or "auto"
        The most groups of workers that each hold the whole model and divide every batch; see ``docs/scaling.md``.
    handle_unknown : "error" or "ignore"
        Whether a category of a data frame or table that the training rows lack is refused, or its features are 0.

    Attributes
    ----------
    classes_ : (n_classes,) array
    alpha_, kernel_ : float, Kernel
        Penalty and kernel of the fit, given or chosen, parameters as numbers; with random features, their function.
    dual_coef_ : (p, c) array
    landmarks_ : (p, d) array
        In units of the features scaled by ``model_.scaling``.
    landmark_indices_ : (p,) array or None
        Row numbers of the landmarks.
    history_ : History
        A table with one row per epoch: ``history_["loss"]``, ``history_[-1]``, ``history_.to_pandas()``.
    model_ : KernelModel
    n_iter_, n_features_in_ : int
    best_epoch_ : int
        The epoch of this model, from 1: the best with early stopping, else the last, or one of clearly lower objective.
    feature_importances_ : (n_features_in_,) array
        With `learn_features`: the share of each column in the metric.
    stop_reason_ : str
        "max_epochs", "max_seconds", "early_stopping", "converged" or "interrupted".
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
        class_weight: Any = None,
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
        fit_intercept: bool = True,
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
        self.random_state, self.sampling, self.class_weight = random_state, sampling, class_weight
        self.scale, self.fit_intercept, self.dtype, self.precision = scale, fit_intercept, dtype, precision
        self.client, self.device, self.virtual_shards, self.verbose = client, device, virtual_shards, verbose
        self.memory_budget, self.keep_blocks, self.reading = memory_budget, keep_blocks, reading
        self.warm_start, self.checkpoint, self.handle_unknown = warm_start, checkpoint, handle_unknown
        self.learn_features, self.calibrate, self.groups, self.callbacks = learn_features, calibrate, groups, callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = takes_several_labels(self)
        return tags

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
    ) -> "KernelClassifier | FitHandle":
        """Fit the classifier.

        Parameters
        ----------
        X : path, URL, Zarr group, dask array (n, d), array-like (n, d), xarray Dataset or DataArray, TableFiles
            A store brings its own targets and weights. Dask arrays are never gathered. NumPy arrays are not copied.
            The cells of a Dataset are rows, without those where a value is missing; see ``docs/xarray.md``.
        y : dask array or array-like (n,), or (n, c) of 0 and 1, optional
            Class labels of one kind: strings, integers, floats or booleans. A dense or sparse table says which of
            several labels each row has; in a store, several regression targets of 0 and 1.
        sample_weight : dask array or array-like (n,), optional
            Weights of the rows, 0 or more; None counts all alike.
        validation : store or (X, y), optional
            Rows for early stopping, in place of a share of the training rows, and to be scored after each epoch.
        detach : bool
            Submit the fit and return a :class:`daskkern.FitHandle` at once; only a worker then has the model.
        out : path or URL, optional
            Where the worker writes the model, with `detach`; an existing model there is replaced.
        target, sample_dims, coords, drop : str or list of str, optional
            Of table files: see :class:`daskkern.TableFiles`. Of a Dataset: the variable to predict, the dims of whose
            cells rows are made (by default the target's), coordinates that are features, and variables that are none.

        Raises
        ------
        daskkern.errors.DaskkernError
            With one sentence: what was given, what was expected, what to do.
        """
        roles = named_roles(target, sample_dims, coords, drop)
        source, known = class_source(self, X, y, sample_weight, roles=roles)
        rows = partial(validation_rows, self, source, known)
        watched = validation_source(validation, rows, self, roles, source)
        if detach:
            return self._submit(source, watched, out)
        self._fit_source(source, watched, out)
        self.classes_ = known
        return self

    @available_if(can_continue)
    @fits
    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> "KernelClassifier":
        """Run one epoch on these rows from the current model, with its columns, preconditioner and step count.

        The first call, unless :meth:`fit` came before, chooses landmarks or features and estimates the spectrum from
        its rows: pass a representative sample of a few thousand rows, or ``Landmarks(points=...)``. Weights are
        relative to the mean weight of the first rows. Not available with all rows as centres, nor with solvers that
        need every row at once.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.
        classes : array-like (n_classes,), optional
            All labels that will occur, two at least; required in the first call if its rows do not contain them all.
            Rows of one class then have an intercept of equal class frequencies.

        Raises
        ------
        daskkern.errors.DaskkernError
            For rows of another kind than before, labels outside the classes, or changed settings.
        """
        begun = getattr(self, "_carried", None) is not None
        source, known = class_source(self, X, y, sample_weight, known_classes(self, classes), reset=not begun)
        self._go_on(source)
        self.classes_ = known
        return self

    def decision_function(self, X: Any) -> Any:
        """Return scores (n, n_classes), or (n,) for two classes, or (n, c) of several labels; lazy for a dask array."""
        check_is_fitted(self, "model_")
        shape = (0, len(self.classes_)) if self.model_.task == "multilabel" or len(self.classes_) > 2 else (0,)
        return self._apply(X, self.model_.decisions, np.empty(shape, self.model_.coef.dtype))

    def predict(self, X: Any) -> Any:
        """Return class labels (n,), or several of 0 and 1 (n, c): NumPy in, NumPy out; dask in, lazy dask out.

        Stores and table files, local or behind URLs, are streamed. Labels follow the sign, or the largest, of scores.
        """
        check_is_fitted(self, "model_")
        if self.model_.task == "multilabel":
            return self._apply(X, self.model_.labels, np.empty((0, len(self.classes_)), np.int64))
        return self._apply(X, Labels(self.classes_), self.classes_[:0])

    @computed_by_client
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy on arrays with labels `y`, a store, tables or a Dataset; of several labels, of all."""
        check_is_fitted(self, "model_")
        y = scored_labels(self.model_, y, sample_weight)
        if is_store(X):
            only_store(y, sample_weight)
            return float(score_place(self.model_, X, unknown_choice(self)).accuracy or 0.0)
        if is_cube(X):
            return cell_score(self.predict(X), self.model_, X, y, sample_weight)
        return lazy_accuracy(self.predict(X), y, sample_weight) if is_lazy(X) else super().score(X, y, sample_weight)
