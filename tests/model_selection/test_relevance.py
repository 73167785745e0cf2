"""Relevance finds the features that matter by themselves among many, and none where there is none."""

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.estimators.array_inputs import array_source
from daskkern.model_selection.candidates import KernelCandidate, with_metrics
from daskkern.model_selection.relevance import LEAST_FEATURES, relevance, spread
from daskkern.model_selection.ridge_trials import learned_kernel, try_kernel
from daskkern.model_selection.samples import draw_sample
from tests.support.searches import usual

EVEN = np.full(400, 1 / 400)


def _rows(d: int = 200) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, d))
    return X, (X[:, 0] + 2 * np.abs(X[:, 1]) + 0.1 * rng.standard_normal(400))[:, None]


def test_features_that_matter_have_relevance_also_where_the_relation_is_even() -> None:
    X, y = _rows()
    found = relevance(X, y, EVEN)
    assert set(np.argsort(found)[-2:]) == {0, 1}
    assert found[:2].min() > 0.1
    assert (found[2:] > 0).sum() <= 3
    assert (relevance(np.column_stack([X, np.ones(400)]), y, EVEN)[-1]) == 0


def test_it_is_the_correlation_ratio_less_what_chance_gives() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 3, 400).astype(float), rng.standard_normal((400, 2))
    y[:, 0] += 3 * x
    between = sum(np.mean(x == k) * (y[x == k].mean(axis=0) - y.mean(axis=0)) ** 2 for k in range(3))
    chance = (2 + 2 * np.sqrt(2 * np.log(2))) / 399
    assert relevance(x[:, None], y, EVEN)[0] == pytest.approx(np.sum(between) / y.var(axis=0).sum() - chance)


def test_a_row_of_weight_two_counts_as_two_rows() -> None:
    X, y = _rows(3)
    weight = np.where(np.arange(400) % 2, 1.0, 2.0)
    twice = np.repeat(np.arange(400), weight.astype(int))
    excess = relevance(X, y, weight / weight.sum()) - relevance(X[twice], y[twice], np.full(len(twice), 1 / len(twice)))
    assert np.abs(excess).max() < 0.03  # bins and chance are those of other numbers of rows


def test_without_relevance_weights_are_even() -> None:
    X, _ = _rows(3)
    np.testing.assert_array_equal(relevance(X, np.ones((400, 1)), EVEN), 0)
    np.testing.assert_allclose(spread(np.zeros(4)), 0.25)
    weights = spread(np.array([3.0, 1.0, 0.0, 0.0]))
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights, [0.7, 0.25, 0.025, 0.025])


def test_weights_that_start_from_relevance_predict_better_where_most_features_are_noise() -> None:
    X, y = _rows()
    source = array_source(X, y[:, 0], None, None)
    sample = draw_sample(source, usual(source), 400, ("affine",))
    folds = [sample.folds(3, 0.25)]
    plain = KernelCandidate("gaussian", 1.0, "affine")
    errors = {one.metric: try_kernel(one, sample, folds).held.mean for one in [plain, *with_metrics(plain, X)]}
    assert errors["relevance"] < 0.6 * errors["diagonal"]
    outcome = try_kernel(KernelCandidate("gaussian", 1.0, "affine", "relevance"), sample, folds)
    kernel = learned_kernel(KernelCandidate("gaussian", 1.0, "affine", "relevance"), sample, outcome).kernel
    moved = kernel.transform(np.eye(200))
    assert np.abs(moved).sum(axis=1)[:2].min() > 3 * np.abs(moved).sum(axis=1)[2:].max()


def test_relevance_is_tried_of_many_features_only() -> None:
    candidate = KernelCandidate("gaussian", 1.0, "affine")
    for d, expected in ((LEAST_FEATURES - 1, False), (LEAST_FEATURES, True)):
        assert ("relevance" in {one.metric for one in with_metrics(candidate, np.zeros((5, d)))}) == expected
