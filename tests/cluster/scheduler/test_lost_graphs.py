"""A fit submits the tasks again that have not reached the scheduler."""

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from daskkern import KernelRegressor, Landmarks
from daskkern.cluster.scheduler import task_results
from daskkern.data.schema.schema import Scaling
from daskkern.events import BatchFinished, Event
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.recovery.lossy_client import LossyClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def _fit(client: Client) -> KernelRegressor:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 3)), rng.standard_normal(200)
    return KernelRegressor(
        "gaussian:1", solver="eigenpro", basis=Landmarks(20), max_epochs=2, random_state=0, client=client, device="cpu"
    ).fit(da.from_array(X, (100, 3)), da.from_array(y, 100))


def test_each_graph_of_a_fit_may_be_lost_once(cluster2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_results, "DOUBT_S", 0.3)
    with LossyClient(cluster2, set_as_default=False) as client:
        expected = _fit(client).predict(np.zeros((1, 3)))
        kinds = [key.partition("-")[0] for key in client.sent]
        assert kinds == ["daskkern_rows", "daskkern_prepare", "daskkern_prepared", "daskkern_eigenpro"]
        for number, kind in enumerate(kinds):
            client.sent.clear()
            client.loses, client.only = "update-graph", number
            np.testing.assert_array_equal(_fit(client).predict(np.zeros((1, 3))), expected)
            assert [key.partition("-")[0] for key in client.sent].count(kind) == 2


def test_a_graph_that_is_always_lost_ends_the_fit(cluster2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_results, "DOUBT_S", 0.1)
    with LossyClient(cluster2, set_as_default=False) as client:
        client.loses = "update-graph"
        with pytest.raises(task_results.LostTaskError, match="the scheduler does not know it; fit again"):
            _fit(client)
        assert len(client.sent) == 4


def test_a_set_up_whose_answer_is_lost_is_not_held_twice(cluster2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_results, "DOUBT_S", 0.3)
    rng, held = np.random.default_rng(0), list[int]()
    X, y = rng.standard_normal((2, 200, 3))
    source = ArraySource(X, y[:, :1], None, SourceInfo(200, 3, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(1.0), Squared(), Landmarks(20), EigenPro(), max_epochs=2, device="cpu")
    with LossyClient(cluster2, set_as_default=False) as client:

        def listen(event: Event) -> None:
            if isinstance(event, BatchFinished):
                held.append(sum(str(key).startswith("daskkern_prepare-") for key in client.who_has()))

        fit(source, settings, client=client, listener=listen)
        assert set(held) == {1}
        kinds = [key.partition("-")[0] for key in client.sent]
        client.loses, client.only = "update-graph", kinds.index("daskkern_prepared")
        client.sent.clear()
        held.clear()
        fit(source, settings, client=client, listener=listen)
        kinds = [key.partition("-")[0] for key in client.sent]
        assert kinds.count("daskkern_prepared") == 2
        assert kinds.count("daskkern_prepare") == 1
        assert set(held) == {1}
