"""Rows of this process that were sent to a cluster: sent again when the workers that have them are lost."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from distributed import Client

from daskkern import KernelRegressor
from daskkern.basis import Landmarks
from daskkern.events import BatchFinished, Event, FitResumed, FitStarted, WorkersLost
from daskkern.solvers import EigenPro
from tests.support.cluster import local_cluster, wait_until, worker_pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

N, D = 3000, 40


def _rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)).astype(np.float32)
    return X, np.sin(X[:, 0]) + X[:, 1]


def _arrays(client: Client) -> dict[str, Any]:
    X, y = _rows()
    return {"X": X, "y": y}


def _dask_arrays(client: Client) -> dict[str, Any]:
    X, y = (client.persist(da.from_array(part, chunks=(500, *part.shape[1:]))) for part in _rows())
    return {"X": X, "y": y}


def _held_table(client: Client) -> dict[str, Any]:
    X, y = _rows()
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(D)]).assign(y=y)
    return {"X": ds.dataset(pa.Table.from_pandas(frame)), "target": "y"}


class _Kill:
    """Kills workers that hold rows, two of three at most, once, in the third epoch."""

    def __init__(self, client: Client) -> None:
        self.client, self.events, self.killed = client, list[Event](), set[int]()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.epoch == 3 and not self.killed:
            pids = worker_pids(self.client)
            self.killed = {pids[address] for address in self.client.run_on_scheduler(_holders)}
            for pid in self.killed:
                threading.Thread(target=os.kill, args=(pid, signal.SIGKILL), daemon=True).start()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def _holders(dask_scheduler: Any) -> list[str]:
    rows = [task for key, task in dask_scheduler.tasks.items() if "rows" in str(key)]
    return sorted({worker.address for task in rows for worker in task.who_has or ()})[:2]


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("given", [_arrays, _dask_arrays, _held_table])
def test_a_fit_survives_the_workers_that_hold_its_rows(given: Callable[[Client], dict[str, Any]]) -> None:
    settings: dict[str, Any] = {
        "basis": Landmarks(60), "solver": EigenPro(), "kernel": "gaussian:8", "max_epochs": 12, "batch_size": 250,
        "alpha": 1e-6, "device": "cpu", "scale": None,
    }  # fmt: skip
    X, y = _rows()
    want = KernelRegressor(**settings).fit(X, y).predict(X)
    with local_cluster(3) as client:
        kill = _Kill(client)
        found = KernelRegressor(**settings, client=client, callbacks=[kill]).fit(**given(client)).predict(X)
        assert kill.killed
        assert kill.kinds(WorkersLost)
        assert len(kill.kinds(FitStarted)) + len(kill.kinds(FitResumed)) > 1
        wait_until(lambda: not client.run_on_scheduler(_holders), what="the end of what was sent")
    assert np.abs(found - want).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.long
def test_a_fit_that_goes_on_survives_the_worker_that_holds_its_earlier_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "basis": Landmarks(60), "solver": EigenPro(averaging=0.0), "kernel": "gaussian:8", "batch_size": 250,
        "device": "cpu", "scale": None,
    }  # fmt: skip
    X, y = _rows()
    want = KernelRegressor(**settings).partial_fit(X, y).partial_fit(X, y).predict(X)
    lost: list[str] = []
    submit = Client.submit

    def after_a_loss(self: Client, work: Any, *arguments: Any, **how: Any) -> Any:
        earlier = getattr(arguments[-1], "key", None) if arguments and "prepare-" in str(how.get("key")) else None
        if earlier is not None and not lost:
            (address,) = self.run_on_scheduler(_holders_of, str(earlier))
            lost.append(address)
            os.kill(worker_pids(self)[address], signal.SIGKILL)
            wait_until(lambda: address not in self.scheduler_info(n_workers=-1)["workers"])
        return submit(self, work, *arguments, **how)

    with local_cluster(2) as client:
        model = KernelRegressor(**settings, client=client).partial_fit(X, y)
        monkeypatch.setattr(Client, "submit", after_a_loss)
        found = model.partial_fit(X, y).predict(X)
    assert lost
    assert np.abs(found - want).max() <= 1e-4 * np.abs(want).max()


def _holders_of(key: str, dask_scheduler: Any) -> list[str]:
    return [worker.address for worker in dask_scheduler.tasks[key].who_has or ()]
