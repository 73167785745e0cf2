"""Scores of predictions as sums over rows, so that blocks of rows can be joined: for many permutations at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.data.rows.finite import check_labels
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.r2 import r2_of
from daskkern.models import KernelModel

_TINY = np.finfo(np.float64).tiny
Sums = Callable[[KernelModel, HostArray, HostArray, FloatArray], FloatArray]


def _added(sums: FloatArray) -> FloatArray:
    total: FloatArray = sums.sum(axis=0)
    return total


@dataclass(frozen=True)
class Measure:
    """A score, larger is better: the sums of a block of rows, and the score of joined sums.

    Attributes
    ----------
    name : str
        That of scikit-learn's scorer.
    sums : callable
        Takes a model, scores (m, c), targets and weights (m,), and returns sums (k,).
    value : callable
        Takes joined sums (..., k) and returns scores (...).
    joined : callable
        Takes the sums of several blocks (b, ..., k) and returns those of all rows (..., k).
    """

    name: str
    task: str
    sums: Sums
    value: Callable[[FloatArray], FloatArray]
    joined: Callable[[FloatArray], FloatArray] = _added


def measure_of(model: KernelModel, name: str | None) -> Measure:
    """Return the measure called `name`: by default the first of its task, accuracy or R2.

    Raises
    ------
    SpecError
        For another name, or one of the other task.
    """
    known = [each for each in MEASURES if each.task == model.task]
    for each in known if name is None else (each for each in known if each.name == name):
        return each
    names = ", ".join(each.name for each in known)
    raise SpecError(f"got scoring={name!r} for a {model.task} model; expected one of {names}")


def codes_of(model: KernelModel, y: HostArray, classes: tuple[ClassLabel, ...] | None) -> HostArray:
    """Return the model's code of each label in `y`, -1 for an unknown label.

    Parameters
    ----------
    y : (m,) array
        Labels, or codes of `classes` where they are given.
    """
    assert model.classes is not None
    equal: Mapping[object, int] = {label: code for code, label in enumerate(model.classes)}  # 1, 1.0 and True are one
    known: Mapping[object, int] = {(type(label), label): code for code, label in enumerate(model.classes)}
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise DataError(f"got labels of shape {y.shape}; expected one for each row, (n,)")
    labels, places = np.unique(y, return_inverse=True)
    names = labels.tolist() if classes is None else [classes[code] for code in labels.tolist()]
    found = np.array([known.get((type(label), label), equal.get(label, -1)) for label in names], np.int64)
    if found.size and (found < 0).all():
        raise DataError(
            f"none of the labels of the rows ({names[:5]}) is a class of the model ({list(model.classes)[:5]}); are "
            "they the targets of this model?"
        )
    return found[places]


def values_of(model: KernelModel, y: HostArray) -> FloatArray:
    """Return targets, or several labels, as (m, t) float64.

    DataError for another number of them, NaN, and labels other than 0 and 1.
    """
    values: FloatArray = y.reshape(len(y), -1).astype(np.float64)
    if values.shape[1] != model.n_targets:
        raise DataError(
            f"got targets of shape {y.shape} for a model of {model.n_targets} targets; give a value for each"
        )
    if not np.isfinite(values).all():
        raise DataError("y holds NaN or infinity; remove such rows first")
    if model.task == "multilabel":
        check_labels(values)
    return values


def _accuracy(model: KernelModel, scores: HostArray, codes: HostArray, weight: FloatArray) -> FloatArray:
    return np.array([weight.sum(), weight @ (model.codes(scores) == codes)])


def _log_loss(model: KernelModel, scores: HostArray, codes: HostArray, weight: FloatArray) -> FloatArray:
    known = np.flatnonzero(codes >= 0)
    chances = model.probabilities(scores)[known, codes[known]].astype(np.float64)
    logs = np.log(np.maximum(chances, np.finfo(np.float32).eps))
    return np.array([weight[known].sum(), weight[known] @ logs])


def _all_right(model: KernelModel, scores: HostArray, y: HostArray, weight: FloatArray) -> FloatArray:
    right = (model.labels(scores) == (y > 0)).all(axis=1)
    return np.array([weight.sum(), weight @ right])


def _log_losses(model: KernelModel, scores: HostArray, y: HostArray, weight: FloatArray) -> FloatArray:
    p = model.probabilities(scores).reshape(y.shape).astype(np.float64)
    chances = np.maximum(np.where(y > 0, p, 1 - p), np.finfo(np.float32).eps)
    return np.array([weight.sum(), weight @ np.log(chances).mean(axis=1)])


def _errors(model: KernelModel, scores: HostArray, y: HostArray, weight: FloatArray) -> FloatArray:
    errors = model.central(scores).reshape(y.shape) - y  # of several quantiles, of the one nearest to 1/2
    first = weight @ y
    spread = weight @ (y - first / max(weight.sum(), _TINY)) ** 2  # of targets far from 0, squares would cancel
    return np.concatenate([[weight.sum()], weight @ errors**2, weight @ np.abs(errors), first, spread])


def _joined_errors(sums: FloatArray) -> FloatArray:
    """Return the sums of all rows of those of blocks: the spread between their means is added to that within them."""
    weight, (*_, first, spread) = _parts(sums)
    total = sums.sum(axis=0)
    means, mean = first / np.maximum(weight, _TINY), first.sum(axis=0) / np.maximum(weight.sum(axis=0), _TINY)
    total[..., -spread.shape[-1] :] += (weight * (means - mean) ** 2).sum(axis=0)
    return total


def _parts(sums: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
    return sums[..., :1], np.split(sums[..., 1:], 4, axis=-1)


def _r2(sums: FloatArray) -> FloatArray:
    total, (squares, _, first, spread) = _parts(sums)
    found: FloatArray = r2_of(squares, spread, first / np.maximum(total, _TINY), total).mean(axis=-1)
    return found


def _rmse(sums: FloatArray) -> FloatArray:
    total, (squares, *_) = _parts(sums)
    return -np.sqrt(squares / total).mean(axis=-1)


def _mae(sums: FloatArray) -> FloatArray:
    total, (_, absolute, *_) = _parts(sums)
    return -(absolute / total).mean(axis=-1)


def _mean(sums: FloatArray) -> FloatArray:
    return sums[..., 1] / sums[..., 0]


MEASURES = (
    Measure("accuracy", "classification", _accuracy, _mean),
    Measure("neg_log_loss", "classification", _log_loss, _mean),
    Measure("accuracy", "multilabel", _all_right, _mean),
    Measure("neg_log_loss", "multilabel", _log_losses, _mean),
    Measure("r2", "regression", _errors, _r2, _joined_errors),
    Measure("neg_root_mean_squared_error", "regression", _errors, _rmse, _joined_errors),
    Measure("neg_mean_absolute_error", "regression", _errors, _mae, _joined_errors),
)
"""The first of a task is the default."""
