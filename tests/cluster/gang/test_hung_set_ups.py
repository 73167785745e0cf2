"""A worker that hangs while a fit is set up holds up neither that fit nor those of other clients."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern import Landmarks
from daskkern.cluster.connect.membership import answers_of
from daskkern.cluster.gang.hanging_workers import removing_hung
from daskkern.cluster.gang.settings import GangSettings
from daskkern.events import Event, StageFinished
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, wait_until, worker_pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
SILENCE_S = 3.0


def settings(n_landmarks: int) -> FitSettings:
    basis = Landmarks(n_landmarks)
    return FitSettings(Gaussian(4.0), SquaredHinge(), basis, EigenPro(), 1e-5, max_epochs=1, device="cpu")


@pytest.fixture
def source(tmp_path: Path) -> StoreSource:
    X = np.random.default_rng(0).normal(size=(8000, 20)).astype("f4")
    np.savez(tmp_path / "rows.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr", chunk_rows=1000)
    return StoreSource.at(str(tmp_path / "rows.zarr"))


def _worker_of(prefix: str, dask_scheduler: Any = None) -> str:
    """Return the worker that runs a task whose key begins with `prefix`, "" for none."""
    tasks = dask_scheduler.tasks.values()
    return next((t.processing_on.address for t in tasks if t.processing_on and str(t.key).startswith(prefix)), "")


def running(client: Client, prefix: str) -> Callable[[], str]:
    return lambda: str(client.run_on_scheduler(_worker_of, prefix=prefix))


def removals(events: list[Event]) -> list[str]:
    return [e.detail for e in events if isinstance(e, StageFinished) and "hangs" in e.detail]


@pytest.mark.repeated
def test_a_worker_that_hangs_in_the_set_up_is_replaced(source: StoreSource) -> None:
    gang = GangSettings(silence_s=SILENCE_S, rejoin_s=20.0, idle_s=60.0)
    with local_cluster(3) as client, Client(client.scheduler.address, set_as_default=False) as other:
        pids = worker_pids(client)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(fit, source, settings(2000), client=client, gang=gang)
            wait_until(running(other, "daskkern_prepare"), timeout_s=60, what="the set-up")
            victim = running(other, "daskkern_prepare")() or next(iter(pids))
            os.kill(pids[victim], signal.SIGSTOP)
            second = fit(source, settings(50), client=other, gang=gang)  # which the first holds up while it runs
            assert first.result(timeout=60).model.n_outputs == second.model.n_outputs == 1


@pytest.mark.repeated
def test_a_worker_that_hangs_is_removed_while_a_thread_waits_for_it() -> None:
    events: list[Event] = []
    with local_cluster(2) as client:
        address, pid = next(iter(worker_pids(client).items()))
        os.kill(pid, signal.SIGSTOP)
        with removing_hung(client, SILENCE_S, events.append):
            assert answers_of(client, [address], 60.0, os.getpid)[address] != pid
    assert removals(events)[0].startswith(f"worker {address} (")
