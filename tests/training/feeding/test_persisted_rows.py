"""Collections that are persisted on the estimator's cluster, which is not the active one of this process."""

from collections.abc import Iterator
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

from daskkern import AutoKernelClassifier, KernelClassifier, KernelKMeans, KernelRegressor, Landmarks
from tests.support.cluster import local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=["no active client", "another active client"])
def client(request: Any) -> Iterator[Client]:
    """The client of a cluster that is not the active one."""
    with local_cluster(1) as mine:
        if request.param == "no active client":
            yield mine
            return
        with local_cluster(1) as other, Client(other.scheduler.address):
            yield mine


@pytest.fixture
def rows(client: Client) -> tuple[Any, Any, Any]:
    X = np.random.default_rng(0).standard_normal((600, 3))
    y = (X[:, 0] > 0).astype(int)
    return X, client.persist(da.from_array(X, chunks=(200, 3))), client.persist(da.from_array(y, chunks=200))


def _settings(client: Client) -> dict[str, Any]:
    return {"kernel": "gaussian:2", "basis": Landmarks(50), "client": client, "calibrate": False, "max_epochs": 3}


def test_labels_are_fitted_and_scored(client: Client, rows: tuple[Any, Any, Any]) -> None:
    X, lazy, y = rows
    model = KernelClassifier(**_settings(client)).fit(lazy, y, validation=(lazy, y))
    assert model.score(lazy, y) == model.score(X, np.asarray(X[:, 0] > 0, int)) > 0.9
    assert model.partial_fit(lazy, y).score(lazy, y) > 0.9


def test_targets_are_fitted_and_scored(client: Client, rows: tuple[Any, Any, Any]) -> None:
    X, lazy, _ = rows
    model = KernelRegressor(**_settings(client)).fit(lazy, lazy[:, 1])
    assert model.score(lazy, lazy[:, 1]) == pytest.approx(model.score(X, X[:, 1]))


def test_frames_are_encoded(client: Client, rows: tuple[Any, Any, Any]) -> None:
    X, _, _ = rows
    frame = pd.DataFrame(X, columns=list("abc")).assign(k=np.where(X[:, 1] > 0, "x", "y"))
    lazy = client.persist(dd.from_pandas(frame, npartitions=2))
    y = client.persist(dd.from_pandas(frame["a"] > 0, npartitions=2))
    model = KernelClassifier(**_settings(client)).fit(lazy, y)
    assert model.score(frame, frame["a"] > 0) > 0.9
    predicted = client.compute(model.predict(lazy)).result()
    np.testing.assert_array_equal(predicted, model.predict(frame))


@pytest.mark.one_in(2)
def test_searches_and_clusterings(client: Client, rows: tuple[Any, Any, Any]) -> None:
    X, lazy, y = rows
    found = AutoKernelClassifier(max_seconds=10, client=client).fit(lazy, y)
    assert found.score(lazy, y) == found.score(X, np.asarray(X[:, 0] > 0, int)) > 0.9
    assert KernelKMeans(2, client=client).fit(lazy).labels_.shape == (600,)
