"""Trials of smaller penalties than the chosen one, compared on the same held-out rows.

The penalty of a fit has the least squared error of ridge regression, of which much is shrinkage towards 0 where labels
are noisy. Labels and probabilities at the best temperature do not depend on that, and often want less of it.
"""

from collections.abc import Callable
from dataclasses import replace

from daskkern.model_selection.candidates import FitCandidate
from daskkern.model_selection.fit_trials import FitOutcome

_STEP = 4
_MOST_STEPS = 3

Tried = list[tuple[FitCandidate, FitOutcome]]


def lighter_fits(
    best: FitCandidate,
    outcome: FitOutcome,
    loss_of: Callable[[FitOutcome], float],
    run: Callable[[list[FitCandidate]], Tried],
) -> Tried:
    """Return the fits of `best` with a quarter of its penalty, a 16th, a 64th, as long as that helps, with outcomes.

    Parameters
    ----------
    best : FitCandidate
        Whose penalty the fit chooses.
    outcome : FitOutcome
        Of it.
    loss_of : callable
        Returns what fits are compared by; less is better.
    run : callable
        Runs trials, those that there is time for.
    """
    found: Tried = []
    for step in range(1, _MOST_STEPS + 1):
        if not outcome.alpha > 0:
            break
        done = run([_lighter(best, outcome, _STEP**step)])
        found += done
        if not done or loss_of(done[0][1]) >= min(loss_of(one) for one in (outcome, *_outcomes(found[:-1]))):
            break
    return found


def _outcomes(tried: Tried) -> list[FitOutcome]:
    return [outcome for _, outcome in tried]


def _lighter(best: FitCandidate, outcome: FitOutcome, times: int) -> FitCandidate:
    """Return `best` with a penalty that is smaller by a factor than the one that a fit chooses."""
    return replace(
        best,
        name=f"{best.name}, penalty / {times}",
        settings=replace(best.settings, alpha=f"auto/{times}"),
        sampled=replace(best.sampled, alpha=outcome.alpha / times),
    )
