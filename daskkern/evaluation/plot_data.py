"""Data for figures of a model: its score, its worst rows, and for regression a sample of predictions."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from daskkern.arrays import HostArray
from daskkern.data.storage.store import Store, open_store
from daskkern.errors import DataError
from daskkern.evaluation.metrics import MetricAccumulator, Score
from daskkern.evaluation.score import check_store, score_store
from daskkern.evaluation.worst_rows import WorstRow, WorstRows
from daskkern.models import KernelModel

_SAMPLE_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class Observation:
    """A score, the worst rows, and of some rows of a regression targets and predictions (k, t), else (0, t)."""

    score: Score
    targets: HostArray
    predictions: HostArray
    worst: tuple[WorstRow, ...] = ()


def observe(
    model: KernelModel, X: Any, y: Any = None, progress: Callable[[int, int], None] | None = None
) -> Observation:
    """Score `model` on a store, or on arrays X (n, d) and y, in one pass.

    Parameters
    ----------
    model : KernelModel
    X : Store, path, URL, Zarr group or array-like (n, d)
    y : array-like (n,) or (n, t), optional
        With arrays: labels or numbers.
    progress : callable, optional
        Called with rows done and rows in all, for a store.

    Raises
    ------
    DaskkernError
        When the rows do not match the model, or targets are missing.
    """
    if isinstance(X, Store | str | os.PathLike | zarr.Group):
        if y is not None:
            raise DataError("a store brings its own targets; pass y with arrays only")
        store = X if isinstance(X, Store) else open_store(X)
        check_store(model, store, targets=True)
        sample, worst = _Sample(model, store.info.n_rows), WorstRows(model, store.info.classes)

        def seen(scores: HostArray, y: HostArray) -> None:
            sample.add(scores, y)
            worst.add(scores, y)

        return Observation(score_store(model, store, progress, seen), *sample.arrays(), worst.result())
    if y is None:
        raise DataError("got X without y; pass arrays X and y, or a store")
    X, y = model.check(X), np.asarray(y)
    if len(y) != X.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, but y has {len(y)}; give one target for each row")
    sample = _Sample(model, X.shape[0])
    scores, classes = model.scores(X), None
    if model.classes is not None:
        labels, y = np.unique(y, return_inverse=True)
        classes = tuple(labels.tolist())
    accumulator = MetricAccumulator(model, classes)
    accumulator.add(scores, y)
    sample.add(scores, y)
    worst = WorstRows(model, classes)
    worst.add(scores, y)
    return Observation(accumulator.result(), *sample.arrays(), worst.result())


class _Sample:
    """Every n-th row of a regression, at most 2 x _SAMPLE_ROWS of them."""

    def __init__(self, model: KernelModel, n_rows: int) -> None:
        self._model, self._step, self._start = model, max(1, n_rows // _SAMPLE_ROWS), 0
        self._targets: list[HostArray] = [np.empty((0, model.n_targets))]
        self._predictions = list(self._targets)

    def add(self, scores: HostArray, y: HostArray) -> None:
        if self._model.task != "regression":
            return
        chosen = slice(-self._start % self._step, None, self._step)
        self._start += len(y)
        targets = y[chosen].reshape(-1, self._model.n_targets).astype(np.float64)
        self._targets.append(targets)
        self._predictions.append(self._model.central(scores[chosen]).reshape(targets.shape))

    def arrays(self) -> tuple[HostArray, HostArray]:
        return np.concatenate(self._targets), np.concatenate(self._predictions)
