"""The tasks of a fit run on its workers only: on none without daskkern, none of another fit, none that is paused."""

import re
from contextlib import ExitStack
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from distributed import Client
from distributed.core import Status

from daskkern import KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.lease import admitted
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.events import Event, StageFinished, silent
from daskkern.solvers import EigenPro
from daskkern.training.run.fit import fit
from tests.support.children.bare_workers import bare_worker, record_tasks, recorded_tasks
from tests.support.cluster import one_process_cluster, wait_until
from tests.support.fits import toy_settings, toy_source

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def fitted(client: Client, X: HostArray | da.Array) -> list[Event]:
    """Fit a model whose set-up has many tasks, and return the events."""
    events = list[Event]()
    y = np.arange(X.shape[0]) % 7.0
    model = KernelRegressor(
        kernel="gaussian:2", basis=Landmarks(60, "rp_cholesky"), max_epochs=1, client=client, callbacks=[events.append]
    )
    model.fit(X, y if isinstance(X, np.ndarray) else da.from_array(y, chunks=X.chunks[0]))
    return events


def rows() -> HostArray:
    return np.random.default_rng(0).standard_normal((400, 3))


def lazy() -> da.Array:
    return da.from_array(rows(), chunks=(50, 3)) + 1.0


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("joins", ["before the first fit", "after the first fit"])
def test_a_worker_without_daskkern_is_left_out(joins: str, tmp_path: Path) -> None:
    with one_process_cluster(2) as client, ExitStack() as opened:
        good = set(live_workers(client))
        if joins == "after the first fit":
            fitted(client, rows())
        bare = opened.enter_context(bare_worker(client, tmp_path))
        record_tasks(client)
        for X in (rows(), lazy()):
            told = [e.detail for e in fitted(client, X) if isinstance(e, StageFinished) and e.stage == "workers"]
            assert len(told) == 1
            assert re.match(
                rf"worker {bare} cannot import daskkern .*; install daskkern==\S+ .*; it is left out$", told[0]
            )
        ran = recorded_tasks(client)
        assert len(ran) > 20
        assert {worker for _, worker in ran} <= good
        assert client.submit(sum, (1, 2), workers=[bare]).result() == 3  # it goes on with the work of others


@pytest.mark.long
def test_the_setup_runs_on_no_worker_that_another_fit_uses_or_that_is_paused() -> None:
    with one_process_cluster(3) as client:
        paused = client.cluster.workers[0].address
        client.cluster.workers[0].status = Status.paused
        wait_until(lambda: live_workers(client)[paused]["status"] == "paused", what="the pause")
        record_tasks(client)
        one = GangSettings(n_ranks=1)
        with admitted(client, new_metadata("other"), one, silent) as lease:
            fit(toy_source(), toy_settings(Landmarks(40), EigenPro()), client=client, gang=one)
            ran = {worker for _, worker in recorded_tasks(client)}
        assert ran == live_workers(client).keys() - {paused, *lease.addresses}
