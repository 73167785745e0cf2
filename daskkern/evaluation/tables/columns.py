"""The output columns of predictions: labels or values, probabilities, scores, deviations, intervals and sets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray
from daskkern.errors import ModelError, SpecError
from daskkern.losses import Quantile
from daskkern.models import KernelModel


@dataclass(frozen=True)
class RequestedColumns:
    """What predictions hold in addition to labels or values, and probabilities where the model has them.

    Attributes
    ----------
    scores : bool
        The scores of each row.
    std : bool
        Standard deviations of the targets; see :meth:`daskkern.models.KernelModel.predict_std`.
    confidence : float or None
        Of intervals, or of sets of labels; see :meth:`daskkern.models.KernelModel.predict_interval` and `predict_set`.
    """

    scores: bool = False
    std: bool = False
    confidence: float | None = None

    def check(self, model: KernelModel) -> None:
        """Raise ModelError or DataError where the model cannot give these, before any row is read."""
        if model.classes is not None and len({type(label) for label in model.classes}) > 1:
            raise ModelError("the model's classes are of several kinds, which cannot be written as one column")
        if self.std:
            model.deviations(np.ones((1, 1)))
        arrays_of(model, _no_scores(model), None, RequestedColumns(confidence=self.confidence))


@dataclass(frozen=True)
class PredictedArrays:
    """Predictions of m rows: labels or values (m,) or (m, t), scores (m, c), and what else the model has.

    `probability` is (m, n_classes), `std` (m,) or (m, t), `interval` (m, 2) or (m, t, 2), `inside` (m, n_classes) bool.
    """

    prediction: HostArray
    scores: HostArray
    probability: HostArray | None = None
    std: HostArray | None = None
    interval: HostArray | None = None
    inside: HostArray | None = None


def arrays_of(
    model: KernelModel, scores: HostArray, variances: HostArray | None, wanted: RequestedColumns
) -> PredictedArrays:
    """Return predictions for scores (m, c) and posterior variances (m, 1)."""
    confidence, bounded = wanted.confidence, model.task == "regression"
    return PredictedArrays(
        prediction=model.codes(scores) if model.classes is not None else model.labels(scores),
        scores=scores,
        probability=model.probabilities(scores) if model.has_probabilities else None,
        std=None if variances is None else model.deviations(variances),
        interval=model.intervals(scores, confidence) if confidence is not None and bounded else None,
        inside=model.sets(scores, confidence) if confidence is not None and not bounded else None,
    )


def predicted_arrays(model: KernelModel, X: Any, wanted: RequestedColumns) -> PredictedArrays:
    """Return the predictions of checked rows `X`."""
    return arrays_of(model, model.scores(X), model.variances(X) if wanted.std else None, wanted)


def batch_of(
    model: KernelModel, found: PredictedArrays, kept: pa.RecordBatch | None, wanted: RequestedColumns
) -> pa.RecordBatch:
    """Return the columns `kept` and the predictions of the same rows as one batch; labels by name."""
    names = output_names(model)
    columns: dict[str, pa.Array] = {}
    if model.classes is not None:
        columns["prediction"] = pa.array(list(model.classes)).take(pa.array(found.prediction))
    elif model.task == "regression" and model.loss_function.heads > 1:
        columns |= _each("quantile", [f"{level:g}" for level in _levels(model)], found.prediction)
    else:
        columns |= _each("prediction", names, found.prediction)
    if found.probability is not None:
        columns |= _each("probability", names, found.probability)
    if wanted.scores:
        c = found.scores.shape[1]
        outputs = names if c == len(names) else [""] if c == 1 else [str(number) for number in range(c)]
        columns |= _each("score", outputs, found.scores)
    if found.std is not None:
        columns |= _each("std", names, found.std)
    if found.interval is not None:
        for at, name in enumerate(("lower", "upper")):
            columns |= _each(name, names, found.interval[..., at])
    if found.inside is not None:
        columns |= _each("in_set", names, found.inside)
    taken = [] if kept is None else [name for name in kept.schema.names if name in columns]
    if taken:
        raise SpecError(
            f"got the column {taken[0]!r} to keep, which predictions have, too; rename it in the rows, or leave it out"
        )
    before = {} if kept is None else dict(zip(kept.schema.names, kept.columns, strict=True))
    return pa.RecordBatch.from_pydict({**before, **columns})


def output_names(model: KernelModel) -> list[str]:
    """Return the names of the outputs, of which each has a column: classes, or targets; one target has none."""
    if model.classes is not None:
        return [str(label) for label in model.classes]
    t = model.n_targets
    if t == 1 and model.single_target:
        return [""]
    known = model.target_names
    return list(known) if known is not None and len(known) == t else [str(number) for number in range(t)]


def _each(name: str, outputs: list[str], values: HostArray) -> dict[str, pa.Array]:
    """Return a column for each output of values (m,) or (m, outputs)."""
    table = values.reshape(len(values), -1)
    whole = table.shape[1] == 1 and len(outputs) != 1
    labels = [name] if whole else [f"{name}_{output}" if output else name for output in outputs]
    return {label: pa.array(np.ascontiguousarray(table[:, at])) for at, label in enumerate(labels)}


def _levels(model: KernelModel) -> tuple[float, ...]:
    loss = model.loss_function
    assert isinstance(loss, Quantile)
    return tuple(loss.levels)


def _no_scores(model: KernelModel) -> HostArray:
    return np.zeros((1, model.n_outputs), model.coef.dtype)
