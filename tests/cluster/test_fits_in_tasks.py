"""Estimators that are fitted in tasks of a cluster, as searches of scikit-learn and dask-ml do."""

import joblib
import numpy as np
import pytest
from distributed import Client, worker_client
from sklearn.model_selection import GridSearchCV

from daskkern import KernelRegressor
from daskkern.estimators.parameters import active_client
from tests.support.cluster import local_cluster

pytestmark = pytest.mark.timeout(240)
X = np.random.default_rng(0).standard_normal((300, 4))
Y = np.sin(X[:, 0]) + X[:, 1]


def _model(n: int, client: object = None) -> KernelRegressor:
    return KernelRegressor(kernel="rbf", basis=n, solver="eigenpro", max_epochs=2, client=client, device="cpu")


def _fitted(n: int) -> np.ndarray:
    return np.asarray(_model(n).fit(X, Y).predict(X))


def test_more_fits_than_workers_end_with_the_models_of_one_process(client2: Client) -> None:
    sizes = [40, 50, 60, 70]
    fits = client2.map(_fitted, sizes, pure=False)
    for n, one in zip(sizes, fits, strict=True):
        np.testing.assert_array_equal(one.result(timeout=120), _fitted(n))


def test_a_search_of_scikit_learn_runs_on_a_cluster() -> None:
    grid = {"kernel__length_scale": [0.5, 2.0], "basis__n": [20, 60]}
    alone = GridSearchCV(_model(20), grid, cv=3).fit(X, Y)
    with local_cluster(2) as client, joblib.parallel_config(backend="dask", client=client):
        found = GridSearchCV(_model(20), grid, cv=3).fit(X, Y)
    assert found.best_params_ == alone.best_params_
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-6)


def _clients() -> tuple[bool, bool]:
    before = active_client(None) is not None
    with worker_client() as client:
        return before, active_client(None) is client


def test_a_task_has_the_cluster_when_it_has_seceded(client2: Client) -> None:
    assert client2.submit(_clients, pure=False).result(timeout=60) == (False, True)
    assert client2.submit(_clients, pure=False).result(timeout=60) == (False, True)  # the first has left a client
