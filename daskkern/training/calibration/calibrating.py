"""Calibration of a fitted model on held-out rows, or on leave-one-out scores of the training rows.

Rows of validation come first, then rows that were set aside (:mod:`daskkern.training.run.held_out_sizes`). Where there
are neither, up to 2,000 training rows stand for new ones, with approximate leave-one-out scores.
"""

from dataclasses import replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.calibration import (
    Calibration,
    Posterior,
    absolute_errors,
    beyond_quantiles,
    calibrated_classes,
    calibrated_labels,
    quantile_shifts,
)
from daskkern.calibration.leave_one_out import (
    LEAST_ALPHA,
    TrainingScores,
    effective_alpha,
    leave_one_out_scores,
    left_out_variance,
)
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.samples import features_at
from daskkern.errors import DataError
from daskkern.kernels import Drawn, Kernel, TreeAverage
from daskkern.losses import BoxDual, Curved, Probabilistic, Smooth, decode
from daskkern.models import KernelModel
from daskkern.models.posterior import MOST_POINTS, PosteriorFactor
from daskkern.preconditioners import gram_of
from daskkern.solvers.base import smoothness_of
from daskkern.training.calibration.support_scores import block_between, left_out_support
from daskkern.training.run.held_out_sizes import MOST_CALIBRATION_ROWS, rows_left_out
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.job import FitJob
from daskkern.training.setup.feature_blocks import blocks_of
from daskkern.training.setup.prepared import Prepared

_STREAM = 92
_COLUMNS = 1000
_JITTER = 1e-10
_LEAST_OTHERS = 100


def calibrated(model: KernelModel, prepared: Prepared, job: FitJob, used: IntArray | None = None) -> KernelModel:
    """Return the model with what its scores mean recorded, as the settings of the fit request.

    `used` are the columns that the model keeps, where others have coefficients of 0; None for all. The model is
    returned as it is where scores of the rows are not finite, or all rows have weight 0.
    """
    if not job.settings.calibrate:
        return model
    try:
        method, sample, scores = _out_of_sample(model, prepared, job, used)
    except DataError:  # the model fits its rows badly enough that scores leave the range of its dtype
        return model
    weight = _own_weight(sample)
    known = weight > 0
    if not known.any():
        return model
    loss = model.loss_function
    if job.settings.multilabel:
        found = calibrated_labels(loss, method, scores[known], _is_one(prepared, sample)[known], weight[known])
    elif sample.labelled:
        codes, of_classes = decode(sample.y)[known], sample.targets.class_weight
        found = calibrated_classes(loss, method, scores[known], codes, weight[known], of_classes)
    else:
        if job.settings.loss.quantiles:
            model, scores = _with_quantiles(model, job, sample, scores, known)
        found = _of_values(model, prepared, job, method, sample, scores, known)
    return replace(model, calibration=found)


def _out_of_sample(
    model: KernelModel, prepared: Prepared, job: FitJob, used: IntArray | None
) -> tuple[str, HeldSample, FloatArray]:
    """Return where the rows come from, the rows, and their scores (k, c)."""
    if job.validation is not None:
        rows = job.validation.open(job.settings.dtype)
        sample = _some(rows, prepared, job.settings.seed)
        return "validation", sample, _scores(model, sample.X)
    if prepared.calibration is not None:
        early = job.settings.early_stopping is not None
        return "validation" if early else "held-out", prepared.calibration, _scores(model, prepared.calibration.X)
    assert prepared.held is not None
    loss = job.settings.loss
    sample = _drawn(prepared.held, rows_left_out(prepared.targets.n_outputs, job.settings), job.settings.seed)
    if used is not None and job.settings.basis.all_rows and isinstance(loss, BoxDual):
        return "leave-one-out", sample, left_out_support(model, prepared, job, sample, used)
    scores = _left_out(model, prepared, job, sample)
    if prepared.indices is None or job.settings.basis.all_rows or not job.settings.solver.solves_exactly:
        return "leave-one-out", sample, scores
    # The column of a landmark whose row is left out has next to no penalty: such scores are far off.
    others = np.flatnonzero(~np.isin(sample.positions, prepared.indices))
    if len(others) < _LEAST_OTHERS:
        return "leave-one-out", sample, scores
    return "leave-one-out", _at(sample, others), scores[others]


def _scores(model: KernelModel, X: FeatureRows) -> FloatArray:
    return model.scores(X, scaled=True).astype(np.float64)


