"""Gradients of a fitted model's scores at single rows, as explanations of single predictions."""

from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.tiles import slices
from daskkern.data.storage.store import Store
from daskkern.errors import SpecError
from daskkern.evaluation.score import raw_blocks
from daskkern.inspection.jacobians import jacobians, tiles
from daskkern.inspection.rows import BLOCK_ROWS, Inspected, scaled
from daskkern.models import KernelModel
from daskkern.models.fitted import fitted_model


def score_gradients(model: Any, X: Any, *, output: Any = "predicted", baseline: Any = None, device: str = "cpu") -> Any:
    """Return the gradients of scores by the scaled features, row by row, (n, d) float64: why a row is predicted so.

    Parameters
    ----------
    model : KernelModel, or a fitted estimator
        A model, or an estimator after its fit.
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data.
    output : "predicted", "all", a class label, or the number of a target
        "predicted" is the score of the class that each row is predicted to be in, or the only target, in its units.
        "all" gives (n, c, d), one for each score that the model has.
    baseline : (d,) array, optional
        A row in the units of the training data, such as the mean. The result is then ``gradient * (x - baseline)``, in
        the scaled features: what each contributes, to first order, to the difference from the score at the baseline.
    device : {"cpu", "gpu", "auto"}
        Where to compute; "auto" takes a GPU where there is one.

    Returns
    -------
    (n, d) or (n, c, d) float64 array
        NumPy for arrays; for dask arrays and stores a lazy dask array, which holds a block of rows at a time.

    Raises
    ------
    DataError
        For rows that do not fit the model, and for NaN.
    SpecError
        For a model without gradients, and for an unknown output.
    """
    fitted = fitted_model(model)
    chosen = _output(fitted, output)
    start = None if baseline is None else scaled(fitted, fitted.check(np.asarray(baseline).reshape(1, -1)))
    rows = Inspected.of(fitted, X)
    if rows.store is None and not isinstance(rows.X, da.Array):
        return _explained(rows.X, fitted, chosen, start, device)
    tail = (fitted.coef.shape[1] // fitted.scores_each, fitted.n_features) if chosen is None else (fitted.n_features,)
    shared = delayed(fitted, pure=True)  # one copy in the graph, not one per block
    work = delayed(_explained, pure=True)
    if rows.store is not None:
        parts = [delayed(_stored)(rows.store, part) for part in slices(rows.n_rows, BLOCK_ROWS)]
        sizes = [part.stop - part.start for part in slices(rows.n_rows, BLOCK_ROWS)]
    else:
        parts, sizes = list(rows.X.to_delayed().ravel()), list(rows.X.chunks[0])
    return da.concatenate(
        [
            da.from_delayed(work(part, shared, chosen, start, device), (size, *tail), np.float64)
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


def _stored(store: Store, part: slice) -> Any:
    return next(raw_blocks(store, part))


def _explained(X: Any, model: KernelModel, output: int | None, start: Any, device: str) -> HostArray:
    """Return the gradients of `output` (None: all; -1: the predicted one) at rows in memory."""
    X = model.check(X)
    c, d = model.coef.shape[1] // model.scores_each, model.n_features
    out = np.empty((X.shape[0], c, d) if output is None else (X.shape[0], d))
    for part in tiles(model, X.shape[0]):
        J = jacobians(model, X[part], device)
        if model.task == "regression" and model.target_scale is not None:
            J *= np.asarray(model.target_scale)[:, None]
        if output == -1:
            J = _predicted(model, X[part], J)
        elif output is not None:
            J = J[:, output] if c > 1 or model.classes is None else J[:, 0] * (2 * output - 1)
        if start is not None:
            rows = scaled(model, X[part])
            moved = (rows.toarray() if is_sparse(rows) else rows) - (start.toarray() if is_sparse(start) else start)
            codes = list(model.kernel.categories)  # their gradients are differences already
            moved[:, codes] = moved[:, codes] != 0
            J = J * (moved if J.ndim == 2 else moved[:, None])
        out[part] = J
    return out


def _predicted(model: KernelModel, X: Any, J: FloatArray) -> FloatArray:
    """Return the gradients (m, d) of the score of the predicted class; of one score for two classes, with its sign."""
    if model.classes is None or J.shape[1] == 0:
        return J[:, 0]
    scores = model.scores(X)
    if J.shape[1] == 1:
        return J[:, 0] * np.where(scores > 0, 1.0, -1.0)
    return np.take_along_axis(J, scores.argmax(axis=1)[:, None, None], axis=1)[:, 0]


def _output(model: KernelModel, output: Any) -> int | None:
    c = model.coef.shape[1] // model.scores_each
    if isinstance(output, str) and output == "all":
        return None
    if isinstance(output, str) and output == "predicted":
        if model.classes is None and c > 1:
            raise SpecError(f"got output='predicted' for {c} targets; give the number of one, or 'all'")
        return -1
    names = range(c) if model.classes is None else model.classes
    value = output.item() if isinstance(output, np.generic) else output
    for number, name in enumerate(names):
        if type(name) is type(value) and name == value:
            return number
    some = ", ".join(map(repr, list(names)[:10]))
    raise SpecError(f"got output={output!r}; expected 'predicted', 'all' or one of {some}")
