"""Fits that go on without the process that submitted them, through the loss of any worker, to the same model."""

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client
from sklearn.datasets import load_digits

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.errors import ClusterError, DataError, FitCancelledError, SpecError, StoreError
from daskkern.events import (
    BatchFinished,
    EpochFinished,
    Event,
    FitFinished,
    FitPreempted,
    FitResumed,
    WorkersLost,
)
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import FitHandle, attach, list_fits
from daskkern.training.jobs.logs import read_logs
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_held

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

QUICK = GangSettings(silence_s=3.0, rejoin_s=8.0, idle_s=20.0)
SETTINGS = FitSettings(
    Gaussian(1.5), SquaredHinge(), Landmarks(200), EigenPro(window=3), max_epochs=4, batch_size=32, device="cpu"
)
LONG = replace(SETTINGS, max_epochs=3000)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> StoreSource:
    folder = tmp_path_factory.mktemp("detached")
    X, y = load_digits(return_X_y=True)
    np.savez(folder / "digits.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=200, scale="minmax")
    return StoreSource.at(str(folder / "digits.zarr"))


@pytest.fixture(scope="module")
def expected(source: StoreSource, client2: Client) -> np.ndarray:
    return fit(source, SETTINGS, client=client2).model.coef


def limit_files(client: Client, n_bytes: int | None) -> None:
    """Let workers write files of at most `n_bytes`, as on a disk that is full; None: of any size."""
    for pid in worker_pids(client).values():
        most = resource.RLIM_INFINITY
        psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, (most if n_bytes is None else n_bytes, most))


def wait_for_batches(handle: FitHandle, epoch: int = 2) -> None:
    wait_until(lambda: handle.status().epoch >= epoch, timeout_s=60, what=f"epoch {epoch}")


@pytest.mark.long
def test_a_model_that_meets_a_full_disk_is_written_when_there_is_room(
    source: StoreSource, expected: np.ndarray, tmp_path: Path
) -> None:
    with local_cluster(2) as client:
        limit_files(client, 2000)
        handles = [submit(FitJob(source, SETTINGS), client, str(tmp_path / f"{k}.zarr"), name=str(k)) for k in (0, 1)]

        def is_full(handle: FitHandle) -> bool:
            return any("no space to write the model" in line.text for line in read_logs(client, handle.fit).lines)

        wait_until(lambda: all(map(is_full, handles)), 60, "a full disk")
        handles[1].cancel(abort=True)
        with pytest.raises(FitCancelledError, match="cancelled before there was a model"):
            handles[1].result(timeout_s=60)
        limit_files(client, None)
        np.testing.assert_allclose(handles[0].result(timeout_s=60).coef, expected, rtol=1e-4, atol=1e-6)
        assert not (tmp_path / "1.zarr").exists()


@pytest.mark.long
def test_the_model_is_that_of_a_fit_that_was_waited_for(
    source: StoreSource, expected: np.ndarray, client2: Client, tmp_path: Path
) -> None:
    handle = submit(FitJob(source, SETTINGS), client2, str(tmp_path / "m.zarr"), name="alone")
    events: list[Event] = []
    status = handle.watch(events.append, timeout_s=60)
    assert (status.state, status.epoch, status.metadata.name) == ("finished", 4, "alone")
    np.testing.assert_array_equal(handle.result().coef, expected)
    assert [event.epoch for event in events if isinstance(event, EpochFinished)] == list(range(1, 5))
    assert any(isinstance(event, BatchFinished) for event in events)
    assert isinstance(events[-1], FitFinished) or isinstance(events[-2], FitFinished)
    assert not (tmp_path / "m.zarr.checkpoint").exists()
    assert status.workers == ()
    assert_nothing_held(client2)


@pytest.mark.long
def test_a_batch_is_told_once(source: StoreSource, tmp_path: Path) -> None:
    seen: list[Event] = []
    with local_cluster(1) as client:
        handle = submit(FitJob(source, LONG), client, str(tmp_path / "m.zarr"), gang=replace(QUICK, silence_s=30.0))
        wait_for_batches(handle, 1)
        (pid,) = worker_pids(client).values()
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TimeoutError):
                handle.watch(seen.append, timeout_s=2.0)
        finally:
            os.kill(pid, signal.SIGCONT)
        handle.cancel(abort=True)
        assert handle.watch(timeout_s=60).state == "cancelled"
    assert sum(isinstance(event, BatchFinished) for event in seen) in (1, 2)  # one may have been on its way