def _some(rows: Rows, prepared: Prepared, seed: int) -> HeldSample:
    some = generator(seed, _STREAM).permutation(rows.n_rows)[:MOST_CALIBRATION_ROWS]
    chosen = np.sort(some).astype(np.int64)
    return HeldSample.of(rows, features_at(rows, chosen), chosen, prepared.targets)


def _drawn(held: HeldSample, most: int, seed: int) -> HeldSample:
    """Return at most `most` of the sampled rows."""
    if len(held.y) <= most:
        return held
    return _at(held, np.sort(generator(seed, _STREAM, 1).permutation(len(held.y))[:most]))


def _at(held: HeldSample, at: IntArray) -> HeldSample:
    return replace(held, X=held.X[at], y=held.y[at], weight=held.weight[at], positions=held.positions[at])


def _own_weight(sample: HeldSample) -> FloatArray:
    """Return the weights of the rows without those of their classes."""
    weights = sample.targets.class_weight
    if weights is None:
        return sample.weight
    own = weights[decode(sample.y)]
    return np.where(own > 0, sample.weight / np.where(own > 0, own, 1), 0.0)


def _left_out(model: KernelModel, prepared: Prepared, job: FitJob, sample: HeldSample) -> FloatArray:
    """Return approximate leave-one-out scores (k, c) of training rows: of several trees, the mean of theirs."""
    settings, targets = job.settings, prepared.targets
    scores, slopes, coef, norm = _at_training_rows(model, prepared, job, sample)
    curvature = np.full(scores.shape, smoothness_of(settings.loss))
    if isinstance(targets.moved, Curved):
        curvature = targets.moved.curvature(scores, sample.y).astype(np.float64)
    kernel, X, found = prepared.basis.kernel, sample.X.astype(np.float64), []
    for t, member in enumerate(kernel.members if isinstance(kernel, TreeAverage) else (kernel,)):
        own, gram = None if coef is None else coef[t], _gram(model, member, prepared, job, X)
        rows = TrainingScores(gram, scores, slopes, curvature, sample.weight, norm, own, sample.n_rows)
        exact, newton = settings.solver.solves_exactly, _steps_on(job, sample)
        found.append(leave_one_out_scores(rows, prepared.alpha, smoothness_of(settings.loss), exact, newton))
    left_out: FloatArray = np.mean(found, axis=0) + _constant(prepared)
    return left_out


def _steps_on(job: FitJob, sample: HeldSample) -> bool:
    """Return whether slopes say little of labels before the minimum: those of the loss end, or jump."""
    loss = job.settings.loss
    return (sample.labelled or job.settings.multilabel) and (
        isinstance(loss, Probabilistic) or not isinstance(loss, Smooth)
    )


def _constant(prepared: Prepared) -> FloatArray:
    constant = prepared.targets.constant
    return np.zeros(prepared.targets.n_outputs) if constant is None else np.asarray(constant)


def _is_one(prepared: Prepared, sample: HeldSample) -> HostArray:
    """Return which of several labels rows have, (k, t) bool: encoded as -1 and 1, for least squares less a constant."""
    targets = prepared.targets
    moved = _constant(prepared) if targets.moved is targets.loss else 0.0
    one: HostArray = sample.y + moved > 0
    return one


def _at_training_rows(
    model: KernelModel, prepared: Prepared, job: FitJob, sample: HeldSample
) -> tuple[FloatArray, FloatArray, FloatArray | None, float | None]:
    """Return scores (k, c) less the constant, weighted slopes, coefficients of each tree if any, ``|f|^2`` if known."""
    constant, targets = _constant(prepared), prepared.targets
    scores = _scores(model, sample.X) - constant
    slopes = sample.weight[:, None] * targets.moved.gradient(scores, sample.y).astype(np.float64)
    coef = None
    trees = model.kernel.n_trees if isinstance(model.kernel, TreeAverage) else 1
    if job.settings.basis.all_rows and model.scores_each == 1 and len(model.coef) == trees * sample.n_rows:
        coef = model.coef.reshape(trees, sample.n_rows, -1)[:, sample.positions].astype(np.float64)
    return scores, slopes, coef, _squared_norm(model, job, scores, coef, constant, sample.n_rows)


def _squared_norm(
    model: KernelModel, job: FitJob, scores: FloatArray, coef: FloatArray | None, constant: FloatArray, n_rows: int
) -> float | None:
    """Return ``|f|^2``: ``sum_j a_j f(z_j)``, from some columns of many, or that of coefficients of features."""
    if model.scores_each > 1:
        return None
    if coef is not None:
        return n_rows * float((coef.mean(axis=0) * scores).sum()) / len(scores)
    basis = job.settings.basis
    if basis.is_explicit and not basis.is_mapped:
        return float((model.coef.astype(np.float64) ** 2).sum())
    p = len(model.coef)
    some = np.sort(generator(job.settings.seed, _STREAM, 2).permutation(p)[:_COLUMNS])
    at = _scores(model, model.points[some]) - constant
    return p / len(some) * float((model.coef[some].astype(np.float64) * at).sum())


