"""Trials of whole fits: a candidate's settings, fitted to some sampled rows and scored on others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.concurrency import product_threads
from daskkern.model_selection.candidates import FitCandidate, KernelCandidate
from daskkern.model_selection.held_out import HeldOut, held_out_losses
from daskkern.model_selection.ridge_trials import kernel_learned_from
from daskkern.model_selection.samples import Fold, SearchSample
from daskkern.models import KernelModel
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings


@dataclass(frozen=True, eq=False)
class FitOutcome:
    """The result of a trial.

    Attributes
    ----------
    held : HeldOut
        Losses on held-out rows.
    n_fitted : int
        Rows of a fold's fit.
    seconds : float
        Of all fits.
    alpha : float
        The penalty of the first of them.
    """

    held: HeldOut
    n_fitted: int
    seconds: float
    alpha: float


def try_fit(candidate: FitCandidate, sample: SearchSample, folds: Sequence[Fold]) -> FitOutcome:
    """Return how well fits with the settings of a candidate predict the rows that each fold holds out.

    Folds of a repetition follow each other; losses of a row are averaged over them.

    A fit here is the ordinary one, in this process. Class weights are those of the sample's rows already. A metric is
    learned from the fitted rows of each fold.

    Raises
    ------
    DaskkernError
        As of the fit.
    """
    begun = time.perf_counter()
    settings = replace(candidate.sampled, class_weight=None, max_seconds=None, calibrate=False)
    scores, alphas = [], []
    for fold in folds:
        model = fit(sample.source(fold.fitted), _without_held(settings, candidate, sample, fold)).model
        scores.append(_scores(model, sample, fold))
        alphas.append(float(model.provenance["settings"]["alpha"]))
    seconds = time.perf_counter() - begun
    held = held_out_losses(sample, folds, scores, _n_repeats(folds))
    return FitOutcome(held, len(folds[0].fitted), seconds, alphas[0])


def _n_repeats(folds: Sequence[Fold]) -> int:
    """Return how often each row is held out."""
    return sum(int(np.isin(folds[0].held[0], fold.held)) for fold in folds)


def _without_held(settings: FitSettings, candidate: FitCandidate, sample: SearchSample, fold: Fold) -> FitSettings:
    """Return the settings with a metric, or a warp, that was not learned from the rows that a fold holds out."""
    metric = candidate.metric
    if metric is None:
        return settings
    rows = fold.fitted[fold.fitted < metric.n_rows]
    found = kernel_learned_from(metric.kernel, sample, metric.alphas, rows)
    return replace(settings, kernel=found.kernel, scale=found.scale)


def _scores(model: KernelModel, sample: SearchSample, fold: Fold) -> FloatArray:
    """Return scores (k, c) of held-out rows, as :func:`held_out_losses` expects them."""
    found: FloatArray = model.scores(sample.X[fold.held]).astype(np.float64)
    if sample.units is not None:
        shift, scale = sample.units
        predicted = model.labels(found).reshape(len(found), -1)
        return np.asarray((predicted - shift) / scale)
    return found[:, 1:] - found[:, :1] if found.shape[1] == 2 else found


def seconds_of_entry(sample: SearchSample) -> float:
    """Return the measured seconds of a kernel value of sampled rows, on all cores of this process."""
    scale = next(iter(sample.scalings))
    X = sample.scaled(scale).astype(np.float32)
    categories = sample.info.categories
    kernel = KernelCandidate("laplacian_l1" if categories else "laplacian", 1.0, scale, categories=categories).resolved(
        X
    )
    points, weights = kernel.points(X, kernel.placement_for(X)), np.ones((X.shape[0], sample.y.shape[1]), np.float32)
    kernel.matvec(X[:2], points, weights)  # compiles
    begun = time.perf_counter()
    with product_threads(None, float(X.shape[0]) ** 2 * X.shape[1]):
        kernel.matvec(X, points, weights)
    return (time.perf_counter() - begun) / X.shape[0] ** 2
