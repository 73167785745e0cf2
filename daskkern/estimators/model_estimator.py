"""Base class of the estimators that fit a kernel model: prediction for any kind of rows, and saving."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import dask.array as da
import numpy as np
from dask.delayed import delayed
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from daskkern.arrays import HostArray
from daskkern.backend.namespace import as_host, is_sparse
from daskkern.data.cubes.packages import is_cube
from daskkern.data.direct.dask_frames import is_dask_frame
from daskkern.data.direct.table_files import TableFiles
from daskkern.data.remote.local_stores import fix_places
from daskkern.data.rows.finite import check_chunk, check_finite, refuse_masks
from daskkern.data.schema.same_columns import column_names
from daskkern.errors import DataError
from daskkern.estimators.checked_rows import checked_rows
from daskkern.estimators.direct_inputs import applied_to_cube
from daskkern.estimators.frame_blocks import lazy_features
from daskkern.estimators.frame_codes import encoding_of, needs_encoding
from daskkern.estimators.frames import as_table, check_raw
from daskkern.estimators.inputs import is_lazy, is_store
from daskkern.estimators.parameters import NestedEstimator, cloned, computed_by_client, unknown_choice
from daskkern.evaluation.tables.opening import feature_blocks
from daskkern.models import KernelModel, save_model

_ROWS: dict[str, Any] = {"dtype": "numeric", "order": "C", "ensure_all_finite": False, "accept_sparse": "csr"}

_MANY_ROWS = 1 << 30  # of a table whose length is unknown

Scores = Callable[..., HostArray]
Method = Callable[[HostArray], HostArray]
"""What makes scores (n, c) of a model and its checked rows, and what becomes of them."""
RowFunction = Callable[[KernelModel, Any, int | None], HostArray]
"""A function of a model, checked rows (m, d), and the number of threads, with one value or row of values a row."""


class ModelEstimator(NestedEstimator):
    """Base class of estimators with a ``model_``; it is not used by itself."""

    _shared_parameters: ClassVar[tuple[str, ...]] = ("client",)
    """Parameters that clones share and that are not pickled: connections, and functions of this process."""
    model_: KernelModel

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy that shares the client and the callbacks, which cannot be copied."""
        return cloned(self, self._shared_parameters)

    def _apply(self, X: Any, method: Method, like: HostArray, scores: Scores = KernelModel.scores) -> Any:
        """Apply `method` to the `scores` (n, c) of `X`: at once, or lazily for a dask array.

        `like` is the result for zero rows, which gives the dtype and the width.
        """
        return self._apply_rows(X, _OfScores(method, scores), like)

    @computed_by_client
    def _apply_rows(self, X: Any, function: RowFunction, like: HostArray) -> Any:
        """Apply `function` to the model and rows `X`; see :meth:`_apply`."""
        check_is_fitted(self, "model_")
        if isinstance(X, TableFiles):
            raise DataError(f"got {X!r}, whose choices are those of a fit; give the path or a data frame of the rows")
        if is_cube(X):
            return applied_to_cube(self.model_, X, function, like)
        if is_dask_frame(X):
            if self.model_.encoding is None:  # which takes columns by their names
                self.model_.check_names(X)
            X = lazy_features(X, self.model_.encoding, unknown_choice(self))
        if is_lazy(X):
            return self._apply_lazily(X, function, like)
        if is_store(X):
            blocks, n_rows = feature_blocks(self.model_, X, unknown_choice(self))
            with self.model_.threads(None, n_rows or _MANY_ROWS):
                parts = [function(self.model_, self.model_.check(block), None) for block in blocks]
            return np.concatenate(parts) if parts else like
        X = as_table(X)
        encoding = encoding_of(self.model_, X)
        if needs_encoding(X, encoding):
            X = checked_rows(self, X, encoding, reset=False, **_ROWS)
            return function(self.model_, self.model_.check(X), None)
        known = getattr(self, "feature_names_in_", None)
        if known is None or set(column_names(X) or ()) <= set(known):  # else scikit-learn names the others
            check_raw(X)
        if self.model_.feature_names is None or hasattr(self, "feature_names_in_"):
            X = validate_data(self, X, reset=False, **_ROWS)
            check_finite(X)
        else:  # scikit-learn would warn of names that it does not know
            self.model_.check_names(X)
            X = self.model_.check(check_array(X, estimator=self, **_ROWS))
        return function(self.model_, X, None)

    def _apply_lazily(self, X: da.Array, function: RowFunction, like: HostArray) -> da.Array:
        if X.ndim != 2 or X.shape[1] != self.model_.n_features:
            raise DataError(f"X has shape {X.shape}, but the model expects {self.model_.n_features} features")
        refuse_masks(X, "X")
        fix_places(X)
        X = X.rechunk({1: -1})
        shared = delayed(self.model_, pure=True)  # one copy in the graph, not one per block
        if like.ndim == 1:
            return da.map_blocks(_apply_block, X, shared, function, drop_axis=1, dtype=like.dtype, meta=like)
        chunks = (X.chunks[0], *((length,) for length in like.shape[1:]))
        new = {"new_axis": 2} if like.ndim == 3 else {}
        return da.map_blocks(_apply_block, X, shared, function, chunks=chunks, dtype=like.dtype, meta=like, **new)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a Zarr group at `path`, replacing an older model there.

        ``daskkern.load(path)`` gives a predictor that needs only NumPy and Zarr.
        """
        check_is_fitted(self, "model_")
        save_model(self.model_, path)

    def to_onnx(
        self, path: str | Path, inputs: str = "auto", *, confidence: float | None = None, overwrite: bool = False
    ) -> None:
        """Write the fitted model to an ONNX file; see :func:`daskkern.models.onnx_graph.write_onnx`."""
        check_is_fitted(self, "model_")
        self.model_.to_onnx(path, inputs, confidence=confidence, overwrite=overwrite)

    def plot(
        self, show: str | Sequence[str] = ("loss", "validation_loss"), against: str = "epoch", axes: Any = None
    ) -> Any:
        """Draw columns of the history of the fit and return the axes; see :func:`daskkern.plot.history`."""
        check_is_fitted(self, "model_")
        return self.model_.plot(show, against, axes)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, **dict.fromkeys(self._shared_parameters)}  # connections cannot be pickled


@dataclass(frozen=True)
class _OfScores:
    """A function of the scores of rows, as a function of the rows."""

    method: Method
    scores: Scores

    def __call__(self, model: KernelModel, X: Any, threads: int | None) -> HostArray:
        return self.method(self.scores(model, X, threads=threads))


def _apply_block(X: HostArray, model: KernelModel, function: RowFunction, block_info: Any = None) -> HostArray:
    refuse_masks(X, "a chunk of X")
    rows: Any = X if is_sparse(X) else as_host(X)  # of chunks on a GPU, too
    check_chunk(rows.tocsr() if is_sparse(rows) else rows, block_info)
    return function(model, model.check(rows), 1)  # Dask runs one of these on each of its threads