@pytest.mark.repeated
def test_a_preempted_fit_goes_on_by_itself_to_the_same_model(
    source: StoreSource, expected: np.ndarray, client2: Client, tmp_path: Path
) -> None:
    seen: list[Event] = []
    handle = submit(FitJob(source, LONG), client2, str(tmp_path / "long.zarr"), gang=QUICK, name="long")
    wait_for_batches(handle)
    urgent = submit(
        FitJob(source, SETTINGS), client2, str(tmp_path / "m.zarr"), gang=replace(QUICK, priority=5), name="urgent"
    )
    wait_until(lambda: handle.status().state == "preempted", what="a preemption")
    at = handle.status().epoch
    np.testing.assert_array_equal(urgent.result(timeout_s=90).coef, expected)
    wait_until(lambda: handle.status().state == "running", what="a fit that goes on")
    wait_for_batches(handle, at + 1)
    handle.cancel()
    status = handle.watch(seen.append, timeout_s=90)
    assert (status.state, status.preempted, status.metadata.priority) == ("interrupted", 1, 0)
    assert urgent.status().metadata.priority == 5
    assert not any(isinstance(event, WorkersLost) for event in seen)
    assert sum(isinstance(event, FitPreempted) for event in seen) == 1
    assert_nothing_held(client2)


@pytest.mark.repeated
def test_a_preempted_fit_has_the_bits_of_an_undisturbed_one(
    source: StoreSource, client2: Client, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, max_epochs=40)
    undisturbed = fit(source, settings, client=client2).model.coef
    handle = submit(FitJob(source, settings), client2, str(tmp_path / "m.zarr"), gang=QUICK)
    wait_for_batches(handle)
    fit(source, SETTINGS, client=client2, gang=replace(QUICK, priority=1))
    assert handle.watch(timeout_s=90).preempted == 1
    np.testing.assert_array_equal(handle.result().coef, undisturbed)
    assert_nothing_held(client2)


_SUBMIT = """
import sys
from distributed import Client
import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.kernels import Gaussian
from daskkern.solvers import EigenPro
if __name__ == "__main__":
    with Client({address!r}) as client:
        model = KernelClassifier(Gaussian(1.5), basis=Landmarks(200), solver=EigenPro(window=3), max_epochs=4,
                                 alpha=0.0, fit_intercept=False, batch_size=32, device="cpu", client=client)
        print(model.fit({store!r}, detach=True, out={out!r}).fit)
"""


@pytest.mark.repeated
def test_the_client_may_leave(
    source: StoreSource, expected: np.ndarray, client2: Client, cluster2: str, tmp_path: Path
) -> None:
    script, out = tmp_path / "submit.py", str(tmp_path / "m.zarr")
    script.write_text(_SUBMIT.format(address=cluster2, store=source.location, out=out))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    handle = pickle.loads(pickle.dumps(attach(client2, done.stdout.strip())))
    np.testing.assert_array_equal(handle.result(timeout_s=60).coef, expected)
    assert daskkern.load(out).provenance["fit"] == handle.fit
    assert_nothing_held(client2)


def worker_of(client: Client, key: str) -> str:
    """Return the address of the worker that runs the task whose key begins so."""

    def where(dask_scheduler: Any) -> str:
        tasks = dask_scheduler.tasks.items()
        return next(task.processing_on.address for name, task in tasks if str(name).startswith(key))

    return str(client.run_on_scheduler(where))


@pytest.mark.repeated
@pytest.mark.parametrize("role", ["daskkern_fit", "daskkern_eigenpro-supervisor"])
def test_a_lost_worker_changes_not_a_bit(role: str, source: StoreSource, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_epochs=20)
    with local_cluster(2) as client:
        expected = fit(source, settings, client=client).model.coef
        pids = worker_pids(client)
        policy = CheckpointPolicy(commit_s=0.05, checkpoint_s=0.05)
        handle = submit(FitJob(source, settings, policy=policy), client, str(tmp_path / "m.zarr"), gang=QUICK)
        wait_for_batches(handle)
        os.kill(pids[worker_of(client, role)], signal.SIGKILL)
        np.testing.assert_array_equal(handle.result(timeout_s=90).coef, expected)
        resumed = [timed.event for timed in handle.timed_events() if isinstance(timed.event, FitResumed)]
        assert resumed, "it began anew instead of going on"
        assert (resumed[-1].epoch, resumed[-1].batch) > (1, 0)
        assert_nothing_held(client)


