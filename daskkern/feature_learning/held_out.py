"""Losses of held-out predictions, by which kernels are compared."""

import numpy as np

from daskkern.arrays import FloatArray, IntArray

_TEMPERATURES = 2.0 ** np.arange(-2.0, 10.1, 0.5)


def row_losses(scores: FloatArray, y: FloatArray, labels: IntArray | None, weight: FloatArray) -> FloatArray:
    """Return the losses (k,) of scores (k, c): squared errors, or for classes log losses at the best temperature.

    Ridge regression to -1 and 1 shrinks scores towards 0 where rows are far apart, and the squared error is then mostly
    that of the shrinkage, of which labels know nothing. With ``p = softmax(t f)`` and the t of the least mean loss,
    ``-log p_label`` depends on the scores up to a factor (Guo, Pleiss, Sun and Weinberger, "On calibration of modern
    neural networks", ICML 2017, temperature scaling).

    Parameters
    ----------
    scores : (k, c) array
        For two classes, one column: that of the second.
    y : (k, c) array
        Targets of regression; not used with labels.
    labels : (k,) int array or None
    weight : (k,) array
        Weights of the rows, with the sum 1.
    """
    if labels is None:
        squared: FloatArray = ((scores - y) ** 2).sum(axis=1)
        return squared
    f = scores if scores.shape[1] > 1 else np.concatenate([-scores, scores], axis=1)
    gaps = f - f[np.arange(len(f)), labels][:, None]  # above 0 where another class scores more than the label
    losses = [_log_sum(t * gaps) for t in _TEMPERATURES]
    return losses[int(np.argmin([loss @ weight for loss in losses]))]


def _log_sum(gaps: FloatArray) -> FloatArray:
    """Return ``log sum_j e^gaps_j`` of each row."""
    top = gaps.max(axis=1)
    found: FloatArray = top + np.log(np.exp(gaps - top[:, None]).sum(axis=1))
    return found
