"""Losses on held-out rows, and whether the difference between two candidates is significant."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.errors import SpecError
from daskkern.feature_learning.held_out import row_losses
from daskkern.model_selection.samples import Fold, SearchSample

SCORINGS = {
    "classification": ("auto", "log_loss", "accuracy"),
    "regression": ("auto", "squared_error", "absolute_error"),
}
"""What predictions may be compared by; "auto" is the first of the others."""
_BETTER = 0.01  # of the other's mean loss
_ROUNDING = 1e-6
_TIES = 0.01  # weight of the log loss where labels are compared


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Losses of the rows that were held out in some fold.

    Attributes
    ----------
    losses : (k,) array
        Log losses at the best temperature for classes, or wrong labels; squared or absolute errors, with the targets'
        standard deviation as the unit.
    errors : (k,) array
        Wrong labels, as the share of the repetitions; for regression squared errors.
    shares : (k,) array
        Weights of the rows, with the sum 1.
    """

    losses: FloatArray
    errors: FloatArray
    shares: FloatArray

    @property
    def mean(self) -> float:
        """Mean loss."""
        return float(self.losses @ self.shares)

    @property
    def error(self) -> float:
        """Share of wrong labels; for regression, of the variance that is not explained."""
        return float(self.errors @ self.shares)

    def is_better(self, other: "HeldOut") -> bool:
        """Return whether losses are lower than others of the same rows beyond chance, and errors not higher.

        Lower by 1% and by a standard error of the differences; errors may be higher by a standard error, which is
        most of a point for a few thousand rows, where the log loss tells models apart.
        """
        return _gain(self.losses, other.losses, self.shares) > max(
            _BETTER * other.mean, _deviation(self.losses, other.losses, self.shares), _ROUNDING
        ) and -_gain(self.errors, other.errors, self.shares) <= _deviation(self.errors, other.errors, self.shares)

    def may_equal(self, best: "HeldOut") -> bool:
        """Return whether losses are higher than lower ones of the same rows by chance: by less than two standard errors
        of the differences."""
        return -_gain(self.losses, best.losses, self.shares) <= 2 * _deviation(self.losses, best.losses, self.shares)

    def replaces(self, usual: "HeldOut", scoring: str) -> bool:
        """Return whether a fit is taken in place of the defaults: better beyond chance, and before them by rank.

        Where errors are few, as of a rare class, a standard error of them is a good part of all: a lower loss then has
        to outweigh more errors.
        """
        return self.is_better(usual) and self.rank_by(scoring) < usual.rank_by(scoring)

    def rank_by(self, scoring: str) -> float:
        """Return the number by which fits that are better than the defaults are compared; less is better.

        With "auto" that is the loss times the errors: the log loss and the number of wrong labels prefer different
        losses of a fit, and a model should have little of both.
        """
        return self.mean * max(self.error, _ROUNDING) if scoring == "auto" else self.mean


def _gain(losses: FloatArray, others: FloatArray, shares: FloatArray) -> float:
    return float((others - losses) @ shares)


def _deviation(losses: FloatArray, others: FloatArray, shares: FloatArray) -> float:
    """Return the standard error of the mean difference."""
    gaps = others - losses
    return float(((gaps - gaps @ shares) ** 2 @ shares**2) ** 0.5)


def check_scoring(scoring: object, task: str) -> str:
    """Return `scoring`, or raise SpecError where a task has none of that name."""
    known = SCORINGS[task]
    if scoring not in known:
        raise SpecError(f"got scoring={scoring!r} for {task}; expected one of {', '.join(known)}")
    return str(scoring)


def held_out_losses(
    sample: SearchSample, folds: Sequence[Fold], scores: Sequence[FloatArray], n_repeats: int = 1
) -> HeldOut:
    """Return the losses of scores (k, c) of the rows that each of the folds holds out.

    Folds of a repetition follow each other. All scores of one have one temperature.
    """
    each = len(folds) // n_repeats
    total, wrong = np.zeros(sample.n_rows), np.zeros(sample.n_rows)
    held = np.concatenate([fold.held for fold in folds[:each]])
    for start in range(0, len(folds), each):
        at = np.concatenate([fold.held for fold in folds[start : start + each]])
        found = np.concatenate(list(scores[start : start + each]))
        losses, errors = _losses(sample, at, found)
        total[at] += losses / n_repeats
        wrong[at] += errors / n_repeats
    held = np.sort(held)
    shares = sample.shares[held]
    size = shares.sum()
    shares = shares / size if size > 0 else np.full(len(held), 1 / len(held))
    return HeldOut(total[held], wrong[held], shares)


def _losses(sample: SearchSample, at: IntArray, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return losses and errors (k,) of scores of the rows numbered `at`."""
    labels, y = sample.labels, sample.y[at]
    shares = sample.shares[at]
    if labels is None:
        gaps = scores - y
        errors: FloatArray = (gaps**2).mean(axis=1)
        return np.abs(gaps).mean(axis=1) if sample.scoring == "absolute_error" else errors, errors
    losses = row_losses(scores, y, labels[at], shares / max(float(shares.sum()), np.finfo(float).tiny))
    predicted = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(np.int64)
    wrong = (predicted != labels[at]).astype(np.float64)
    return wrong + _TIES * losses if sample.scoring == "accuracy" else losses, wrong
