"""Predictions and scores in one pass over any number of rows, one block in memory at a time."""

from collections.abc import Callable, Iterator

from daskkern.arrays import HostArray
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.schema.same_columns import other_codes, other_name, other_target
from daskkern.data.storage.csr_store import CsrReader
from daskkern.data.storage.store import Store, read_array
from daskkern.errors import DataError, ModelError
from daskkern.evaluation.metrics import MetricAccumulator, Score
from daskkern.models import KernelModel

_BLOCK = 4096
Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""


def check_store(model: KernelModel, store: Store, *, targets: bool) -> None:
    """Raise when the model cannot predict the rows of `store`, or with `targets` cannot be scored on them."""
    info = store.info
    if info.n_features != model.n_features:
        raise DataError(
            f"the model was trained on {model.n_features} features, but the store {store.path} has {info.n_features}; "
            "ingest the same columns as for training"
        )
    other = other_name(model.feature_names, info.feature_names)
    if other is not None:
        raise DataError(
            f"the model was trained on feature {other[0]!r} where the store {store.path} has {other[1]!r}; "
            "ingest the same columns in the same order"
        )
    coded = other_codes(model.encoding, info.encoding)
    if coded is not None:
        raise DataError(
            f"the categories of column {coded!r} have other numbers in the store {store.path} than in the training "
            "data; ingest it with --like and the training store"
        )
    task = "regression" if model.task == "multilabel" else model.task
    if targets and info.task == task == "regression" and info.n_targets != model.n_targets:
        raise DataError(
            f"the model predicts {model.n_targets} targets, but the store {store.path} has {info.n_targets}; "
            "ingest the same targets as for training"
        )
    aim = other_target(model.target_names, info.target_names) if targets else None
    if aim is not None:
        raise DataError(
            f"the model was trained on target {aim[0]!r} where the store {store.path} has {aim[1]!r}; ingest the same "
            "targets in the same order"
        )
    if targets and info.task != task:
        raise ModelError(
            f"got a {model.task} model to score on the store {store.path}, whose task is {info.task or 'unknown'}; "
            "give a store with the same kind of target"
        )


def raw_blocks(store: Store, part: slice | None = None) -> Iterator[FeatureRows]:
    """Yield X of `store`, dense or CSR, in blocks, without the scaling that it records: the model applies its own.

    Of all rows, or of those from ``part.start`` to ``part.stop``.
    """
    first, last = (0, store.info.n_rows) if part is None else (part.start, part.stop)
    if store.info.is_sparse:
        reader = CsrReader(store.csr_parts(), store.info.n_features, f"X of the store {store.path}")
        for start in range(first, last, _BLOCK):
            yield reader.read(start, min(start + _BLOCK, last))
        return
    X = store.array("X")
    for start in range(first, last, _BLOCK):
        yield read_array(X, start, min(start + _BLOCK, last))


def score_store(
    model: KernelModel,
    store: Store,
    progress: Progress | None = None,
    seen: Callable[[HostArray, HostArray], None] | None = None,
    *,
    threads: int | None = None,
) -> Score:
    """Score `model` on all rows of `store`, by their weights if it has some. Labels are compared by value.

    `seen` is called with the scores (m, c) and targets of each block. `threads` is that of
    :meth:`daskkern.models.KernelModel.decision_function`.
    """
    check_store(model, store, targets=True)
    y, weight = store.array("y"), store.array("weight") if store.info.has_weight else None
    accumulator = MetricAccumulator(model, store.info.classes)
    start = 0
    with model.threads(threads, store.info.n_rows):
        for X in raw_blocks(store):
            stop = start + X.shape[0]
            scores, targets = model.scores(model.check(X)), read_array(y, start, stop)
            accumulator.add(scores, targets, None if weight is None else read_array(weight, start, stop))
            if seen is not None:
                seen(scores, targets)
            start += X.shape[0]
            if progress is not None:
                progress(start, store.info.n_rows)
    return accumulator.result()
