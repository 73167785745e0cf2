"""A trial of a fit with a learned metric learns it without the rows that it is scored on."""

from dataclasses import replace

import numpy as np
import pytest

from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.candidates import KernelCandidate, LearnedMetric, metric_of
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.fits import fits_with
from daskkern.model_selection.lighter_penalties import lighter_fits
from daskkern.model_selection.ridge_trials import learned_kernel, try_kernel
from daskkern.model_selection.samples import draw_sample
from tests.support.searches import usual


@pytest.mark.parametrize("metric", ["diagonal", "relevance", "full"])
def test_labels_without_any_relation_are_not_predicted(metric: str) -> None:
    rng = np.random.default_rng(0)
    source = array_source(rng.standard_normal((120, 200)), rng.integers(0, 2, 120), None, np.arange(2))
    settings = usual(source)
    sample = draw_sample(source, settings, 120, ("affine",))
    folds = sample.folds(3, 0.25)
    candidate = KernelCandidate("gaussian", 1.0, "affine", metric)
    outcome = replace(try_kernel(candidate, sample, [folds]), alphas=(1e-3,) * 3, alpha=1e-3)
    kernel = learned_kernel(candidate, sample, outcome)
    (exact,), _ = fits_with([(candidate, outcome, kernel)], settings, 120, 80, "auto", 120)
    assert exact.metric == LearnedMetric(candidate, (1e-3,) * 3, 120)
    honest, leaking = (try_fit(one, sample, folds).held.error for one in (exact, replace(exact, metric=None)))
    assert honest > 0.35
    assert leaking < honest - 0.15


def test_it_is_learned_from_the_rows_that_the_metric_was_learned_from() -> None:
    assert metric_of(KernelCandidate("gaussian", 1.0, None), (), 100) is None
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4))
    source = array_source(X, X[:, 0] + rng.standard_normal(90), None, None)
    settings = usual(source)
    sample = draw_sample(source, settings, 90, ("affine",))
    fold = sample.folds(1, 0.25)[0]
    candidate = KernelCandidate("gaussian", 1.0, "affine", "diagonal")
    outcome = try_kernel(candidate, sample, [[fold]])
    kernel = learned_kernel(candidate, sample, outcome)
    (few,), _ = fits_with([(candidate, outcome, kernel)], settings, 90, 67, "auto", 40)
    (all_,), _ = fits_with([(candidate, outcome, kernel)], settings, 90, 67, "auto", 90)
    found, other = (try_fit(one, sample, [fold]) for one in (few, all_))
    assert found.held.mean != other.held.mean
    np.testing.assert_allclose(other.held.mean, outcome.held.mean, rtol=0.05)
    tried = lighter_fits(all_, other, lambda one: one.held.mean, lambda fits: [(one, other) for one in fits])
    assert tried[0][0].metric == all_.metric
