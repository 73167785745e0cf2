"""Base class of classifier and regressor: settings from parameters, and fitting."""

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from daskkern.basis import BasisSpec, is_basis
from daskkern.cluster.connect.clients import client_of
from daskkern.errors import SpecError
from daskkern.estimators.frames import named
from daskkern.estimators.model_estimator import ModelEstimator
from daskkern.estimators.parameters import (
    active_client,
    as_basis,
    as_kernel,
    as_seed,
    check_flags,
    loss_of,
    unknown_choice,
)
from daskkern.estimators.restored import column_importances, restore
from daskkern.events import Listener, silent
from daskkern.feature_learning import parse_feature_learning
from daskkern.models import KernelModel
from daskkern.monitor.listeners import all_of
from daskkern.monitor.progress import progress
from daskkern.solvers import parse_solver
from daskkern.solvers.sampling import draws_rows
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.partial_fit import PartialFitState, reason_against_continuing
from daskkern.training.feeding.cluster_blocks import BlockSource
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.defaults import first_dtype, for_few_rows, usual_basis, with_usual_metric

_FEW_LANDMARKS = 1000
"""Landmarks from which on a first call of `partial_fit` may have fewer than requested without a warning."""


class KernelEstimator(ModelEstimator):
    """Base class of classifier and regressor; it is not used by itself."""

    _shared_parameters = ("client", "callbacks")

    @classmethod
    def from_model(cls, model: Any) -> Self:
        """Return a fitted estimator of a saved model, which predicts and scores rows of every kind that a fit takes.

        ``daskkern.load`` gives a light predictor of arrays; this one also takes data frames, Datasets, dask arrays,
        stores and files. The state of the solver is not in a model: `partial_fit` needs a fit of its own.

        Parameters
        ----------
        model : path, URL or KernelModel
            The loss of the estimator is the model's, and so are kernel and penalty where its columns are landmarks or
            all rows; other parameters are the defaults. A later `fit` starts from scratch with them.

        Raises
        ------
        SpecError
            For a model of another task.
        ModelError
            When the model is missing or damaged.
        """
        estimator = cls()
        restore(estimator, model)
        return estimator

    def fit_settings(
        self, n_rows: int | None = None, task: str | None = None, n_features: int | None = None, n_classes: int = 0
    ) -> FitSettings:
        """Return the parameters as checked settings for a fit to rows of this number and task, or raise SpecError."""
        check_flags(self, "early_stopping", "fit_intercept", "warm_start")
        stops = EarlyStopping(self.validation_fraction, self.n_iter_no_change, self.tol, self.monitor)
        early = stops if self.early_stopping else None
        basis = self._columns(n_rows)
        unknown_choice(self)  # refuses other words, also where no table is encoded
        solver = parse_solver(self.solver, getattr(basis, "name", ""))
        if early is not None and solver.most_epochs(2) == 1:
            raise SpecError(
                f"got early_stopping=True with solver {solver.name}, which has no epochs to stop after; leave it out"
            )
        settings = FitSettings(
            kernel=as_kernel(self.kernel),
            loss=loss_of(self),
            basis=basis,
            solver=solver,
            alpha=self.alpha,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            seed=as_seed(self.random_state),
            dtype=first_dtype(self.dtype),
            device=self.device,
            class_weight=getattr(self, "class_weight", None),
            early_stopping=early,
            fit_intercept=getattr(self, "fit_intercept", True),
            memory_budget=self.memory_budget,
            keep_blocks=self.keep_blocks,
            precision=self.precision,
            sampling=self.sampling,
            max_seconds=self.max_seconds,
            virtual_shards=self.virtual_shards,
            reading=self.reading,
            groups=self.groups,
            scale=self.scale,
            class_intercept=bool(self.fit_intercept),
            learn_features=parse_feature_learning(self.learn_features),
            calibrate=self.calibrate,
            multilabel=task == "regression" and is_classifier(self),
        )
        left_open = {
            "solver": self.solver == "auto" and not self.warm_start and self.checkpoint is None,  # no epochs follow
            "dtype": self.dtype == "auto",
        }
        settings = for_few_rows(settings, {name for name, is_open in left_open.items() if is_open}, n_rows)
        if self.learn_features is not None:
            return settings
        known = n_classes if is_classifier(self) else None
        return with_usual_metric(settings, n_rows, n_features, known, names_solver=not left_open["solver"])

    def _settings_for(self, source: RowSource) -> FitSettings:
        info = source.info
        return self.fit_settings(info.n_rows, info.task, info.n_features, len(info.classes or ()))

    def _columns(self, n_rows: int | None) -> BasisSpec:
        """Return the basis of a fit to `n_rows` rows, or, with None, of a fit that may continue on other rows."""
        basis: BasisSpec | str = as_basis(self.basis)
        if is_basis(basis):
            return basis
        if basis != "auto":
            raise SpecError(
                f"got basis={basis!r}; give 'auto', a number of landmarks, or a basis of daskkern.basis such as "
                "Landmarks(n)"
            )
        drawn = draws_rows(self.sampling) or self.virtual_shards is not None
        return usual_basis(None if drawn else n_rows, parse_solver(self.solver))

    def _why_no_other_rows(self) -> str:
        """Return why the fit cannot continue on other rows, or "" if it can. Draws no random numbers."""
        weighs = getattr(self, "class_weight", None) is not None
        early = bool(self.early_stopping)
        return reason_against_continuing(
            parse_solver(self.solver, self._columns(None).name),
            self._columns(None),
            early=early,
            weighs_classes=weighs,
            sampling=self.sampling,
        )

    def _checkpoint_policy(self, basis: BasisSpec) -> CheckpointPolicy:
        earlier = getattr(self, "_saved", None) if self.warm_start and self.checkpoint is None else None
        if not isinstance(self.checkpoint, str | os.PathLike | None):
            raise SpecError(f"got checkpoint={self.checkpoint!r:.60}; expected a path, a URL, or None")
        return CheckpointPolicy(
            checkpoint=None if self.checkpoint is None else os.fspath(self.checkpoint),
            resume=self.warm_start,
            overwrite=not self.warm_start,
            earlier=earlier,
            hand_back=self.warm_start,
            carry=not self._why_no_other_rows() and not basis.all_rows,
        )

    @contextmanager
    def _listening(self, max_epochs: int) -> Iterator[Listener]:
        """Yield the listener of a fit: progress with `verbose`, and the callbacks."""
        given = () if self.callbacks is None else self.callbacks
        callbacks = tuple(given) if isinstance(given, Iterable) else ()
        if not isinstance(given, Iterable) or not all(callable(callback) for callback in callbacks):
            raise SpecError("got callbacks that cannot be called; give functions of one event, such as MLflowLogger()")
        if not self.verbose:
            yield all_of((silent, *callbacks))
            return
        with progress(max_epochs) as shown:
            yield all_of((shown, *callbacks))

    def _submit(self, source: RowSource, validation: RowSource | None, out: Any) -> FitHandle:
        """Submit a detached fit to `source`."""
        source, settings = self._named(source), self._settings_for(source)
        client = active_client(self.client)
        if out is None or client is None:
            what = "out=, where a worker writes the model" if out is None else "a client of a cluster to run on"
            raise SpecError(f"got detach=True without {what}; give it")
        if self.callbacks:
            raise SpecError(
                "got callbacks with detach=True, but events of a detached fit do not reach this process; leave them "
                "out, and pass one to handle.watch(listener) instead"
            )
        policy = replace(
            self._checkpoint_policy(settings.basis), overwrite=True, earlier=None, hand_back=False, carry=False
        )
        with client_of(client) as connected:
            assert connected is not None
            return submit(FitJob(source, settings, validation, policy), connected, os.fspath(out))

    def _fit_source(self, source: RowSource, validation: RowSource | None, out: Any) -> FitResult:
        """Fit to `source` and set the attributes that classifier and regressor share."""
        if out is not None:
            raise SpecError(f"got out={out!r} without detach=True; call save() after the fit instead")
        source, settings = self._named(source), self._settings_for(source)
        client = active_client(self.client)
        with self._listening(settings.max_epochs) as listener:
            result = fit(
                source,
                settings,
                client=client,
                validation=validation,
                listener=listener,
                policy=self._checkpoint_policy(settings.basis),
            )
        self._take(result)
        if result.finished.note:
            warnings.warn(result.finished.note, ConvergenceWarning, stacklevel=4)
        self._basis = settings.basis
        return result

    def _go_on(self, source: RowSource) -> None:
        """Run one epoch on the rows of `source`, starting from the current model, or from the beginning."""
        if self.checkpoint is not None:
            raise SpecError(
                f"got partial_fit with checkpoint={self.checkpoint!r}, which records the progress of a fit to one set "
                "of rows; set it to None, and save() the model between the calls"
            )
        earlier: PartialFitState | None = getattr(self, "_carried", None)
        if earlier is None and hasattr(self, "model_"):
            if not hasattr(self, "_basis"):
                raise SpecError(
                    "got partial_fit on an estimator of a saved model, which has no state of its solver; fit again"
                )
            if isinstance(self.basis, str) and self._basis.all_rows:
                raise SpecError(
                    "got partial_fit after a fit whose centres are all its rows, which basis='auto' chooses for up to "
                    "10,000 rows; set basis=Landmarks(n) and fit again, or call partial_fit from the beginning"
                )
            if self.stop_reason_ == "max_seconds":
                raise SpecError(
                    "got partial_fit after a call that max_seconds ended without saving its state: time was too short, "
                    f"or {self.model_.nbytes:,} bytes are too many; raise max_seconds and start over with fit"
                )
            raise SpecError(
                f"got partial_fit on a model of {self.model_.nbytes:,} bytes, whose state is too large for a rank's "
                "memory; to continue on the same rows, call fit with warm_start=True"
            )
        settings = replace(self.fit_settings(None, source.info.task), max_epochs=1, rows_follow=True)
        policy, client = CheckpointPolicy(carry=True), active_client(self.client)
        with self._listening(1) as listener:
            result = fit(
                self._named(source), settings, client=client, listener=listener, policy=policy, earlier=earlier
            )
        self._basis = settings.basis
        self._take(replace(result, saved=None))  # warm_start must not resume from one epoch on other rows
        requested, found = settings.basis.n_landmarks, result.model.points.shape[0]
        if earlier is None and settings.basis.own_points is None and found < min(requested or 0, _FEW_LANDMARKS):
            warnings.warn(
                f"the first call of partial_fit had {source.info.n_rows:,} rows, of which {found:,} are landmarks from "
                f"now on (requested: {requested:,}): later calls add none; pass a few thousand rows first, or give "
                "basis=Landmarks(points=...)",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _named(self, source: RowSource) -> RowSource:
        """Return `source` with the names of the columns of a data frame; those of an earlier fit are forgotten."""
        if not isinstance(source, ArraySource) and not (isinstance(source, BlockSource) and source.info.feature_names):
            self.__dict__.pop("feature_names_in_", None)
        return named(source, getattr(self, "feature_names_in_", None))

    def _take(self, result: FitResult) -> None:
        """Set the attributes that classifier and regressor share."""
        self._saved = result.saved if self.warm_start else None
        self._carried = result.partial_fit_state
        self.model_: KernelModel = result.model
        self.dual_coef_ = result.model.coef
        self.landmarks_ = result.model.points
        self.landmark_indices_ = result.indices
        self.kernel_ = result.model.kernel
        self.alpha_ = float(result.model.provenance["settings"]["alpha"])
        names = getattr(self, "feature_names_in_", None)  # of a frame, of whose columns some are several features
        self.n_features_in_ = result.model.n_features if names is None else len(names)
        self.n_iter_ = result.finished.epochs
        self.best_epoch_ = result.finished.best_epoch or result.finished.epochs
        self.history_ = result.history
        self.stop_reason_ = result.finished.reason
        self.__dict__.pop("feature_importances_", None)
        if self.learn_features:
            self.feature_importances_ = column_importances(result.model, self.n_features_in_)