def _gram(model: KernelModel, kernel: Kernel, prepared: Prepared, job: FitJob, X: HostArray) -> FloatArray:
    """Return the inner products (k, k) of rows in the function space of columns of the `kernel`, or of some of them."""
    basis = job.settings.basis
    if basis.is_explicit and not basis.drawn_per_step:
        assert prepared.points is not None
        return gram_of(blocks_of(kernel, prepared.points, X))
    kernel = kernel.kernel if isinstance(kernel, Drawn) else kernel
    gram = block_between(kernel, X, X)
    gram[np.diag_indices(len(gram))] = kernel.diagonal(X)
    p = len(model.coef)
    if basis.is_explicit or basis.all_rows or p >= prepared.plan.n_rows:
        return gram  # also where the model keeps some of all rows, because the coefficients of others are 0
    some = np.sort(generator(job.settings.seed, _STREAM, 3).permutation(p)[:MOST_CALIBRATION_ROWS])
    Z = model.points[some].astype(np.float64)
    of_points = block_between(kernel, Z, Z)
    of_points[np.diag_indices(Z.shape[0])] = kernel.diagonal(Z) + _JITTER * float(np.trace(gram)) / len(gram)
    half: FloatArray = solve_triangular(cholesky(of_points, lower=True), block_between(kernel, Z, X), lower=True)
    return half.T @ half


def _with_quantiles(
    model: KernelModel, job: FitJob, sample: HeldSample, scores: FloatArray, known: HostArray
) -> tuple[KernelModel, FloatArray]:
    """Return model and scores with each quantile moved to where its share of the targets is below it.

    A fit of some epochs ends on its way from the quantile of all targets, with too many or too few below.
    """
    errors = sample.y[known] - scores[known]  # of one target, each head
    shift = quantile_shifts(job.settings.loss.quantiles, errors, sample.weight[known])
    if not shift.any():
        return model, scores
    scale = 1.0 if model.target_scale is None else model.target_scale
    before = 0.0 if model.target_shift is None else model.target_shift
    return replace(model, target_shift=np.asarray(before + shift * scale)), scores + shift


def _of_values(
    model: KernelModel,
    prepared: Prepared,
    job: FitJob,
    method: str,
    sample: HeldSample,
    scores: FloatArray,
    known: HostArray,
) -> Calibration:
    scale = 1.0 if model.target_scale is None else model.target_scale
    if job.settings.loss.heads > 1:
        values = np.sort(scores[known] * scale, axis=1)
        beyond = beyond_quantiles(values[:, 0], values[:, -1], sample.y[known, 0] * np.ravel(scale)[0])
        return Calibration(method, len(beyond), beyond)
    errors = (sample.y - scores)[known] * scale
    posterior = _posterior(model, prepared, job, method, sample, errors, known)
    return Calibration(method, len(errors), absolute_errors(errors), posterior=posterior)


def _posterior(
    model: KernelModel,
    prepared: Prepared,
    job: FitJob,
    method: str,
    sample: HeldSample,
    errors: FloatArray,
    known: HostArray,
) -> Posterior | None:
    """Return what the posterior variance needs; None where columns are not kernels of points."""
    if not job.settings.basis.has_centres or model.scores_each > 1:
        return None
    held = prepared.held
    assert held is not None
    scores, slopes, _, norm = _at_training_rows(model, prepared, job, held)
    least = LEAST_ALPHA * float(np.mean(model.kernel.diagonal(held.X.astype(np.float64))))
    alpha = max(effective_alpha(scores, slopes, norm, prepared.alpha), least)
    try:
        if job.settings.basis.all_rows and len(held.y) == held.n_rows <= MOST_POINTS and method == "leave-one-out":
            gram = _gram(model, model.kernel, prepared, job, held.X.astype(np.float64))  # each row is one of the points
            variance = left_out_variance(gram, np.full(held.n_rows, held.n_rows * alpha))
            variance = variance[np.searchsorted(held.positions, sample.positions)]
        else:
            variance = PosteriorFactor(model, alpha).variance(sample.X, scaled=True)
    except DataError:
        return None
    return Posterior.of_errors(alpha, held.n_rows, errors, variance[known])
