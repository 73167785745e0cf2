"""The one-class SVM of many rows as centres, from kernel rows in memory, against scikit-learn's."""

import signal
import threading

import numpy as np
import pytest
from distributed import Client
from sklearn.svm import OneClassSVM as SklearnOneClassSVM

from daskkern import AllRows, OneClassSVM
from daskkern.unsupervised import one_class_svm
from tests.support.cluster import wait_until


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


@pytest.mark.cluster
def test_an_interrupt_ends_the_task_on_a_worker(client2: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_class_svm, "SAMPLE", 300)
    X = np.random.default_rng(0).standard_normal((6000, 3))
    endless = OneClassSVM(0.5, "gaussian:0.2", tol=1e-30, basis=AllRows(), scale=None, client=client2)

    def running() -> bool:
        active = client2.run(lambda dask_worker: [str(key) for key in dask_worker.active_threads.values()])
        return any("unsupervised_setup" in key for keys in active.values() for key in keys)

    def press() -> None:
        wait_until(running, what="the task")
        signal.raise_signal(signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        endless.fit(X)
    presser.join()
    wait_until(lambda: not running(), what="the end of the task")
