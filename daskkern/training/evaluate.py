"""Predictions and scores in one pass over rows of any number: memory is one block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.data.csr import FeatureRows
from daskkern.data.csr_store import CsrReader
from daskkern.data.schema import ClassLabel
from daskkern.data.store import Store
from daskkern.errors import DataError, ModelError
from daskkern.losses import decode
from daskkern.models import KernelModel

_BLOCK = 4096
Progress = Callable[[int, int], None]
"""Called with rows done and rows in all."""


@dataclass(frozen=True)
class Score:
    """How good a model is on some rows; the fields of the other task are None. Fractions, and target units."""

    n_rows: int
    accuracy: float | None = None
    error: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None

    def as_dict(self) -> dict[str, float | int | None]:
        """Return the fields that are there; None for a score that is not defined, as R2 of equal targets."""
        known = {key: value for key, value in vars(self).items() if value is not None}
        return {key: None if value != value else value for key, value in known.items()}


def check_store(model: KernelModel, store: Store, *, targets: bool) -> None:
    """Raise when the model cannot predict the rows of `store`, or with `targets` cannot be scored on them."""
    info = store.info
    if info.n_features != model.n_features:
        raise DataError(
            f"the model was trained on {model.n_features} features, but the store {store.path} has {info.n_features}; "
            "ingest the same columns as for training"
        )
    if model.feature_names and info.feature_names and info.feature_names != model.feature_names:
        pairs = zip(model.feature_names, info.feature_names, strict=True)
        ours, theirs = next(pair for pair in pairs if pair[0] != pair[1])
        raise DataError(
            f"the model was trained on feature {ours!r} where the store {store.path} has {theirs!r}; "
            "ingest the same columns in the same order"
        )
    if targets and info.task == model.task == "regression" and info.n_targets != model.coef.shape[1]:
        raise DataError(
            f"the model predicts {model.coef.shape[1]} targets, but the store {store.path} has {info.n_targets}; "
            "ingest the same targets as for training"
        )
    if targets and info.task != model.task:
        raise ModelError(
            f"a {model.task} model was to be scored on the store {store.path}, whose task is {info.task or 'unknown'}; "
            "give a store with the same kind of target"
        )


def raw_blocks(store: Store) -> Iterator[FeatureRows]:
    """Yield X of `store`, dense or CSR, in blocks, without the scaling that it records: the model applies its own."""
    if store.info.is_sparse:
        reader = CsrReader(store.csr_parts(), store.info.n_features, f"X of the store {store.path}")
        for start in range(0, store.info.n_rows, _BLOCK):
            yield reader.read(start, min(start + _BLOCK, store.info.n_rows))
        return
    X = store.array("X")
    for start in range(0, store.info.n_rows, _BLOCK):
        yield np.asarray(X[start : start + _BLOCK])


def score_store(model: KernelModel, store: Store, progress: Progress | None = None) -> Score:
    """Score `model` on all rows of `store`. Labels are compared by value, never by code."""
    check_store(model, store, targets=True)
    y = store.array("y")
    tally = Tally(model, store.info.classes)
    start = 0
    for X in raw_blocks(store):
        tally.add(model.scores(model.check(X)), np.asarray(y[start : start + X.shape[0]]))
        start += X.shape[0]
        if progress is not None:
            progress(start, store.info.n_rows)
    return tally.result()


class Tally:
    """Counts what a score needs, block by block. `classes` are the labels that the codes of the rows stand for."""

    def __init__(self, model: KernelModel, classes: tuple[ClassLabel, ...] | None) -> None:
        self._model = model
        self._n = 0
        self._right = 0
        self._codes = None if model.classes is None else _translate(model.classes, classes)
        self._absolute = 0.0
        self._squares = np.zeros(model.coef.shape[1])
        self._first = np.zeros(model.coef.shape[1])
        self._second = np.zeros(model.coef.shape[1])
        self._anchor: HostArray | None = None

    def add(self, scores: HostArray, y: HostArray) -> None:
        """Count a block of scores (m, c) and targets: codes (m,), or values (m,) or (m, t)."""
        self._n += len(y)
        if self._codes is not None:
            self._right += int((decode(scores) == self._codes[y]).sum())
            return
        y = y.reshape(len(y), -1).astype(np.float64)
        errors = self._model.labels(scores).reshape(len(y), -1) - y
        self._anchor = y[:1] if self._anchor is None else self._anchor
        self._squares += (errors**2).sum(axis=0)
        self._absolute += float(np.abs(errors).sum())
        self._first += (y - self._anchor).sum(axis=0)
        self._second += ((y - self._anchor) ** 2).sum(axis=0)

    def result(self) -> Score:
        """Return the score of all rows added."""
        if self._n == 0:
            raise DataError("no rows were given to score")
        if self._codes is not None:
            accuracy = self._right / self._n
            return Score(self._n, accuracy=accuracy, error=1 - accuracy)
        t = self._first.size
        spread = self._second - self._first**2 / self._n
        defined = bool((spread > 0).all())
        return Score(
            self._n,
            rmse=float(self._squares.sum() / (self._n * t)) ** 0.5,
            mae=self._absolute / (self._n * t),
            r2=float((1 - self._squares / spread).mean()) if defined else float("nan"),
        )


def _translate(ours: tuple[ClassLabel, ...], theirs: tuple[ClassLabel, ...] | None) -> HostArray:
    """Return the model's code of each of the rows' codes, or -1 for a label that the model does not know."""
    if theirs is None:
        raise DataError("a classifier was to be scored on rows without class labels")
    known = {label: code for code, label in enumerate(ours)}
    codes = np.array([known.get(label, -1) for label in theirs], np.int64)
    if (codes < 0).all():
        raise DataError(
            f"none of the labels of the rows ({list(theirs)[:5]}) is a class of the model ({list(ours)[:5]}); "
            "was the store made from other data?"
        )
    return codes