@pytest.mark.repeated
def test_a_scheduler_that_is_busy_does_not_end_a_detached_fit(
    source: StoreSource, client2: Client, tmp_path: Path
) -> None:
    handle = submit(FitJob(source, LONG), client2, str(tmp_path / "m.zarr"), gang=QUICK)
    wait_for_batches(handle)
    client2.run_on_scheduler(time.sleep, 20.0)
    wait_for_batches(handle, handle.status().epoch + 1)
    assert handle.status().lost == 0
    handle.cancel()
    assert handle.watch(timeout_s=90).state == "interrupted"
    assert_nothing_held(client2)


@pytest.mark.slow  # a minute passes before a driver's worker is given up
def test_a_driver_that_hangs_is_replaced(source: StoreSource, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_epochs=20)
    with local_cluster(3) as client:
        pids = worker_pids(client)
        policy = CheckpointPolicy(commit_s=0.05, checkpoint_s=0.05)
        handle = submit(FitJob(source, settings, policy=policy), client, str(tmp_path / "m.zarr"), gang=QUICK)
        wait_for_batches(handle)
        hung = pids[worker_of(client, "daskkern_fit")]
        os.kill(hung, signal.SIGSTOP)
        try:
            X = load_digits(return_X_y=True)[0]
            want, got = fit(source, settings).model.scores(X), handle.result(timeout_s=150).scores(X)
        finally:
            with suppress(ProcessLookupError):
                os.kill(hung, signal.SIGCONT)
        assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()
        assert_nothing_held(client)


