"""A convergence test for fits that ran out of epochs or time, from the losses of their epochs."""

import math
from collections.abc import Sequence

from daskkern.events import EpochFinished

_LEAST_EPOCHS = 4
_OF_LAST, _OF_FIRST, _OF_FIRST_WITHOUT_PENALTY = 0.05, 0.01, 0.05
_RISE = 0.1
"""Relative rise of the mean loss that counts, from the second to the last quarter of the epochs."""


def convergence_note(epochs: Sequence[EpochFinished], reason: str, alpha: float) -> str:
    """Return a sentence if the fit has not converged; "" if it has, and for fewer than four epochs.

    L_t are the losses of the epochs t = 1 ... T: on validation rows if there are any, else on the training rows.
    With the falls d1 = L_(T/4) - L_(T/2) and d2 = L_(T/2) - L_T, as many epochs again would lower the loss by about
    d2 min(1, d2 / d1): right for losses that fall like a power of t, and too much for those that fall faster (Aitken's
    extrapolation, over epochs that double). The fit has not converged if that is above 5% of L_T and 1% of L_1; a
    root mean square error changes by half of these shares. Nor has it if the decrease does not slow down, so that no
    end is in sight: d2 is above d1 and 1% of L_1, and d1 above 0.5%. Without a penalty the training loss tends to 0,
    which is not the goal: there the threshold is 5% of L_1.

    Parameters
    ----------
    epochs : sequence of EpochFinished
    reason : str
        Why the fit ended, as in :class:`~daskkern.events.FitFinished`.
    alpha : float
        Ridge penalty.
    """
    what, losses = _watched(epochs)
    whole = len(losses)
    if reason not in ("max_epochs", "max_seconds") or whole < _LEAST_EPOCHS or not all(map(math.isfinite, losses)):
        return ""
    first, quarter, half, last = (losses[number - 1] for number in (1, whole // 4, whole // 2, whole))
    earlier, later = quarter - half, half - last
    fall = later * min(1.0, later / earlier) if earlier > 0 else later
    least = (_OF_FIRST_WITHOUT_PENALTY if alpha == 0 and what == "training" else _OF_FIRST) * first
    steady = later > max(earlier, least) and earlier > least / 2
    if steady or (later > 0 and fall > max(_OF_LAST * last, least)):
        return (
            f"the fit has not converged: the {what} loss still fell from {half:.3g} to {last:.3g} in the last "
            f"{whole - whole // 2} of {whole} epochs; raise {reason}, or choose a solver that needs fewer epochs"
        )
    before, after = _mean(losses[whole // 4 : whole // 2]), _mean(losses[whole - whole // 4 :])
    if what == "training" and after - before > max(_RISE * before, _OF_FIRST * first):
        return (
            f"the fit has not converged: the training loss rose from {before:.3g} to {after:.3g} in the last "
            f"{whole - whole // 4} of {whole} epochs; choose another solver, a larger alpha or shorter steps"
        )
    return ""


def _watched(epochs: Sequence[EpochFinished]) -> tuple[str, list[float]]:
    if epochs and all(math.isfinite(epoch.validation_loss) for epoch in epochs):
        return "validation", [epoch.validation_loss for epoch in epochs]
    return "training", [epoch.loss for epoch in epochs]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
