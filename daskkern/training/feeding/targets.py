"""Encoding of targets, and normalisation of weights to mean 1, from one streaming pass over y."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.tiles import slices
from daskkern.data.rows.finite import check_labels
from daskkern.data.rows.rows import Fields, RowBlock, Rows
from daskkern.data.schema.class_weights import weights_of_classes
from daskkern.errors import DataError, SpecError
from daskkern.losses import Loss, Squared, best_constant, check_classes, encode, n_outputs, with_constant
from daskkern.training.run.settings import FitSettings

_LARGEST = 1e140
_MOST_SPREADS = 1e15
"""Targets further from the mean weigh nothing, or next to it: their squares must be finite to be multiplied by 0."""
_LEAST_TOTAL = 1e-290  # a row; below it the precision of float64 ends
_PASS_CHUNKS = 16


@dataclass(frozen=True)
class Targets:
    """The encoding of targets.

    Attributes
    ----------
    loss : Loss
    n_classes : int
        0 for regression.
    shift, scale : (t,) float64 or None
        Regression: trained on ``(y - shift) / scale``.
    class_weight : (n_classes,) float64 or None
    weight_scale : float
        Makes the mean weight of the training rows 1.
    dtype : str
    constant : (c,) float64 or None
        Classification, of one or several labels: the constant scores of least loss, which are added to those of the
        columns.
    offset : (c,) float64 or None
        Regression: what a solver adds to the scores of the columns; encoded targets are less by it.
    """

    loss: Loss
    n_classes: int
    shift: FloatArray | None
    scale: FloatArray | None
    class_weight: FloatArray | None
    weight_scale: float
    n_targets: int
    dtype: str
    constant: FloatArray | None = None
    offset: FloatArray | None = None

    @property
    def n_outputs(self) -> int:
        """Columns c of the encoded targets."""
        return n_outputs(self.loss, self.n_classes) if self.n_classes else self.n_targets * self.loss.heads

    def encode(self, y: HostArray) -> HostArray:
        """Return encoded targets (m, c) for codes (m,) or values (m, t)."""
        if self.n_classes:
            codes = encode(self.loss, y, self.n_classes, self.dtype)
            return self._less(codes) if self._moves_targets else codes
        assert self.shift is not None
        assert self.scale is not None
        values = np.clip((y - self.shift) / self.scale, -_MOST_SPREADS, _MOST_SPREADS).astype(self.dtype)
        if self._moves_targets:
            return self._less(values)
        values = values if self.loss.heads == 1 else np.repeat(values, self.loss.heads, axis=1)
        return values if self.offset is None else (values - self.offset).astype(self.dtype)

    def of_outputs(self, values: FloatArray | None) -> FloatArray | None:
        """Return what each output (c,) has of values of the targets (t,)."""
        return None if values is None else np.repeat(values, self.loss.heads)

    @property
    def moved(self) -> Loss:
        """The loss as a function of the sums of columns, without the constant; least squares shifts targets instead."""
        if self.constant is None or self._moves_targets:
            return self.loss
        return with_constant(self.loss, self.constant)

    @property
    def _moves_targets(self) -> bool:
        return self.constant is not None and isinstance(self.loss, Squared)

    def _less(self, codes: HostArray) -> HostArray:
        assert self.constant is not None
        return (codes - self.constant).astype(self.dtype)

    def scores(self, f: HostArray) -> HostArray:
        """Return the scores (m, c) of sums (m, c) of the columns."""
        return f if self.constant is None else f + self.constant

    @property
    def model_shift(self) -> FloatArray | None:
        """What the predictions of a regression (c,) are shifted by: that of the targets, and the offset."""
        shift, scale = self.of_outputs(self.shift), self.of_outputs(self.scale)
        if self.offset is None or shift is None or scale is None:
            return shift
        return shift + scale * self.offset

    def with_offset(self, offset: FloatArray, *, labelled: bool) -> "Targets":
        """Return the encoding for a model to whose scores a solver adds `offset` (c,)."""
        if not labelled:
            return replace(self, offset=offset)
        return replace(self, constant=offset if self.constant is None else self.constant + offset)

    def weight(self, block: RowBlock) -> HostArray | None:
        """Return weights (m, 1) of mean 1 over the training rows, or None when all are the same."""
        if block.weight is None and self.class_weight is None and self.weight_scale == 1:
            return None
        weight = np.ones(len(block.y)) if block.weight is None else block.weight  # type: ignore[arg-type]
        if self.class_weight is not None and block.y is not None:
            weight = weight * self.class_weight[block.y]
        return (weight * self.weight_scale)[:, None].astype(self.dtype)


def learn_targets(rows: Rows, settings: FitSettings) -> Targets:
    """Read y and the weights of all training rows once and return how to encode them.

    Raises
    ------
    DataError
        Fewer than two classes among the rows, unless other rows follow; weights that are all zero; targets that are
        not finite.
    SpecError
        A loss that does not support the task, or whose costs are of another number of classes; a class weight for an
        unknown class.
    """
    if rows.task is None:
        raise DataError("the rows have no targets, so nothing can be fitted; ingest them with --target, or pass y")
    if settings.multilabel:
        check_multilabel(settings, rows.task)
        return _multilabel(rows, settings)
    check_loss(settings.loss, rows.task)
    if rows.task == "regression":
        return _regression(rows, settings)
    return _classification(rows, settings)


def check_loss(loss: Loss, task: str) -> None:
    """Raise SpecError when `loss` does not support `task`."""
    if task not in loss.tasks:
        raise SpecError(
            f"got the {loss.name} loss for a {task} task; it is for {' and '.join(sorted(loss.tasks))}; "
            "choose another loss"
        )


def check_multilabel(settings: FitSettings, task: str | None) -> None:
    """Raise SpecError for settings that cannot fit several labels."""
    check_loss(settings.loss, "classification")
    if settings.loss.joint:
        raise SpecError(
            f"got the {settings.loss.name} loss for several labels, but it makes classes exclude each other; take a "
            "loss of one output each, such as 'squared_hinge' or 'logistic'"
        )
    if settings.class_weight is not None or settings.sampling == "balanced":
        raise SpecError("got class weights for several labels, which have no classes; pass sample_weight")
    if task != "regression":
        raise SpecError(
            "got several labels to fit on rows of one class each; leave --multilabel out, or give one target of 0 and "
            "1 for each label"
        )


def check_targets(rows: Rows) -> None:
    """Raise DataError for targets that are not finite and for negative weights or NaN."""
    for block in _blocks(rows):
        _check_weight(block.weight)
        if rows.task == "regression":
            _check_values(np.asarray(block.y, np.float64))


def _check_values(y: FloatArray) -> None:
    if not np.isfinite(y).all():
        raise DataError("the targets hold NaN or infinity; remove such rows first")


def _check_range(reach: FloatArray) -> None:
    """Raise DataError where targets that differ by `reach` (c,) have squares that float64 does not hold."""
    beyond = reach[(reach > _LARGEST) | ((reach > 0) & (reach < 1 / _LARGEST))]
    if beyond.size:
        raise DataError(
            f"the targets differ by up to {beyond[0]:.1e}; expected differences between {1 / _LARGEST:.0e} and "
            f"{_LARGEST:.0e}, whose squares float64 holds; multiply the targets by a power of ten"
        )


def _classification(rows: Rows, settings: FitSettings) -> Targets:
    classes = rows.classes or ()
    check_classes(settings.loss, classes)
    counts, weights = np.zeros(len(classes), np.int64), np.zeros(len(classes))
    for block in _blocks(rows):
        _check_weight(block.weight)
        codes: IntArray = np.asarray(block.y)
        counts += np.bincount(codes, minlength=len(classes))
        weights += np.bincount(codes, block.weight, minlength=len(classes))
    class_weight = weights_of_classes(settings.class_weight, classes, weights)
    weights = weights * (1.0 if class_weight is None else class_weight)
    total = float(weights.sum())
    scale = _weight_scale(rows.n_rows, total)
    present = weights > 0
    if present.sum() < 2 and not (settings.rows_follow and len(classes) > 1):
        found = [classes[code] for code in np.flatnonzero(present)]
        which = f"{rows.n_rows} training rows" if (counts > 0).sum() < 2 else "training rows of positive weight"
        raise DataError(f"a classifier needs at least 2 classes, but all {which} are of class {found}")
    constant = None
    if settings.class_intercept:
        # A class without rows here may have some later; rows of one class say nothing of the shares.
        shares = np.maximum(weights / total, 0.5 / rows.n_rows) if present.sum() > 1 else np.ones(len(classes))
        constant = best_constant(settings.loss, shares / shares.sum(), n_outputs(settings.loss, len(classes)))
    return Targets(settings.loss, len(classes), None, None, class_weight, scale, 1, settings.dtype, constant)


def _multilabel(rows: Rows, settings: FitSettings) -> Targets:
    total, ones = 0.0, np.zeros(rows.n_targets)
    for block in _blocks(rows):
        y: FloatArray = np.asarray(block.y, np.float64)
        check_labels(y)
        _check_weight(block.weight)
        weight = np.ones(len(y)) if block.weight is None else block.weight
        total += float(weight.sum())
        ones += weight @ y
    scale = _weight_scale(rows.n_rows, total)
    constant = None
    if settings.class_intercept:
        least = 0.5 / rows.n_rows  # a label that no row has, or every row
        constant = best_constant(settings.loss, np.clip(ones / total, least, 1 - least), max(2, rows.n_targets))
    half = np.full(rows.n_targets, 0.5)  # labels become -1 and 1
    return Targets(settings.loss, 0, half, half, None, scale, rows.n_targets, settings.dtype, constant)


def _regression(rows: Rows, settings: FitSettings) -> Targets:
    if settings.class_weight is not None:
        raise SpecError("got class_weight for a regression task, which has no classes; use sample weights")
    if settings.loss.heads > 1 and rows.n_targets > 1:
        raise SpecError(
            f"got the loss {settings.loss.spec()!r} for {rows.n_targets} targets; several quantiles are for one "
            "target: fit each target by itself"
        )
    total, centre, spread = _moments(rows)
    scale_of_weights = _weight_scale(rows.n_rows, total)
    if not settings.fit_intercept:
        spread, centre = np.sqrt(spread**2 + centre**2), np.zeros_like(centre)
    scale = np.where(spread > 0, spread, 1.0)
    return Targets(settings.loss, 0, centre, scale, None, scale_of_weights, rows.n_targets, settings.dtype)


def _moments(rows: Rows) -> tuple[float, FloatArray, FloatArray]:
    """Return the sum of the weights, and mean and spread of the targets (t,), of the rows that weigh something."""
    total, first, second = 0.0, np.zeros(rows.n_targets), np.zeros(rows.n_targets)
    # Deviations from one of the targets keep the digits of targets far from 0.
    anchor: FloatArray | None = None
    for block in _blocks(rows):
        y: FloatArray = np.asarray(block.y, np.float64)
        _check_values(y)
        _check_weight(block.weight)
        weight = np.ones(len(y)) if block.weight is None else block.weight
        counts = weight > 0
        y, weight = (y, weight) if counts.all() else (y[counts], weight[counts])
        if not len(y):
            continue
        anchor = y[0] if anchor is None else anchor
        _check_range(np.abs(y - anchor).max(axis=0))
        total += float(weight.sum())
        first += weight @ (y - anchor)
        second += weight @ (y - anchor) ** 2
    if anchor is None:
        return 0.0, first, second
    mean = first / total
    return total, mean + anchor, np.sqrt(np.maximum(second / total - mean**2, 0))


def _blocks(rows: Rows) -> Iterator[RowBlock]:
    for part in slices(rows.n_rows, _PASS_CHUNKS * rows.chunk_rows):
        yield rows.read(part.start, part.stop, Fields.y | Fields.weight)


def _check_weight(weight: HostArray | None) -> None:
    if weight is not None and not (weight >= 0).all():  # also False for NaN
        raise DataError("the sample weights hold negative numbers or NaN; give weights of 0 or more")


def _weight_scale(n_rows: int, total: float) -> float:
    if not (np.isfinite(total) and total > 0):
        raise DataError(f"the sample weights add up to {total}; they must be finite, not negative and not all zero")
    if total < _LEAST_TOTAL * n_rows:
        raise DataError(f"the sample weights have a mean of {total / n_rows:.2g}; multiply them by a power of ten")
    return n_rows / total