@pytest.mark.long
def test_one_place_has_one_fit(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    out = str(tmp_path / "m.zarr")
    first = submit(FitJob(source, LONG), client2, out)
    wait_for_batches(first, 1)
    with pytest.raises(ClusterError, match=f"fit {first.fit} is active and writes to"):
        submit(FitJob(source, LONG, policy=CheckpointPolicy(overwrite=True)), client2, out)
    assert (tmp_path / "m.zarr.checkpoint").exists()
    first.cancel(abort=True)
    assert first.watch(timeout_s=30).state == "cancelled"


@pytest.mark.repeated
def test_a_retired_worker_hands_the_fit_over(source: StoreSource, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_epochs=20)
    with local_cluster(2) as client:
        gang = replace(QUICK, rejoin_s=1.0)
        policy = CheckpointPolicy(commit_s=0.05, checkpoint_s=0.05)
        handle = submit(FitJob(source, settings, policy=policy), client, str(tmp_path / "m.zarr"), gang=gang)
        wait_for_batches(handle)
        client.retire_workers([worker_of(client, "daskkern_fit")])
        X = load_digits(return_X_y=True)[0]
        want, got = fit(source, settings).model.scores(X), handle.result(timeout_s=90).scores(X)
        assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()
        events = [timed.event for timed in handle.timed_events()]
        assert not [event for event in events if isinstance(event, WorkersLost)]
        assert [event.reason for event in events if isinstance(event, FitFinished)] == ["interrupted", "max_epochs"]
        assert handle.status().state == "finished"
        assert_nothing_held(client)


@pytest.mark.repeated
def test_a_queued_fit_moves_at_once(source: StoreSource, tmp_path: Path) -> None:
    with local_cluster(3) as client:
        gang = replace(QUICK, rejoin_s=1.0, elastic=False)
        first = submit(FitJob(source, LONG), client, str(tmp_path / "a.zarr"), gang=gang)
        wait_for_batches(first, 1)
        second = submit(FitJob(source, SETTINGS), client, str(tmp_path / "b.zarr"), gang=replace(gang, drain_s=60.0))
        wait_until(lambda: second.status().state == "queued", what="a fit that waits")
        begun = time.monotonic()
        client.retire_workers([worker_of(client, f"daskkern_fit-{second.fit}")])
        assert time.monotonic() - begun < 45
        assert second.status().active
        first.cancel(abort=True)
        second.result(timeout_s=60)


@pytest.mark.repeated
def test_a_cancelled_fit_leaves_its_model_and_goes_on_later(
    source: StoreSource, client2: Client, tmp_path: Path
) -> None:
    out = str(tmp_path / "m.zarr")
    handle = submit(FitJob(source, LONG), client2, out)
    wait_for_batches(handle)
    assert handle.cancel()
    assert handle.status().active or handle.status().state == "interrupted"
    assert handle.result(timeout_s=60).coef.any()
    assert handle.status().state == "interrupted"
    assert not handle.cancel()
    with pytest.raises(StoreError, match=r"continue from it with --resume"):
        submit(FitJob(source, LONG), client2, out)
    done = len(daskkern.load(out).provenance["history"])
    more = replace(LONG, max_epochs=2 * done)  # iterates are averaged from the last third on: none is missing
    again = submit(FitJob(source, more, policy=CheckpointPolicy(resume=True)), client2, out)
    np.testing.assert_array_equal(again.result(timeout_s=60).coef, fit(source, more, client=client2).model.coef)
    assert not (tmp_path / "m.zarr.checkpoint").exists()


@pytest.mark.long
def test_an_aborted_fit_ends_at_once(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    handle = submit(FitJob(source, LONG), client2, str(tmp_path / "m.zarr"))
    wait_for_batches(handle)
    handle.cancel(abort=True)
    with pytest.raises(FitCancelledError, match=r"has no model: .*was cancelled"):
        handle.result(timeout_s=30)
    assert handle.status().state == "cancelled"
    assert not (tmp_path / "m.zarr").exists()
    assert_nothing_held(client2)


@pytest.mark.long
def test_a_queued_fit_can_be_cancelled(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    first = submit(FitJob(source, LONG), client2, str(tmp_path / "1.zarr"))
    wait_for_batches(first, 1)
    second = submit(FitJob(source, SETTINGS), client2, str(tmp_path / "2.zarr"))
    wait_until(lambda: second.status().state == "queued", what="a queued fit")
    assert second.status().ahead == (first.fit,)
    second.cancel()
    assert second.watch(timeout_s=30).state == "cancelled"
    first.cancel(abort=True)
    first.watch(timeout_s=30)
    assert_nothing_held(client2)


@pytest.mark.repeated
def test_an_older_model_is_replaced_only_when_asked(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    out, once = str(tmp_path / "m.zarr"), replace(SETTINGS, max_epochs=1)
    submit(FitJob(source, once), client2, out).result(timeout_s=60)
    twice = FitJob(source, replace(once, max_epochs=2))
    for policy in (CheckpointPolicy(), CheckpointPolicy(resume=True)):
        with pytest.raises(StoreError, match=r"m\.zarr exists; choose another name, or replace it with --overwrite"):
            submit(replace(twice, policy=policy), client2, out)
    again = submit(replace(twice, policy=CheckpointPolicy(overwrite=True)), client2, out)
    assert len(again.result(timeout_s=60).provenance["history"]) == 2


def test_a_fit_that_fails_says_why(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    settings = replace(SETTINGS, memory_budget=1000)
    handle = submit(FitJob(source, settings), client2, str(tmp_path / "m.zarr"))
    with pytest.raises(ClusterError, match=r"has no model: .*budget"):
        handle.result(timeout_s=60)
    assert handle.status().state == "failed"
    assert_nothing_held(client2)


def test_what_cannot_be_detached_is_refused(source: StoreSource, client2: Client, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cannot write the model to .*No such file or directory"):
        submit(FitJob(source, SETTINGS), client2, str(tmp_path / "no such folder" / "m.zarr"))
    big = np.zeros((9_000_000, 1))
    rows = ArraySource(big, big, None, replace(source.info, n_rows=len(big), n_features=1))
    with pytest.raises(DataError, match="144 MB of arrays of this process"):
        submit(FitJob(rows, SETTINGS), client2, str(tmp_path / "m.zarr"))
    model = KernelClassifier(client=client2)
    with pytest.raises(SpecError, match="without out=, where a worker writes the model"):
        model.fit(source.location, detach=True)
    with pytest.raises(SpecError, match="without detach=True; call save"):
        model.fit(source.location, out="m.zarr")
    with pytest.raises(SpecError, match="without a client of a cluster"):
        KernelClassifier().fit(source.location, detach=True, out="m.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # the suite has 25 gangs at once
def test_many_fits_at_once_all_end(source: StoreSource, tmp_path: Path) -> None:
    settings = replace(SETTINGS, max_epochs=1, basis=Landmarks(50))
    with local_cluster(4) as client:
        gangs = [replace(QUICK, n_ranks=ranks) for ranks in (None, 1, 2, 4)]
        handles = [
            submit(FitJob(source, settings), client, str(tmp_path / f"{number}.zarr"), gang=gangs[number % 4])
            for number in range(4)
        ]
        assert [handle.watch(timeout_s=120).state for handle in handles] == ["finished"] * 4
        assert len(list_fits(client)) == 4
        assert_nothing_held(client)
