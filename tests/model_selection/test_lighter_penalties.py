"""Smaller penalties are tried as long as they help, and follow the number of rows."""

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection import Budget, search
from daskkern.model_selection.candidates import FitCandidate
from daskkern.model_selection.fit_trials import FitOutcome, try_fit
from daskkern.model_selection.held_out import HeldOut
from daskkern.model_selection.lighter_penalties import lighter_fits
from daskkern.model_selection.samples import draw_sample
from tests.support.searches import class_source, usual


def _outcome(loss: float, alpha: float = 0.1) -> FitOutcome:
    return FitOutcome(HeldOut(np.array([loss]), np.array([loss]), np.ones(1)), 60, 0.0, alpha)


@pytest.mark.parametrize(
    ("losses", "n_tried"), [((0.4, 0.3, 0.2), 3), ((0.4, 0.41), 2), ((0.6,), 1), ((0.5, 0.4, 0.3), 1), ((), 0)]
)
def test_smaller_penalties_are_tried_as_long_as_they_help(losses: tuple[float, ...], n_tried: int) -> None:
    settings, left = usual(class_source(40)), list(losses)

    def run(fits: list[FitCandidate]) -> list[tuple[FitCandidate, FitOutcome]]:
        return [(fits[0], _outcome(left.pop(0)))] if left else []

    best = FitCandidate("best", settings, settings)
    found = lighter_fits(best, _outcome(0.5), lambda one: one.held.mean, run)
    assert [one.name for one, _ in found] == [f"best, penalty / {4**k}" for k in range(1, n_tried + 1)]
    assert [one.sampled.alpha for one, _ in found] == pytest.approx([0.1 / 4**k for k in range(1, n_tried + 1)])
    assert [one.settings.alpha for one, _ in found] == [f"auto/{4**k}" for k in range(1, n_tried + 1)]


def test_a_fit_without_a_penalty_has_none_that_is_smaller() -> None:
    settings = usual(class_source(40))
    best = FitCandidate("best", settings, settings)
    assert lighter_fits(best, _outcome(0.5, 0.0), lambda one: one.held.mean, lambda fits: []) == []


def test_a_trial_says_which_penalty_its_fit_had() -> None:
    source = class_source(80)
    settings = usual(source, alpha=0.03, max_epochs=1)
    sample = draw_sample(source, settings, 80, ("affine",))
    assert try_fit(FitCandidate("", settings, settings), sample, sample.folds(1, 0.25)).alpha == 0.03


@pytest.mark.repeated
def test_a_search_among_many_rows_tries_a_smaller_penalty_of_the_best_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.model_selection.fits.MOST_DIRECT", 100)
    source = array_source(*_noisy(160), None, np.arange(2))
    found = search(source, usual(source, max_epochs=2, basis=Landmarks(30)), budget=Budget(1e6))
    fits = [row.candidate for row in found.trials if row.method == "fit"]
    assert sum(name.endswith(", penalty / 4") for name in fits) == 1


def _noisy(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, (X[:, 0] + rng.standard_normal(n) > 0).astype(np.int64)
