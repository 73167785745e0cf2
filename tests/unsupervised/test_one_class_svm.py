"""The one-class SVM, against scikit-learn's."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM as SklearnOneClassSVM

from daskkern import AllRows, Landmarks, OneClassSVM, RandomFeatures
from daskkern.kernels import Gaussian
from daskkern.unsupervised import margin


def _rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which a tenth is spread more widely."""
    rng = np.random.default_rng(seed)
    novel = np.arange(n) < n // 10
    X = rng.standard_normal((n, 3))
    X[novel] = rng.uniform(-6, 6, (n // 10, 3))
    return X, novel


@pytest.mark.one_in(3)
@pytest.mark.parametrize("nu", [0.02, 0.1, 0.5, 0.9])
def test_scores_are_scikit_learns_but_for_a_factor(nu: float) -> None:
    X, _ = _rows(400)
    new, _ = _rows(200, 1)
    theirs = SklearnOneClassSVM(nu=nu, gamma=1 / 8, tol=1e-6).fit(X)
    ours = OneClassSVM(nu, "gaussian:2").fit(X)
    size = nu * len(X)
    np.testing.assert_allclose(ours.score_samples(new) * size, theirs.score_samples(new), atol=1e-3 * size)
    assert ours.offset_ * size == pytest.approx(float(theirs.offset_[0]), rel=0.02)
    assert nu - 1 / 400 <= (ours.predict(X) == -1).mean() <= nu
    np.testing.assert_allclose(ours.decision_function(new), ours.score_samples(new) - ours.offset_, atol=1e-12)
    np.testing.assert_array_equal(ours.fit_predict(X), ours.predict(X))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("nu", [0.1, 0.01, 0.001])
def test_few_outliers_among_many_rows_are_those_of_scikit_learn(nu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 1500
    X, _ = _rows(n)
    new, _ = _rows(500, 1)
    theirs = SklearnOneClassSVM(nu=nu, gamma=1 / 8, tol=1e-6).fit(X)
    monkeypatch.setattr(margin, "SAMPLE", 700)
    ours = OneClassSVM(nu, "gaussian:2", basis=AllRows(), scale=None).fit(X)
    assert nu - 1 / n <= (ours.predict(X) == -1).mean() <= nu
    assert ours.offset_ == pytest.approx(float(theirs.offset_[0]) / (nu * n), rel=1e-3)
    for rows in (X, new):
        scores, expected = ours.score_samples(rows), theirs.score_samples(rows)
        np.testing.assert_allclose(scores * nu * n, expected, rtol=0.01)
        assert spearmanr(scores, expected).statistic > 0.999
    assert (ours.predict(new) == theirs.predict(new)).mean() > 0.99
    assert ours.n_iter_ < 10


def test_a_single_pass_ends_with_a_hyperplane_that_flags_the_share_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = _rows(1500)
    monkeypatch.setattr(margin, "SAMPLE", 700)
    ours = OneClassSVM(0.05, "gaussian:2", basis=Landmarks(100), max_iter=1).fit(X)
    assert ours.n_iter_ == 1
    assert 0.05 - 1 / 1500 <= (ours.predict(X) == -1).mean() <= 0.05


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("nu", [0.1, 0.3])
def test_many_rows_are_solved_by_passes_over_all_of_them(nu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = _rows(2000)
    new, novel = _rows(2000, 1)
    theirs = SklearnOneClassSVM(nu=nu, gamma=1 / 8).fit(X)
    monkeypatch.setattr(margin, "SAMPLE", 300)
    ours = OneClassSVM(nu, "gaussian:2", basis=Landmarks(300, "rp_cholesky")).fit(X)
    assert ours.n_iter_ > 1
    assert nu - 0.005 <= (ours.predict(X) == -1).mean() <= nu
    scores, expected = ours.score_samples(new), theirs.score_samples(new)
    assert roc_auc_score(novel, -scores) > roc_auc_score(novel, -expected) - 0.01
    assert ours.offset_ == pytest.approx(float(theirs.offset_[0]) / (nu * 2000), rel=0.01)
    assert spearmanr(scores, expected).statistic > 0.95
    sample = OneClassSVM(nu, "gaussian:2", basis=Landmarks(300, "rp_cholesky")).fit(X[-300:])
    assert _objective(ours, X, nu) < _objective(sample, X, nu)


def _objective(fitted: OneClassSVM, X: np.ndarray, nu: float) -> float:
    """Return ``|w|^2 / 2 - rho + mean(max(0, rho - f)) / nu``, with the best rho of the scores."""
    a, Z = fitted.model_.coef[:, 0], fitted.model_.points
    scores = fitted.score_samples(X)
    rho = np.quantile(scores, nu)
    return float(a @ fitted.kernel_.block(Z, Z) @ a / 2 - rho + np.maximum(rho - scores, 0).mean() / nu)


def test_passes_come_close_to_the_exact_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = _rows(1500)
    exact = OneClassSVM(0.2, "gaussian:2", basis=Landmarks(100)).fit(X)
    monkeypatch.setattr(margin, "SAMPLE", 200)
    passes = OneClassSVM(0.2, "gaussian:2", basis=Landmarks(100)).fit(X)
    least = _objective(exact, X, 0.2)
    assert least <= _objective(passes, X, 0.2) + 1e-6 < least + 0.01 * abs(least)


@pytest.mark.parametrize("sample", [4000, 100], ids=["exact", "passes"])
def test_weights_mean_repeated_rows(sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = _rows(200)
    weight = np.random.default_rng(0).integers(0, 3, 200)
    exact = OneClassSVM(0.2, "gaussian:2").fit(np.repeat(X, weight, axis=0))
    monkeypatch.setattr(margin, "SAMPLE", sample)
    weighted = OneClassSVM(0.2, "gaussian:2").fit(X, sample_weight=weight)
    np.testing.assert_allclose(weighted.score_samples(X), exact.score_samples(X), rtol=0.03 if sample == 100 else 1e-3)
    outliers = weighted.predict(X) == -1
    assert weight[outliers].sum() <= 0.2 * weight.sum()


def test_random_features_are_a_basis() -> None:
    X, novel = _rows(1000)
    ours = OneClassSVM(0.3, "gaussian:2", basis=RandomFeatures(200)).fit(X)
    assert roc_auc_score(novel, -ours.score_samples(X)) > 0.85


@pytest.mark.parametrize("basis", ["auto", Landmarks(50)])
def test_nu_of_one_counts_every_row_the_same(basis: Any) -> None:
    X = np.random.default_rng(0).standard_normal((120, 3))
    found = OneClassSVM(1.0, "gaussian:1", basis=basis, scale=None).fit(X).score_samples(X)
    close = OneClassSVM(0.9999, "gaussian:1", basis=basis, scale=None).fit(X).score_samples(X)
    np.testing.assert_allclose(found, close, rtol=1e-3)
    if basis == "auto":
        np.testing.assert_allclose(found, Gaussian(1.0).block(X, X).mean(axis=1), rtol=1e-5)
