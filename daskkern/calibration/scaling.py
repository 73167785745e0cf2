"""Temperature scaling: probabilities ``softmax(a s - t log w)`` of scores s, by maximum likelihood.

One number a, the inverse temperature, makes the scores of any loss log odds; it does not change which class has the
highest score. Where classes were weighted by w in the fit, a second number t takes the weights out again, so that
probabilities are frequencies of the rows as they are. The negative log likelihood is convex in (a, t) and is minimised
by Newton's method. One row's weight of outcomes that are spread evenly over the classes is added to those observed, as
in Platt's rule: scores that separate every row would otherwise have probabilities of 0 and 1.

References
----------
Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017; Platt, "Probabilistic outputs
for support vector machines", 1999.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray

_STEPS, _HALVINGS = 100, 30
_ENOUGH = 1e-10
_LEAST, _MOST = 1e-6, 1e6  # of a, in units of one over the spread of the scores
_SMALLEST = 1e-15  # a probability of 0 for the true class would make the log loss infinite
_BINS = 15


@dataclass(frozen=True)
class ScoreScaling:
    """Probabilities ``softmax(scale * s + offset)`` of scores s.

    Attributes
    ----------
    scale : float
        a, positive: one over the temperature.
    offset : tuple of float
        One a class, or empty for none.
    """

    scale: float
    offset: tuple[float, ...] = ()

    def probabilities(self, scores: HostArray) -> HostArray:
        """Return probabilities (m, n_classes) in the dtype of the scores (m, c), of which a single one is of class 1.

        Every row sums to 1 up to rounding.
        """
        logits = self.scale * two_columns(scores).astype(np.float64)
        if self.offset:
            logits = logits + np.asarray(self.offset)
        result: HostArray = softmax(logits).astype(scores.dtype)
        return result

    def each(self, scores: HostArray) -> HostArray:
        """Return the probability of each of several labels (m, c), ``1 / (1 + exp(-scale s))``."""
        logits = self.scale * scores.astype(np.float64)
        result: HostArray = (0.5 * (np.tanh(0.5 * logits) + 1)).astype(scores.dtype)
        return result


def two_columns(scores: HostArray) -> HostArray:
    """Return scores (m, n_classes): 0 and the score where there is a single one for two classes."""
    return np.concatenate([np.zeros_like(scores), scores], axis=1) if scores.shape[1] == 1 else scores


def softmax(logits: FloatArray) -> FloatArray:
    """Return ``exp(l_k) / sum_j exp(l_j)`` of each row (m, k)."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: FloatArray = powers / powers.sum(axis=1, keepdims=True)
    return result


def fit_scaling(
    scores: HostArray, codes: IntArray, weight: FloatArray, class_weight: FloatArray | None = None
) -> ScoreScaling:
    """Return the scaling of least negative log likelihood.

    Parameters
    ----------
    scores : (m, c) array
        Of rows that the model has not learned from; c is 1 or the number of classes.
    codes : (m,) int64
        True classes.
    weight : (m,) float64
        Weights of the rows, those of classes left out.
    class_weight : (n_classes,) float64 or None
        What rows of a class were weighted with in the fit, in addition.
    """
    S = two_columns(scores).astype(np.float64)
    S = S - S.mean(axis=1, keepdims=True)
    spread = float(np.sqrt(np.mean(S**2)))
    if not spread > 0:
        spread = 1.0
    moves, starts = [S / spread], [np.ones(1)]
    if class_weight is not None:
        moved = -np.log(np.maximum(class_weight, _SMALLEST))
        moved = moved - moved.mean()
        size = float(np.sqrt(np.mean(moved**2))) or 1.0
        moves.append(np.broadcast_to(moved / size, S.shape))
        # Of weights that differ by orders of magnitude, t = 1 can put all rows into one class, where slopes vanish.
        starts = [np.array([1.0, size]), np.array([1.0, 0.0])]
    w = weight / weight.sum()
    k = S.shape[1]
    even = 1.0 / (len(codes) + 1.0)
    targets = np.full(S.shape, even / k)
    targets[np.arange(len(codes)), codes] += 1 - even
    x = _minimise(np.stack(moves), targets, w, starts)
    offset = () if class_weight is None else tuple(float(v) for v in x[1] * moves[1][0])
    return ScoreScaling(float(x[0]) / spread, offset)


def _minimise(moves: FloatArray, targets: FloatArray, w: FloatArray, starts: Sequence[FloatArray]) -> FloatArray:
    """Return x (r,) of least ``sum_i w_i cross entropy(targets_i, softmax(sum_r x_r moves_r,i))``, from the best of
    `starts`."""

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        logits = np.tensordot(x, moves, 1)
        top = logits.max(axis=1, keepdims=True)
        whole = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        return float(w @ (whole - (targets * logits).sum(axis=1))), logits

    x = min(starts, key=lambda start: value(start)[0])
    least, logits = value(x)
    for _ in range(_STEPS):
        p = softmax(logits)
        means = (moves * p).sum(axis=2)
        slope = np.array([w @ (part * (p - targets)).sum(axis=1) for part in moves])
        bend = np.array([[w @ ((a * b * p).sum(axis=1)) for b in moves] for a in moves]) - (means * w) @ means.T
        bend[np.diag_indices(len(x))] += 1e-12 + 1e-9 * np.trace(bend)
        step = -np.linalg.solve(bend, slope)
        for size in 0.5 ** np.arange(_HALVINGS):
            new = x + size * step
            new[0] = min(max(new[0], _LEAST), _MOST)
            found, logits_there = value(new)
            if found <= least:
                break
        else:
            return x
        x, before, least, logits = new, least, found, logits_there
        if before - least <= _ENOUGH * max(1.0, least):
            break
    return x


def log_loss(probabilities: HostArray, codes: IntArray, weight: FloatArray) -> float:
    """Return minus the weighted mean logarithm of the true classes' probabilities (m, k)."""
    truth = probabilities[np.arange(len(codes)), codes].astype(np.float64)
    return float(-(weight @ np.log(np.maximum(truth, _SMALLEST))) / weight.sum())


def calibration_error(probabilities: HostArray, codes: IntArray, weight: FloatArray) -> float:
    """Return the expected calibration error of the largest probability, in 15 equal ranges.

    The weighted mean difference between the mean probability of a range and the share of rows in it that were right.
    """
    top = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == codes
    bins = np.minimum((top * _BINS).astype(np.int64), _BINS - 1)
    excess = np.bincount(bins, weights=weight * (top - right), minlength=_BINS)
    return float(np.abs(excess).sum() / weight.sum())
