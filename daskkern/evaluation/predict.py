"""Predictions from store to store, in bounded memory."""

from pathlib import Path

import numpy as np

from daskkern.data.storage.store import Store
from daskkern.data.transactions.atomic import atomic_group, check_destination
from daskkern.errors import ModelError
from daskkern.evaluation.score import Progress, check_store, raw_blocks
from daskkern.models import KernelModel

FORMAT = "daskkern-predictions"
_CHUNK_ROWS = 4096


def predict_store(
    model: KernelModel,
    store: Store,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    threads: int | None = None,
) -> str:
    """Write predictions for every row of `store` to a new Zarr group at `out`, and return a short summary.

    The group has ``prediction`` ((n,) class labels or (n,) or (n, t) target values), ``scores`` (n, c), and where the
    model has them ``probability`` (n, n_classes). Labels that are strings are written as codes, whose meaning is in the
    attribute ``classes``. On errors nothing remains. `threads` is that of
    :meth:`daskkern.models.KernelModel.decision_function`.
    """
    check_destination(out, kind=FORMAT, overwrite=overwrite)
    check_store(model, store, targets=False)
    n = store.info.n_rows
    coded = model.classes is not None and isinstance(model.classes[0], str)
    like = np.empty(0, np.int64) if coded else model.labels(model.coef[:0])
    names = ["prediction", "scores"]
    shapes = [(n, *like.shape[1:]), (n, model.coef.shape[1])]
    dtypes = [like.dtype, model.coef.dtype]
    probable = model.has_probabilities
    if probable:
        names.append("probability")
        shapes.append((n, model.n_outputs if model.classes is None else len(model.classes)))
        dtypes.append(model.coef.dtype)
    if any(dtype.kind == "O" for dtype in dtypes):
        raise ModelError("the model's classes are of several kinds, which cannot be written as one array")
    with atomic_group(out, kind=FORMAT, overwrite=overwrite) as group, model.threads(threads, n):
        arrays = [
            group.create_array(
                name, shape=shape, chunks=(min(_CHUNK_ROWS, n), *shape[1:]), dtype=dtype, compressors=None
            )
            for name, shape, dtype in zip(names, shapes, dtypes, strict=True)
        ]
        start = 0
        for X in raw_blocks(store):
            scores = model.scores(model.check(X))
            values = [model.codes(scores) if coded else model.labels(scores), scores]
            if probable:
                values.append(model.probabilities(scores))
            stop = start + X.shape[0]
            for array, value in zip(arrays, values, strict=True):
                array[start:stop] = value
            start = stop
            if progress is not None:
                progress(start, n)
        classes = None if model.classes is None else list(model.classes)
        group.update_attributes({"version": 1, "task": model.task, "classes": classes, "coded": coded})
    what = {"classification": "labels", "multilabel": "a label of 0 or 1 in each column"}.get(model.task, "values")
    what = "codes of 'classes' in its attributes" if coded else what
    return f"arrays {', '.join(names)}; prediction holds {what}"
