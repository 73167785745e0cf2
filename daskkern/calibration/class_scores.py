"""Calibration of class scores, for one label or several labels per row."""

from dataclasses import replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.calibration.calibration import Calibration
from daskkern.calibration.conformal import label_scores
from daskkern.calibration.scaling import ScoreScaling, calibration_error, fit_scaling, log_loss
from daskkern.losses import Loss, Probabilistic


def calibrated_classes(
    loss: Loss,
    method: str,
    scores: FloatArray,
    codes: IntArray,
    weight: FloatArray,
    class_weight: FloatArray | None,
) -> Calibration:
    """Return the calibration of classes, from scores (k, c) and codes (k,) of rows that the model has not learned from.

    A loss that has probabilities keeps its own unless a temperature improves them by more than chance.
    """
    scaling: ScoreScaling | None = fit_scaling(scores, codes, weight, class_weight)
    assert scaling is not None
    p = scaling.probabilities(scores)
    if class_weight is None and isinstance(loss, Probabilistic):
        own = np.asarray(loss.probabilities(scores))
        gain = log_loss(own, codes, weight) - log_loss(p, codes, weight)
        if gain <= np.log(len(codes)) / (2 * len(codes)):  # what one more number gains by chance, and some (BIC)
            scaling, p = None, own
    return Calibration(
        method,
        len(codes),
        label_scores(p, codes),
        scaling,
        log_loss(p, codes, weight),
        calibration_error(p, codes, weight),
    )


def calibrated_labels(loss: Loss, method: str, scores: FloatArray, y: HostArray, weight: FloatArray) -> Calibration:
    """Return the calibration of several labels, one temperature for all."""
    each, codes = np.repeat(weight, y.shape[1]), y.ravel().astype(np.int64)
    found = calibrated_classes(loss, method, scores.reshape(-1, 1), codes, each, None)
    p = (found.scaling or ScoreScaling(1.0)).each(scores)
    worst = np.where(y, 1 - p, p).max(axis=1)
    return replace(found, n_rows=len(y), scores=np.sort(worst)[:, None])
