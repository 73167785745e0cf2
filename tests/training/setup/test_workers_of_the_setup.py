"""The tasks of a fit run on its workers only: none without this daskkern, none of another fit, none that is paused."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
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
from daskkern.errors import ClusterError
from daskkern.events import BatchFinished, Event, StageFinished, WorkersJoined, WorkersLost, silent
from daskkern.solvers import EigenPro
from daskkern.training.jobs.detached import submit
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from tests.support.children.bare_workers import bare_worker, other_worker, record_tasks, recorded_tasks
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


_OTHERS = {
    "of another version": ({"version": "0.0.7"}, r"has daskkern 0\.0\.7 and this process has \S+; install"),
    "of other messages": ({"protocol": 3}, r"has loaded another daskkern .* version 3 of the messages .*; restart"),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", _OTHERS)
def test_a_worker_with_another_daskkern_is_left_out(kind: str, tmp_path: Path) -> None:
    differs, sentence = _OTHERS[kind]
    with one_process_cluster(2) as client, other_worker(client, tmp_path, **differs) as other:
        good = live_workers(client).keys() - {other}
        record_tasks(client)
        for X in (rows(), lazy()):
            told = [e.detail for e in fitted(client, X) if isinstance(e, StageFinished) and e.stage == "workers"]
            assert len(told) == 1
            assert re.match(rf"worker {other} {sentence} .*; it is left out$", told[0])
        ran = recorded_tasks(client)
        assert len(ran) > 20
        assert {worker for _, worker in ran} <= good
        assert client.submit(sum, (1, 2), workers=[other]).result() == 3  # it goes on with the work of others
        job = FitJob(toy_source(), toy_settings(Landmarks(40), EigenPro()))
        assert submit(job, client, str(tmp_path / "model.zarr")).result(timeout_s=120).coef.shape[0] == 40
        assert {worker for _, worker in recorded_tasks(client)} <= {*good, other}
        for wanted in (GangSettings(workers=(other,)), GangSettings(n_ranks=3)):
            with pytest.raises(ClusterError, match=rf"worker {other} {sentence}"):
                fit(toy_source(), toy_settings(Landmarks(40), EigenPro()), client=client, gang=wanted)


@pytest.mark.long
@pytest.mark.parametrize("kind", _OTHERS)
def test_a_worker_with_another_daskkern_joins_while_a_fit_runs(kind: str, tmp_path: Path) -> None:
    differs, _ = _OTHERS[kind]
    events, settings = list[Event](), replace(toy_settings(Landmarks(40), EigenPro()), max_epochs=10**6, max_seconds=20)
    with one_process_cluster(1) as client, ThreadPoolExecutor(1) as pool:
        fitted = pool.submit(fit, toy_source(), settings, client=client, listener=events.append)
        wait_until(lambda: any(isinstance(event, BatchFinished) for event in events), what="a batch")
        with other_worker(client, tmp_path, **differs):
            assert fitted.result(timeout=120).finished.reason == "max_seconds"
    assert not [event for event in events if isinstance(event, WorkersLost | WorkersJoined)]


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
