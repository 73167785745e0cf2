"""Leave-one-out scores of a model of support vectors, at sampled training rows."""

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.calibration.spans import span_moves
from daskkern.errors import DataError
from daskkern.kernels import Kernel
from daskkern.losses import BoxDual
from daskkern.models import KernelModel
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.job import FitJob
from daskkern.training.setup.prepared import Prepared, training_rows

_STREAM = 93
_MOST = 3_000  # support vectors whose distances are computed: about a second of work
_EDGE = 1e-5  # of the width of a box, within which a coefficient in float32 is at its edge


def left_out_support(
    model: KernelModel, prepared: Prepared, job: FitJob, sample: HeldSample, used: IntArray
) -> FloatArray:
    """Return approximate leave-one-out scores (k, c) of training rows, for the exact minimum of a loss with boxes.

    `used` are the numbers of the training rows that are the points of the model.
    """
    settings, loss = job.settings, job.settings.loss
    assert isinstance(loss, BoxDual)
    chosen = _chosen(used, sample.positions, settings.seed)
    rows = training_rows(job.source.open(settings.dtype), prepared.validation)
    support = HeldSample.of(rows, model.points[chosen], used[chosen], prepared.targets)
    coef, X = model.coef[chosen].astype(np.float64), support.X.astype(np.float64)
    gram = block_between(model.kernel, X, X)
    gram[np.diag_indices(len(gram))] = model.kernel.diagonal(X)
    with_offset = settings.class_intercept if sample.labelled or settings.multilabel else settings.fit_intercept
    unit = prepared.alpha * sample.n_rows
    if not unit > 0:  # nu takes the place of the penalty: the largest coefficients are at the edges
        known = np.maximum(support.weight, np.finfo(float).tiny)[:, None]
        unit = 1 / np.maximum(np.abs(coef / known).max(axis=0), np.finfo(float).tiny)
    free = _within_boxes(loss, coef * unit, support)
    scores = model.scores(sample.X, scaled=True).astype(np.float64)
    _, here, there = np.intersect1d(sample.positions, used[chosen], assume_unique=True, return_indices=True)
    for output in range(coef.shape[1]):
        own, moves = np.flatnonzero(coef[:, output]), np.zeros(len(coef))
        given = gram[np.ix_(own, own)], coef[own, output], free[own, output]
        moves[own] = span_moves(*given, with_offset, chosen.size / used.size)
        scores[here, output] -= moves[there]
    return scores


def block_between(kernel: Kernel, X: HostArray, Z: HostArray) -> FloatArray:
    """Return kernel values (k, m) in float64. Raises DataError where they are not finite."""
    found: Array = kernel.block(X, kernel.points(Z, kernel.placement_for(Z)))
    values: FloatArray = found.astype(np.float64)
    if not np.isfinite(values).all():
        raise DataError("kernel values of sampled rows are not finite; scale the features")
    return values


def _chosen(used: IntArray, positions: IntArray, seed: int) -> IntArray:
    """Return places (s,) in `used`, ascending: all of those at `positions`, and of others at most what is left."""
    sampled = np.isin(used, positions)
    others = np.flatnonzero(~sampled)
    room = max(0, _MOST - (used.size - others.size))
    return np.sort(np.concatenate([np.flatnonzero(sampled), generator(seed, _STREAM).permutation(others)[:room]]))


def _within_boxes(loss: BoxDual, dual: FloatArray, rows: HeldSample) -> HostArray:
    """Return which dual variables (s, c), weights included, are not at the edges of their boxes."""
    boxes = loss.dual_boxes(np.repeat(rows.y, dual.shape[1] // rows.y.shape[1], axis=1).astype(np.float64))
    low, high = (rows.weight[:, None] * sum(side) for side in ([box.low for box in boxes], [box.high for box in boxes]))
    margin = _EDGE * (high - low)
    within: HostArray = (dual > low + margin) & (dual < high - margin)
    return within
