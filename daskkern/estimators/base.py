"""What classifier and regressor share: parameters to settings, fitting, lazy prediction, saving."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from distributed import Client, default_client
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from daskkern.arrays import HostArray
from daskkern.basis import BasisSpec
from daskkern.cluster.connect.clients import client_of
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError
from daskkern.estimators.inputs import is_lazy, is_store, refuse_masked
from daskkern.evaluation.score import check_store, raw_blocks
from daskkern.events import Listener, all_of, silent
from daskkern.kernels import CallableKernel, Kernel, parse_kernel
from daskkern.losses import parse_loss
from daskkern.models import KernelModel, save_model
from daskkern.monitor.progress import progress
from daskkern.solvers import parse_solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.partial_fit import PartialFitState, why_not
from daskkern.training.feeding.sources import RowSource, StoreSource, check_finite
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import EarlyStopping, FitSettings
from daskkern.training.setup.default_basis import usual_basis


class KernelEstimator(BaseEstimator):
    """Common ground of the estimators; not used by itself."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_clone__(self) -> "KernelEstimator":
        """Return an unfitted copy that shares the client and the callbacks: what they hold cannot be copied."""
        parameters = self.get_params(deep=False)
        shared = {name: parameters.pop(name) for name in ("client", "callbacks")}
        copy = type(self)(**{name: clone(value, safe=False) for name, value in parameters.items()})
        return copy.set_params(**shared)

    def fit_settings(self, n_rows: int | None = None) -> FitSettings:
        """Return the parameters as checked settings, for a fit to `n_rows` rows. SpecError names a wrong one."""
        early = None
        if self.early_stopping:
            early = EarlyStopping(self.validation_fraction, self.n_iter_no_change, self.tol, self.monitor)
        return FitSettings(
            kernel=as_kernel(self.kernel),
            loss=parse_loss(self.loss),
            basis=self._columns(n_rows),
            solver=parse_solver(self.solver),
            alpha=self.alpha,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            seed=as_seed(self.random_state),
            dtype=self.dtype,
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
            scale=self.scale,
            class_intercept=bool(self.fit_intercept),
        )

    def _columns(self, n_rows: int | None) -> BasisSpec:
        """Return the columns of a fit to `n_rows` rows, or of one that may go on with other rows."""
        basis: BasisSpec | str = self.basis
        if not isinstance(basis, str):
            return basis
        if basis != "auto":
            raise SpecError(f"basis={basis!r} was asked; give 'auto', or one of daskkern.basis such as Landmarks(n)")
        drawn = self.sampling != "uniform" or self.virtual_shards is not None
        return usual_basis(None if drawn else n_rows, parse_solver(self.solver), parse_loss(self.loss))

    def _why_no_other_rows(self) -> str:
        """Return why the fit cannot go on with other rows; "" when it can. Draws no random numbers."""
        weighs = getattr(self, "class_weight", None) is not None
        early = bool(self.early_stopping)
        return why_not(
            parse_solver(self.solver),
            self._columns(None),
            early=early,
            weighs_classes=weighs,
            sampling=self.sampling,
        )

    def _safety(self, basis: BasisSpec) -> CheckpointPolicy:
        earlier = getattr(self, "_saved", None) if self.warm_start and self.checkpoint is None else None
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
        """Yield who listens to a fit: progress, where it is wanted, and the callbacks."""
        callbacks = () if self.callbacks is None else tuple(self.callbacks)
        if not all(callable(callback) for callback in callbacks):
            raise SpecError(
                "callbacks were given that cannot be called; give functions of one event, such as MLflowLogger()"
            )
        if not self.verbose:
            yield all_of((silent, *callbacks))
            return
        with progress(max_epochs) as shown:
            yield all_of((shown, *callbacks))

    def _submit(self, source: RowSource, validation: RowSource | None, out: Any) -> FitHandle:
        """Submit a fit to `source` that goes on by itself."""
        settings = self.fit_settings(source.info.n_rows)
        client = self.client if self.client is not None else _active_client()
        if out is None or client is None:
            what = "no out=, where a worker writes the model" if out is None else "no client of a cluster to run on"
            raise SpecError(f"detach=True was given and {what}; give it")
        if self.callbacks:
            raise SpecError(
                "callbacks were given with detach=True, and this process is not told what happens; leave them out, and "
                "pass one to handle.watch(listener) instead"
            )
        safety = replace(self._safety(settings.basis), overwrite=True, earlier=None, hand_back=False, carry=False)
        with client_of(client) as connected:
            assert connected is not None
            return submit(source, settings, connected, os.fspath(out), validation=validation, safety=safety)

    def _fit_source(self, source: RowSource, validation: RowSource | None, out: Any) -> FitResult:
        """Fit to `source` and set the attributes that classifier and regressor share."""
        if out is not None:
            raise SpecError(f"out={out!r} was given without detach=True; call save() after the fit instead")
        settings = self.fit_settings(source.info.n_rows)
        client = self.client if self.client is not None else _active_client()
        with self._listening(settings.max_epochs) as listener:
            result = fit(
                source,
                settings,
                client=client,
                validation=validation,
                listener=listener,
                safety=self._safety(settings.basis),
            )
        self._take(result)
        if result.finished.note:
            warnings.warn(result.finished.note, ConvergenceWarning, stacklevel=3)
        self._basis = settings.basis
        return result

    def _go_on(self, source: RowSource) -> None:
        """Run one epoch on the rows of `source`, from where the model is, or from the beginning."""
        if self.checkpoint is not None:
            raise SpecError(
                f"partial_fit was called with checkpoint={self.checkpoint!r}, which keeps the progress of a fit to one "
                "set of rows; set it to None, and save() the model between the calls"
            )
        earlier: PartialFitState | None = getattr(self, "_carried", None)
        if earlier is None and hasattr(self, "model_"):
            if isinstance(self.basis, str) and self._basis.all_rows:
                raise SpecError(
                    "partial_fit was called after a fit whose centres are all its rows, as basis='auto' takes up to "
                    "10,000 rows; set basis=Landmarks(n) and fit again, or call partial_fit from the beginning"
                )
            if self.stop_reason_ == "max_seconds":
                raise SpecError(
                    "partial_fit was called after a call that max_seconds ended, and its state was not kept: there was "
                    f"no time, or {self.model_.nbytes:,} bytes are too many; begin anew with fit and more seconds"
                )
            raise SpecError(
                f"partial_fit was called on a model of {self.model_.nbytes:,} bytes, too large to be kept in a rank's "
                "memory for other rows; fit with warm_start=True goes on with the same rows"
            )
        settings, safety = replace(self.fit_settings(), max_epochs=1), CheckpointPolicy(carry=True)
        client = self.client if self.client is not None else _active_client()
        with self._listening(1) as listener:
            result = fit(source, settings, client=client, listener=listener, safety=safety, earlier=earlier)
        self._take(replace(result, saved=None))  # which is not the end of a fit to all rows

    def _take(self, result: FitResult) -> None:
        """Set the attributes that classifier and regressor share."""
        self._saved = result.saved if self.warm_start else None
        self._carried = result.carried
        self.model_: KernelModel = result.model
        self.dual_coef_ = result.model.coef
        self.landmarks_ = result.model.points
        self.landmark_indices_ = result.indices
        self.alpha_ = float(result.model.provenance["settings"]["alpha"])
        self.n_features_in_ = result.model.n_features
        self.n_iter_ = result.finished.epochs
        self.best_epoch_ = result.finished.best_epoch or result.finished.epochs
        self.history_ = result.history
        self.stop_reason_ = result.finished.reason

    def _apply(self, X: Any, method: Callable[[HostArray], HostArray], like: HostArray) -> Any:
        """Apply a method of scores (n, c) to the scores of `X`: at once, or lazily for a dask array.

        `like` is the result for no rows: it tells dtype and width.
        """
        check_is_fitted(self, "model_")
        if is_lazy(X):
            return self._apply_lazily(X, method, like)
        if is_store(X):
            store = open_store(X)
            check_store(self.model_, store, targets=False)
            with self.model_.threads(None, store.info.n_rows):
                parts = [method(self.model_.scores(self.model_.check(block))) for block in raw_blocks(store)]
            return np.concatenate(parts)
        refuse_masked(X, None)
        X = validate_data(
            self, X, reset=False, dtype="numeric", order="C", ensure_all_finite=False, accept_sparse="csr"
        )
        check_finite(X)
        return method(self.model_.scores(X))

    def _apply_lazily(self, X: da.Array, method: Callable[[HostArray], HostArray], like: HostArray) -> da.Array:
        if X.ndim != 2 or X.shape[1] != self.model_.n_features:
            raise DataError(f"X has shape {X.shape}, but the model expects {self.model_.n_features} features")
        X = X.rechunk({1: -1})
        shared = delayed(self.model_, pure=True)  # one copy in the graph, not one a block
        if like.ndim == 1:
            return da.map_blocks(_apply_block, X, shared, method, drop_axis=1, dtype=like.dtype, meta=like)
        chunks = (X.chunks[0], (like.shape[1],))
        return da.map_blocks(_apply_block, X, shared, method, chunks=chunks, dtype=like.dtype, meta=like)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a Zarr group at `path`, replacing an older model there.

        ``daskkern.load(path)`` gives a predictor that needs only NumPy and Zarr.
        """
        check_is_fitted(self, "model_")
        save_model(self.model_, path)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "client": None, "callbacks": None}  # connections do not travel; the model does


def _apply_block(X: HostArray, model: KernelModel, method: Callable[[HostArray], HostArray]) -> HostArray:
    return method(model.scores(model.check(X), threads=1))  # Dask has as many of these at work as it has threads


def goes_on(estimator: KernelEstimator) -> bool:
    """Return True where a fit can go on with other rows. AttributeError says why not."""
    try:
        reason = estimator._why_no_other_rows()
    except SpecError:
        return True  # the call will say what is wrong
    if reason:
        raise AttributeError(f"there is no partial_fit: {reason}")
    return True


def only_store(y: Any, sample_weight: Any) -> None:
    """Refuse targets and weights beside a store, which brings its own."""
    if y is not None or sample_weight is not None:
        raise DataError("a store brings its own targets and weights; pass y and sample_weight with arrays only")


def validation_source(validation: Any, make: Callable[[Any, Any], RowSource]) -> RowSource | None:
    """Return the source for ``validation=``: None, a store, or a pair (X, y)."""
    if validation is None:
        return None
    if is_store(validation):
        return StoreSource.at(validation)
    if isinstance(validation, tuple) and len(validation) == 2:
        return make(*validation)
    raise DataError("validation must be a store, or a pair (X, y) of arrays")


def as_kernel(kernel: Any) -> Kernel:
    """Return a kernel, or what a word or a function of two tables means. SpecError says what can be given."""
    if isinstance(kernel, str):
        return parse_kernel(kernel)
    if callable(kernel) and not isinstance(kernel, type):
        return CallableKernel(kernel, getattr(kernel, "__name__", "callable"))
    if not isinstance(kernel, Kernel):
        raise SpecError(
            f"kernel={kernel!r} was asked; give a kernel such as Gaussian(5.0), a word such as 'gaussian:5', or a "
            "function of two tables of rows"
        )
    return kernel


def as_seed(random_state: Any) -> int:
    """Return the seed that scikit-learn's `random_state` means."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _active_client() -> Client | None:
    try:
        return default_client()
    except ValueError:
        return None
