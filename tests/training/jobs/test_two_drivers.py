"""Two drivers of one detached fit at once: the one that Dask has given up changes nothing when it goes on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin
from sklearn.datasets import load_digits

import daskkern
from daskkern import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.scheduler.client import install_fits
from daskkern.cluster.scheduler.plugin import question
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpoint import is_checkpoint
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.detached import Order, drive, submit
from daskkern.training.jobs.handle import FitHandle
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_held

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

QUICK = GangSettings(silence_s=3.0, rejoin_s=4.0, idle_s=20.0)
SETTINGS = FitSettings(
    Gaussian(1.5), SquaredHinge(), Landmarks(200), EigenPro(window=3), max_epochs=40, batch_size=32, device="cpu"
)
OFTEN = CheckpointPolicy(commit_s=0.05, checkpoint_s=0.05)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("drivers")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


@pytest.fixture(scope="module")
def scores(source: StoreSource) -> np.ndarray:
    """The scores of an undisturbed fit."""
    return fit(source, SETTINGS).model.scores(load_digits(return_X_y=True)[0])


def assert_good(handle: FitHandle, scores: np.ndarray) -> None:
    got = handle.result(timeout_s=90).scores(load_digits(return_X_y=True)[0])
    assert handle.status().state == "finished"
    assert np.abs(scores - got).max() <= 1e-4 * np.abs(scores).max()
    assert not Path(f"{handle.out}.checkpoint").exists()


def order_of(handle: FitHandle, job: FitJob) -> Order:
    """Return the order that the driver of a fit got."""
    policy = replace(job.policy, checkpoint=f"{handle.out}.checkpoint", resume=True, run=handle.fit)
    return Order(handle.status().metadata, handle.out, replace(job, policy=policy), QUICK, False)


def driver_of(client: Client, fit: str) -> str:
    """Return the address of the worker that runs the driver of a fit, "" for none."""

    def where(dask_scheduler: Any) -> str:
        task = dask_scheduler.tasks.get(f"daskkern_fit-{fit}")
        return "" if task is None or task.processing_on is None else str(task.processing_on.address)

    return str(client.run_on_scheduler(where))


def give_up(client: Client, address: str) -> None:
    """Let the scheduler take a worker for lost."""

    async def remove(dask_scheduler: Any) -> None:
        await dask_scheduler.remove_worker(address, stimulus_id="test")

    client.run_on_scheduler(remove)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.long
def test_a_second_driver_that_comes_late_ends_without_a_trace(
    source: StoreSource, scores: np.ndarray, client2: Client, tmp_path: Path
) -> None:
    job = FitJob(source, SETTINGS, policy=OFTEN)
    handle = submit(job, client2, str(tmp_path / "m.zarr"), gang=QUICK)
    wait_until(lambda: handle.status().epoch >= 2, what="the second epoch")
    late = client2.submit(drive, order_of(handle, job), key="late-driver", pure=False, retries=0)
    late.result(timeout=30)
    assert handle.status().active
    assert_good(handle, scores)
    late.release()
    assert_nothing_held(client2)


@pytest.mark.long
def test_a_late_driver_of_an_earlier_fit_spares_the_checkpoint_of_the_next(
    source: StoreSource, client2: Client, tmp_path: Path
) -> None:
    out = str(tmp_path / "m.zarr")
    job = FitJob(source, replace(SETTINGS, max_epochs=1), policy=replace(OFTEN, overwrite=True))
    first = submit(job, client2, out, gang=QUICK)
    first.result(timeout_s=60)
    order = order_of(first, job)
    second = submit(replace(job, settings=replace(SETTINGS, max_epochs=3000)), client2, out, gang=QUICK)
    wait_until(lambda: second.status().epoch >= 2 and is_checkpoint(f"{out}.checkpoint"), what="a checkpoint")
    mark = Path(f"{out}.checkpoint", "driver-000001")
    assert mark.exists()
    late = client2.submit(drive, order, key="late-driver", pure=False, retries=0)
    late.result(timeout=30)
    assert mark.exists(), "the checkpoint of the other fit was removed"
    assert first.status().state == "finished"
    second.cancel()
    assert second.watch(timeout_s=60).state == "interrupted"
    late.release()


class _StopsDrivers(SchedulerPlugin):
    """Stops the process of a worker in the moment in which it gets the driver of a fit, once."""

    name = "stops-drivers"

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids, self.address = pids, ""

    def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if str(key).startswith("daskkern_fit-") and finish == "processing" and not self.address:
            self.address = str(self.scheduler.tasks[key].processing_on.address)
            os.kill(self.pids[self.address], signal.SIGSTOP)


@pytest.mark.long
def test_a_driver_that_begins_after_it_was_given_up_leaves_the_fit_to_the_next(
    source: StoreSource, scores: np.ndarray, tmp_path: Path
) -> None:
    with local_cluster(3) as client:
        pids = worker_pids(client)
        client.register_plugin(_StopsDrivers(pids))
        handle = submit(FitJob(source, SETTINGS, policy=OFTEN), client, str(tmp_path / "m.zarr"), gang=QUICK)
        first = driver_of(client, handle.fit)
        with stopped(pids[first]):
            give_up(client, first)
            wait_until(lambda: handle.status().epoch >= 2, what="the second epoch")
            assert driver_of(client, handle.fit) != first
        assert_good(handle, scores)
        assert_nothing_held(client)


@pytest.mark.long
@pytest.mark.parametrize("epoch", [1, 20])
def test_a_driver_that_is_given_up_in_mid_fit_and_wakes_ends(
    epoch: int, source: StoreSource, scores: np.ndarray, tmp_path: Path
) -> None:
    with local_cluster(3) as client:
        pids = worker_pids(client)
        handle = submit(FitJob(source, SETTINGS, policy=OFTEN), client, str(tmp_path / "m.zarr"), gang=QUICK)
        wait_until(lambda: handle.status().epoch >= epoch, what="an epoch")
        first = driver_of(client, handle.fit)
        with stopped(pids[first]):
            give_up(client, first)
            wait_until(lambda: driver_of(client, handle.fit) not in ("", first), what="another driver")
            time.sleep(1.0)
        assert_good(handle, scores)
        assert_nothing_held(client)


class _StopsAnsweredDrivers(SchedulerPlugin):
    """Stops the process of the first driver when it has been answered that it holds its fit: it has yet to claim it."""

    name = "stops-answered-drivers"

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids, self.address = pids, ""

    def start(self, scheduler: Any) -> None:
        verb = question("drive")
        answer = scheduler.handlers[verb]

        def stopping(task: str, **fields: Any) -> Any:
            found = answer(task=task, **fields)
            if not self.address:
                self.address = str(scheduler.tasks[task].processing_on.address)
                os.kill(self.pids[self.address], signal.SIGSTOP)
            return found

        scheduler.handlers[verb] = stopping


@contextmanager
def _stopped_before_its_claim(client: Client, job: FitJob, out: Path) -> Iterator[tuple[FitHandle, int]]:
    """Yield a fit whose first driver is stopped before its claim, and was given up, and the process of that driver."""
    install_fits(client)
    pids = worker_pids(client)
    plugin = _StopsAnsweredDrivers(pids)
    client.cluster.scheduler.add_plugin(plugin)
    plugin.start(client.cluster.scheduler)
    handle = submit(job, client, str(out), gang=QUICK)
    wait_until(lambda: bool(plugin.address), what="the first driver")
    pid = pids[plugin.address]
    try:
        give_up(client, plugin.address)
        yield handle, pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _claims(out: Path) -> set[str]:
    return {path.name for path in Path(f"{out}.checkpoint").glob("driver-*")}


@pytest.mark.long
def test_a_driver_that_wakes_before_its_claim_when_the_fit_has_ended_changes_nothing(
    source: StoreSource, scores: np.ndarray, tmp_path: Path
) -> None:
    out = tmp_path / "m.zarr"
    with (
        local_cluster(3) as client,
        _stopped_before_its_claim(client, FitJob(source, SETTINGS, policy=OFTEN), out) as (handle, pid),
    ):
        assert_good(handle, scores)
        before = (out / "zarr.json").stat()
        os.kill(pid, signal.SIGCONT)
        time.sleep(5.0)
        assert (out / "zarr.json").stat() == before
        assert_good(handle, scores)


@pytest.mark.long
def test_the_claim_of_a_driver_that_was_given_up_does_not_cost_the_model(
    source: StoreSource, scores: np.ndarray, tmp_path: Path
) -> None:
    """The first driver wakes, claims the checkpoint after the second one, and sleeps again before it is told."""
    out = tmp_path / "m.zarr"
    job = FitJob(source, replace(SETTINGS, max_epochs=100), policy=OFTEN)
    with local_cluster(3) as client, _stopped_before_its_claim(client, job, out) as (handle, pid):
        wait_until(lambda: handle.status().epoch >= 2, what="the second epoch")
        known = _claims(out)
        os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + 20
        while _claims(out) <= known and time.monotonic() < until:
            time.sleep(0.002)
        with stopped(pid):
            handle.result(timeout_s=120)
            assert handle.status().state == "finished"
            assert not Path(f"{out}.checkpoint").exists()
