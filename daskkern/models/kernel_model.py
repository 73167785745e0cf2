"""A fitted model: points, coefficients and the interpretation of its scores. Needs only NumPy."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.concurrency import product_threads
from daskkern.backend.namespace import is_sparse, namespace_for, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.calibration import Calibration
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.same_columns import column_names, other_name
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.errors import DataError, ModelError
from daskkern.kernels import Drawn, Kernel, Neuron, Partitioned, Points, ScaledDistanceKernel, TreeAverage
from daskkern.losses import best_of, decode
from daskkern.models.calibrated import CalibratedScores
from daskkern.models.display import ShownModel
from daskkern.models.onnx_graph import write_onnx
from daskkern.models.plain_rows import checked_table
from daskkern.monitor.history import History

_BLOCK_ROWS = 4096


@dataclass(frozen=True, eq=False)
class _Scorer:
    """Points and coefficients on the device that computes scores."""

    xp: ModuleType
    points: Points
    coef: Array


@dataclass(frozen=True, eq=False, repr=False)
class KernelModel(ShownModel, CalibratedScores):
    """``f(x) = sum_j k(x, z_j) a_j``, and how its scores become predictions.

    Attributes
    ----------
    kernel : Kernel
    points : (p, d) array or CSR matrix, float32 or float64
        z above, after scaling.
    coef : (p, c) array
        a above.
    loss : str
        Name of the loss it was trained with.
    task : "classification", "multilabel" (each target is a label of 0 or 1) or "regression"
    classes : tuple or None
        Class labels by code.
    scaling : Scaling
        Applied to the features of all rows that are predicted.
    target_shift, target_scale : (c,) float64 or None
        Predictions of regression are ``f(x) * target_scale + target_shift``; scores of classes ``f(x) + target_shift``.
    feature_names : tuple of str or None
    single_target : bool
        Whether predictions of regression are (n,) rather than (n, t).
    provenance : mapping
        Settings and history of the fit, its data and environment, as JSON values.
    target_names : tuple of str or None
        Columns of a table that hold the targets.
    encoding : tuple of ColumnEncoding or None
        How columns of a table become features: categories, and the replacement of missing values. For raw tables;
        arrays that are predicted contain the features already.
    scores_each : int
        Columns of `coef` for each output; the largest of their scores is used.
    calibration : Calibration or None
        What the scores mean: probabilities, sets and intervals.
    """

    kernel: Kernel
    points: Any
    coef: HostArray
    loss: str
    task: str
    classes: tuple[ClassLabel, ...] | None
    scaling: Scaling = field(default_factory=Scaling)
    target_shift: HostArray | None = None
    target_scale: HostArray | None = None
    feature_names: tuple[str, ...] | None = None
    single_target: bool = True
    provenance: Mapping[str, Any] = field(default_factory=dict)
    target_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    scores_each: int = 1
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.coef.ndim != 2 or self.points.shape[0] != self.coef.shape[0]:
            raise ModelError(f"points {self.points.shape} and coefficients {self.coef.shape} of the model disagree")
        self._score_with(np)

    def _score_with(self, xp: ModuleType) -> None:
        """Prepare points and coefficients for scores on the device of `xp`."""
        points = to_device(self.points, xp)
        prepared = self.kernel.points(points, self.kernel.placement_for(points))
        object.__setattr__(self, "_scorer", _Scorer(xp, prepared, xp.asarray(self.coef)))

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("_scorer", "_factor")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._score_with(np)

    @property
    def history_(self) -> History:
        """The history of the fit, epoch by epoch; empty for a model without one. ModelError when it is damaged."""
        try:
            return History.from_json(self.provenance)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the history that was saved with the model is damaged: {error}") from None

    @property
    def nbytes(self) -> int:
        """Bytes of points and coefficients."""
        points = self.points
        parts = (points.data, points.indices, points.indptr) if is_sparse(points) else (points,)
        return int(sum(part.nbytes for part in parts)) + int(self.coef.nbytes)

    @property
    def n_features(self) -> int:
        """Features d that the model expects."""
        return self.kernel.features_of(self.points)

    def feature_importances(self) -> HostArray:
        """Return the share of each feature in the kernel's metric, (d,) float64 with the sum 1.

        With a learned metric M, ``M_jj / trace(M)``: the part of the gradients of a fitted function that belongs to
        feature j, after scaling. Without a metric, or length scales per feature, features have equal shares. Random
        Fourier features hold no metric: their shares are estimated from the medians of their squared weights, which
        are in the proportions of M_jj up to chance.
        """
        kernel = self.kernel
        weights: HostArray = np.ones(self.n_features)
        if isinstance(kernel, Neuron) and kernel.activation == "fourier":
            weights = np.median(np.square(self.points, dtype=np.float64), axis=0)
        own = kernel.kernel if isinstance(kernel, Drawn | Partitioned | TreeAverage) else kernel
        if isinstance(own, ScaledDistanceKernel) and own.feature_weights is not None:
            weights = own.feature_weights
        importances: HostArray = weights / weights.sum()
        return importances

    def on(self, device: str) -> "KernelModel":
        """Return the model whose scores are computed on `device`: "cpu", "gpu" or "auto" (a GPU where there is one).

        Points and coefficients are copied to a GPU once; rows go there, and scores come back, block by block. All
        arrays passed and returned are NumPy arrays. On the CPU this is the model itself. A pickled model is loaded on
        the CPU.

        Raises
        ------
        ClusterError
            For "gpu" where no GPU can be used.
        """
        xp = namespace_for(device)
        if xp is np:
            return self
        placed = object.__new__(type(self))
        placed.__dict__.update(self.__dict__)
        placed._score_with(xp)
        return placed

    def to_onnx(
        self, path: str | Path, inputs: str = "auto", *, confidence: float | None = None, overwrite: bool = False
    ) -> None:
        """Write the model to an ONNX file; see :func:`daskkern.models.onnx_graph.write_onnx`."""
        write_onnx(self, path, inputs, confidence=confidence, overwrite=overwrite)

    def decision_function(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return scores: (n, c), or (n,) when c is 1; of two classes, the second one's less the first one's, (n,).

        Parameters
        ----------
        X : (n, d) array of numbers
            In the units of the training data; the model's scaling is applied here.
        scaled : bool
            The scaling has been applied already.
        threads : int, optional
            Threads to use; None takes all processors that this process may use, and one thread inside a task of a
            Dask worker. The result has the same bits for any number. Small products use one, and GPUs none.
        """
        return self.decisions(self.scores(self.check(X), scaled=scaled, threads=threads))

    def decisions(self, scores: HostArray) -> HostArray:
        """Return scores (n, c) as decision values; see :meth:`decision_function`."""
        if scores.shape[1] == 1:
            return scores[:, 0]
        return scores[:, 1] - scores[:, 0] if self.classes is not None and len(self.classes) == 2 else scores

    def predict(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return class labels (n,), targets (n,) or (n, t), or quantiles (n, q); see :meth:`decision_function`."""
        return self.labels(self.scores(self.check(X), scaled=scaled, threads=threads))

    def scores(self, X: HostArray, *, scaled: bool = False, threads: int | None = None) -> HostArray:
        """Return scores (n, c) for checked rows, in blocks: memory is the result and one block a thread.

        See :meth:`decision_function` for `threads`.
        """
        with self.threads(threads, X.shape[0]):
            return self._scores(X, scaled)

    def threads(self, threads: int | None, n_rows: int) -> AbstractContextManager[None]:
        """Return a context inside which the scores of `n_rows` rows, in all, are computed by `threads` threads."""
        here: _Scorer = self._scorer  # type: ignore[attr-defined]
        each = self.coef.shape[0] * (self.n_features + self.coef.shape[1])
        return product_threads(threads, float(n_rows) * each if here.xp is np else 0)

    def _scores(self, X: HostArray, scaled: bool) -> HostArray:
        here: _Scorer = self._scorer  # type: ignore[attr-defined]
        each = self.scores_each
        out = np.empty((X.shape[0], self.coef.shape[1] // each), self.coef.dtype)
        for rows in slices(X.shape[0], _BLOCK_ROWS):
            with np.errstate(all="ignore"):  # overflow raises an error below, with its row
                block: Any = X[rows]
                if is_sparse(block) and self.scaling.shifts and not scaled:
                    block = block.toarray()  # the points are dense too
                cast = (
                    block.astype(self.points.dtype, copy=False)
                    if scaled
                    else self.scaling.apply(block, self.points.dtype)
                )
                if not is_sparse(cast):
                    cast = np.ascontiguousarray(cast)  # products round otherwise where columns are contiguous
                self.kernel.check_rows(cast)
                found = self.kernel.matvec(to_device(cast, here.xp), here.points, here.coef)
                found = to_host(best_of(found, each))
                out[rows] = (
                    found if self.task == "regression" or self.target_shift is None else found + self.target_shift
                )
            if not np.isfinite(out[rows]).all():
                bad = rows.start + int(np.flatnonzero(~np.isfinite(out[rows]).all(axis=1))[0])
                raise DataError(f"row {bad} has values too large for {self.points.dtype}: its score is not a number")
        return out

    def labels(self, scores: HostArray) -> HostArray:
        """Return the predictions for scores (n, c)."""
        if self.task == "regression":
            values = scores.astype(np.float64)
            if self.target_scale is not None:
                values = values * self.target_scale
            if self.target_shift is not None:
                values = values + self.target_shift
            if self.loss_function.heads > 1:
                return np.sort(values, axis=1)
            return values[:, 0] if self.single_target else values
        if self.task == "multilabel":
            return (scores > 0).astype(np.int64)
        return self.class_array()[self.codes(scores)]

    def codes(self, scores: HostArray) -> HostArray:
        """Return the codes (n,) int64 of the predicted classes for scores (n, c)."""
        one = self.classes is not None and len(self.classes) == 1
        found: HostArray = np.zeros(len(scores), np.int64) if one else decode(scores).astype(np.int64, copy=False)
        return found

    def class_array(self) -> HostArray:
        """Return the class labels as one array, by code."""
        if self.classes is None:
            raise ModelError("the model predicts numbers, so it has no classes")
        return np.array(self.classes, dtype=object if _mixed(self.classes) else None)

    def check_names(self, X: Any) -> None:
        """Raise DataError for a data frame whose columns have other names than the model's features."""
        other = other_name(self.feature_names, column_names(X))
        if other is not None:
            tables = ", or a table to daskkern.predict_table, which encodes it" if self.encoding is not None else ""
            raise DataError(
                f"the model was trained on feature {other[0]!r} where X has {other[1]!r}; give the same columns in the "
                f"same order{tables}"
            )

    def check(self, X: Any) -> Any:
        """Return `X` as a 2-d array of finite numbers, dense or CSR, with the model's features, or raise DataError."""
        self.check_names(X)
        return checked_table(X, self.n_features, self.task)


def _mixed(classes: tuple[ClassLabel, ...]) -> bool:
    return len({type(label) for label in classes}) > 1
