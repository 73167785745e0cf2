"""The one-class SVM of many rows as centres, from kernel rows in memory, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.svm import OneClassSVM as SklearnOneClassSVM

from daskkern import AllRows, OneClassSVM
from daskkern.unsupervised import one_class_svm


@pytest.mark.parametrize("nu", [0.05, 0.4])
def test_decisions_are_scikit_learns_but_for_a_factor(nu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_class_svm, "SAMPLE", 300)
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((700, 3)), rng.uniform(0.5, 2, 700)
    ours = OneClassSVM(nu, "gaussian:2", tol=1e-7, basis=AllRows(), scale=None).fit(X, sample_weight=weight)
    theirs = SklearnOneClassSVM(nu=nu, gamma=1 / 8, tol=1e-8).fit(X, sample_weight=weight / weight.mean())
    size = nu * len(X)
    np.testing.assert_allclose(ours.decision_function(X) * size, theirs.decision_function(X), atol=1e-4 * size)
    assert ours.model_.points.shape[0] == len(theirs.support_)
    np.testing.assert_allclose(ours.model_.coef.sum(), 1, atol=1e-9)
    assert weight[ours.predict(X) == -1].sum() <= nu * weight.sum()
    assert 0 <= ours.model_.provenance["duality_gap"] <= 1e-7
