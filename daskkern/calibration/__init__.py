"""Calibration: probabilities, prediction sets and intervals from out-of-sample scores."""

from daskkern.calibration.calibration import METHODS, Calibration
from daskkern.calibration.class_scores import calibrated_classes, calibrated_labels
from daskkern.calibration.conformal import (
    absolute_errors,
    beyond_quantiles,
    conformal_quantile,
    intervals_around,
    intervals_between,
    label_scores,
    label_sets,
)
from daskkern.calibration.posterior import Posterior
from daskkern.calibration.quantile_shifts import quantile_shifts
from daskkern.calibration.scaling import ScoreScaling, calibration_error, fit_scaling, log_loss

__all__ = [
    "METHODS",
    "Calibration",
    "Posterior",
    "ScoreScaling",
    "absolute_errors",
    "beyond_quantiles",
    "calibrated_classes",
    "calibrated_labels",
    "calibration_error",
    "conformal_quantile",
    "fit_scaling",
    "intervals_around",
    "intervals_between",
    "label_scores",
    "label_sets",
    "log_loss",
    "quantile_shifts",
]
