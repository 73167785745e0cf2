"""Trials of a softmax give what scikit-learn's logistic regression gives, and tell classes apart that are shells."""

import numpy as np
import pytest
from sklearn.datasets import make_gaussian_quantiles
from sklearn.linear_model import LogisticRegression

from daskkern.errors import DataError
from daskkern.estimators.array_inputs import array_source
from daskkern.events import silent
from daskkern.feature_learning.held_out import row_losses
from daskkern.losses import MultinomialLogistic
from daskkern.model_selection import Budget
from daskkern.model_selection.candidates import KernelCandidate
from daskkern.model_selection.fit_trials import try_fit
from daskkern.model_selection.ridge_trials import fold_grams, try_kernel
from daskkern.model_selection.running import DrawnSample, LocalRunner
from daskkern.model_selection.samples import SearchSample, draw_sample
from daskkern.model_selection.softmax_stage import softmax_kernel
from daskkern.model_selection.softmax_trials import SoftmaxCandidate, try_softmax
from daskkern.model_selection.trial_log import TrialLog
from daskkern.training.feeding.sources import ArraySource
from tests.support.searches import class_source, usual

PLAIN = KernelCandidate("gaussian", 1.0, "affine")


def _shells(n: int) -> ArraySource:
    X, y = make_gaussian_quantiles(n_samples=n, n_features=6, n_classes=4, random_state=0)
    return array_source(X, y.astype(np.int64), None, np.arange(4))


def _drawn(source: ArraySource) -> SearchSample:
    return draw_sample(source, usual(source), source.info.n_rows, ("affine",))


def test_scores_are_those_of_logistic_regression_in_the_space_of_the_kernel() -> None:
    sample = _drawn(class_source(120))
    assert sample.labels is not None
    fold = sample.folds(1, 0.25)[0]
    found = try_softmax(SoftmaxCandidate(PLAIN), sample, [[fold]])
    gram = fold_grams(PLAIN, sample, [fold], ())[0]
    n = len(fold.fitted)
    factor = np.linalg.cholesky(gram[:n] + 1e-8 * np.eye(n))
    features = np.linalg.solve(factor, gram.T).T
    by_rows = LogisticRegression(C=1 / (found.alpha * n), tol=1e-8, max_iter=5000)
    scores = by_rows.fit(features[:n], sample.labels[fold.fitted]).decision_function(features[n:])
    losses = row_losses(scores, scores, sample.labels[fold.held], np.full(len(scores), 1 / len(scores)))
    assert found.held.mean == pytest.approx(losses.mean(), rel=0.05)  # the trial stops after so many steps
    assert found.held.error == pytest.approx(np.mean(scores.argmax(axis=1) != sample.labels[fold.held]), abs=0.04)


def test_classes_between_others_are_found_that_one_against_the_rest_misses() -> None:
    sample = _drawn(_shells(400))
    folds = [sample.folds(3, 0.25)]
    one_by_one, joint = try_kernel(PLAIN, sample, folds), try_softmax(SoftmaxCandidate(PLAIN), sample, folds)
    assert joint.held.error < 0.6 * one_by_one.held.error
    assert joint.held.mean < 0.7 * one_by_one.held.mean


def test_a_metric_is_learned_in_each_fold() -> None:
    sample = _drawn(class_source(120))
    folds = sample.folds(3, 0.25)
    weighted = KernelCandidate("gaussian", 1.0, "affine", "diagonal")
    plain, learned = fold_grams(weighted, sample, folds, ()), fold_grams(weighted, sample, folds, (1e-3,))
    assert [gram.shape for gram in learned] == [gram.shape for gram in plain] == [(120, 80)] * 3
    assert not np.allclose(plain[0], learned[0])
    outcome = try_softmax(SoftmaxCandidate(weighted, (1e-3,)), sample, [folds])
    assert outcome.alphas == (1e-3,)


def test_equal_rows_are_refused() -> None:
    source = array_source(np.ones((60, 3)), np.arange(60) % 3, None, np.arange(3))
    sample = _drawn(source)
    with pytest.raises(DataError):
        try_softmax(SoftmaxCandidate(PLAIN), sample, [sample.folds(3, 0.25)])


def test_the_stage_returns_a_fit_where_a_softmax_is_better() -> None:
    source = _shells(300)
    sample, settings = _drawn(source), usual(source)
    fold = sample.folds(1, 0.25)[0]
    one_by_one = try_kernel(PLAIN, sample, [[fold]])
    log = TrialLog(Budget(1e6), LocalRunner(), silent)
    found = softmax_kernel(log, [(PLAIN, one_by_one)], DrawnSample(sample, sample))
    assert found is not None
    assert {row.method for row in log.rows} == {"softmax"}
    candidate = found.fit(settings, 300, len(fold.fitted))
    assert isinstance(candidate.settings.loss, MultinomialLogistic)
    assert candidate.settings.alpha < candidate.sampled.alpha
    assert try_fit(candidate, sample, [fold]).held.error < 0.7 * one_by_one.held.error
    two = array_source(source.X, (source.y > 1).astype(np.int64), None, np.arange(2))
    assert softmax_kernel(log, [(PLAIN, one_by_one)], DrawnSample(_drawn(two), None)) is None
