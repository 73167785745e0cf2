"""Trials of kernels give what scikit-learn's kernel ridge regression gives, and find the best penalty of all."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from daskkern.arrays import HostArray
from daskkern.errors import DataError
from daskkern.estimators.array_inputs import array_source
from daskkern.feature_learning.held_out import row_losses
from daskkern.kernels import Gaussian
from daskkern.model_selection.candidates import KernelCandidate, first_candidates, neighbours, with_metrics
from daskkern.model_selection.ridge_trials import ALPHAS, learned_kernel, try_kernel
from daskkern.model_selection.samples import Fold, SearchSample, draw_sample
from tests.support.searches import class_source, number_source, usual

PLAIN = KernelCandidate("gaussian", 0.7, "affine")


def _drawn(n: int = 150, *, regression: bool = False) -> SearchSample:
    source = number_source(n) if regression else class_source(n)
    return draw_sample(source, usual(source), n, ("affine", "arcsinh"))


def _by_scikit_learn(sample: SearchSample, folds: list[Fold], alpha: float) -> HostArray:
    """Return the scores of held-out rows, fold after fold."""
    X, found = sample.scaled("affine"), []
    scale = PLAIN.resolved(X).length_scale
    assert isinstance(scale, float)
    for fold in folds:
        n, mean = len(fold.fitted), sample.y[fold.fitted].mean(axis=0)
        ridge = KernelRidge(alpha=alpha * n, kernel="rbf", gamma=1 / (2 * scale**2))
        ridge.fit(X[fold.fitted], sample.y[fold.fitted] - mean)
        found.append(ridge.predict(X[fold.held]) + mean)
    return np.concatenate(found)


def _by_rows(held: HostArray, folds: list[Fold]) -> HostArray:
    return held[np.argsort(np.concatenate([fold.held for fold in folds]))]


def test_the_penalty_and_its_losses_are_the_best_of_an_exhaustive_search() -> None:
    sample = _drawn(regression=True)
    folds = sample.folds(3, 0.25)
    at = np.concatenate([fold.held for fold in folds])
    errors = {alpha: (_by_scikit_learn(sample, folds, alpha) - sample.y[at]) ** 2 for alpha in ALPHAS}
    best = min(errors, key=lambda alpha: float(errors[alpha].mean()))
    found = try_kernel(PLAIN, sample, [folds])
    assert found.alpha == best
    np.testing.assert_allclose(found.held.losses, _by_rows(errors[best][:, 0], folds), rtol=1e-6)
    assert found.held.error == pytest.approx(float(errors[best].mean()))
    assert found.n_fitted == 100


def test_losses_of_classes_are_log_losses_at_the_best_temperature() -> None:
    sample = _drawn()
    folds = sample.folds(3, 0.25)
    found = try_kernel(PLAIN, sample, [folds])
    scores = _by_rows(_by_scikit_learn(sample, folds, found.alpha), folds)
    assert sample.labels is not None
    shares = np.full(150, 1 / 150)
    np.testing.assert_allclose(found.held.losses, row_losses(scores, sample.y, sample.labels, shares), rtol=1e-6)
    assert found.held.error == pytest.approx(np.mean(scores.argmax(axis=1) != sample.labels))


def test_repetitions_are_averaged_row_by_row() -> None:
    sample = _drawn()
    folds = [sample.folds(3, 0.25, repeat) for repeat in range(2)]
    both = try_kernel(PLAIN, sample, folds)
    single = [try_kernel(PLAIN, sample, [one]) for one in folds]
    assert {one.alpha for one in single} == {both.alpha}
    np.testing.assert_allclose(both.held.losses, np.mean([one.held.losses for one in single], axis=0))


def test_a_learned_metric_knows_nothing_of_held_out_rows() -> None:
    """Targets of held-out rows may be anything: scores, and therefore where labels are wrong, remain the same."""
    sample = _drawn(regression=True)
    fold = sample.folds(1, 0.25)
    y = sample.y.copy()
    y[fold[0].held] = 1e3
    other = SearchSample(
        sample.X, y, sample.raw_y, None, sample.info, sample.scalings, sample.units, sample.seed, "absolute_error"
    )
    learned = KernelCandidate("laplacian", 1.0, "affine", "diagonal")
    found = try_kernel(learned, other, [fold])
    again = try_kernel(learned, other, [fold])
    np.testing.assert_array_equal(found.held.losses, again.held.losses)
    assert (found.held.losses > 900).all()  # no prediction comes near


def test_metrics_find_the_features_that_matter() -> None:
    sample = _drawn(400)
    folds = [sample.folds(3, 0.25)]
    plain = try_kernel(PLAIN, sample, folds)
    candidate = KernelCandidate("gaussian", 0.7, "affine", "diagonal")
    learned = try_kernel(candidate, sample, folds)
    assert learned.held.is_better(plain.held)
    weights = learned_kernel(candidate, sample, learned).kernel.feature_weights
    assert weights is not None
    assert set(np.argsort(weights)[-2:]) == {1, 2}


def test_the_kernel_of_a_fit_has_the_length_scale_of_all_rows() -> None:
    sample = _drawn()
    kernel = learned_kernel(PLAIN, sample, try_kernel(PLAIN, sample, [sample.folds(3, 0.25)])).kernel
    median = Gaussian("median").resolve(sample.scaled("affine")).length_scale
    assert isinstance(median, float)
    assert kernel == Gaussian(0.7 * median)


def test_rows_that_are_all_equal_say_so() -> None:
    source = array_source(np.ones((60, 3)), np.arange(60) % 2, None, np.arange(2))
    sample = draw_sample(source, usual(source), 60, ("affine",))
    with pytest.raises(DataError, match="rows"):
        try_kernel(PLAIN, sample, [sample.folds(3, 0.25)])


def test_candidates_suit_the_rows() -> None:
    dense, wide = np.zeros((3, 5)), np.zeros((3, 1025))
    assert next(one.kernel for one in first_candidates(("affine",), dense)) == "laplacian_l1"
    assert "laplacian_l1" not in {one.kernel for one in first_candidates((None,), wide)}
    assert [one.times for one in neighbours(PLAIN)] == [0.35, 1.4]
    assert [one.metric for one in with_metrics(PLAIN, dense)] == ["diagonal", "full"]
    assert [one.metric for one in with_metrics(KernelCandidate("laplacian_l1", 1.0, None), dense)] == ["diagonal"]
    assert with_metrics(PLAIN, dense[:, :1]) == []
    names = [one.name for one in (*with_metrics(PLAIN, dense), *first_candidates((None, "affine"), dense))]
    assert len(set(names)) == len(names)
