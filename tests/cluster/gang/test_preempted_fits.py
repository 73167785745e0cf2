"""Fits of a higher priority on real worker processes: those of a lower one commit, wait, and repeat no step."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import ClusterError, FitCancelledError, SpecError
from daskkern.events import BatchFinished, Event, FitPreempted, FitQueued, WorkersLeft, WorkersLost, silent
from daskkern.training.jobs.handle import FitHandle, list_fits
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PATIENT = GangSettings(silence_s=20.0, rejoin_s=8.0, idle_s=30.0)
STEPS = 500
RARELY = 1_000_000
"""More steps between two commits than there are: what is not committed for a hand-over is made again."""


class Story:
    """Listens to a fit."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[Event], more: int = 0) -> None:
        wait_until(lambda: len(self.kinds(kind)) > more, what=f"an event {kind.__name__}")


class Running:
    """A gang in a thread and with a client of its own."""

    def __init__(self, client: Client, name: str, work: Any, payload: Any, **how: Any) -> None:
        self.story, self.name, self._watching = Story(), name, client
        address, commits = client.scheduler.address, how.pop("commits", True)
        settings = replace(PATIENT, **how)
        pool = ThreadPoolExecutor(1)

        def run() -> Any:
            with Client(address, set_as_default=False) as own:
                return run_gang(own, work, payload, name=name, settings=settings, listener=self.story, commits=commits)

        self.future: Future[Any] = pool.submit(run)
        pool.shutdown(wait=False)

    @property
    def state(self) -> str:
        return self.status().state

    def status(self) -> Any:
        return [status for status in list_fits(self._watching) if status.metadata.name == self.name][-1]

    def cancel(self, abort: bool = False) -> None:
        assert FitHandle(self.status().metadata.fit, "", "", self._watching).cancel(abort=abort)

    def result(self) -> Any:
        return self.future.result(timeout=90)


def low_fit(client: Client, notes: Path, steps: int = STEPS, **how: Any) -> Running:
    """Return a fit that notes its steps, once it has made some."""
    low = Running(client, "low", ranks.notes_steps, (str(notes), steps, RARELY), **how)
    low.story.wait_for(BatchFinished)
    return low


def holder(client: Client, name: str = "high", **how: Any) -> Running:
    """Return a fit of a higher priority that runs until it is cancelled."""
    return Running(client, name, ranks.until_stopped, None, **{"priority": 1, **how})


def steps_of(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()]


@contextmanager
def configured_cluster(n_workers: int, **config: Any) -> Iterator[Client]:
    """Yield a cluster whose scheduler, in this process, has this configuration."""
    with dask.config.set(config), local_cluster(n_workers) as client:
        yield client


@pytest.mark.long
def test_a_preempted_fit_waits_and_goes_on_with_the_very_next_step(tmp_path: Path) -> None:
    notes = tmp_path / "steps"
    with configured_cluster(2, **{"daskkern.preemption-interval": "1s"}) as client:
        low = low_fit(client, notes)
        high = holder(client)
        high.story.wait_for(BatchFinished)
        assert low.state == "preempted"
        status, other = low.status(), high.status()
        assert (status.workers, status.ahead, status.preempted) == ((), (other.metadata.fit,), 1)
        assert other.metadata.priority == 1
        (queued,) = high.story.kinds(FitQueued)
        assert queued.reason == (
            f"waiting for fits of a lower priority to commit and to hand workers over: {status.metadata.fit}"
        )
        done = len(steps_of(notes))
        time.sleep(0.5)
        assert len(steps_of(notes)) == done < STEPS, "it waits"
        high.cancel()
        assert len(high.result()) == 2
        assert low.result() == [2, 2]
        assert steps_of(notes) == list(range(1, STEPS + 1))
        (event,) = low.story.kinds(FitPreempted)
        assert event.reason == f"fit {other.metadata.fit} of a higher priority gets the workers"
        assert not low.story.kinds(WorkersLost)
        assert low.state == "finished"
        assert_nothing_left(client)


@pytest.mark.repeated
def test_a_fit_on_all_workers_hands_over_one_and_goes_on_with_the_others(tmp_path: Path) -> None:
    notes = tmp_path / "steps"
    with local_cluster(3) as client:
        low = low_fit(client, notes)
        high = holder(client, n_ranks=1)
        high.story.wait_for(BatchFinished)
        (left,) = low.story.kinds(WorkersLeft)
        assert (left.size, left.reason) == (
            2,
            f"fit {high.status().metadata.fit} of a higher priority gets 1 of the workers",
        )
        assert low.state != "preempted"
        assert low.result() == [2, 2]
        assert steps_of(notes) == list(range(1, STEPS + 1))
        assert not low.story.kinds(FitPreempted)
        high.cancel()
        high.result()
        assert_nothing_left(client)


@pytest.mark.long
def test_fits_of_equal_priority_wait_and_one_that_keeps_no_commit_is_left_alone(client2: Client) -> None:
    low = Running(client2, "no commits", ranks.until_stopped, None, commits=False)
    low.story.wait_for(BatchFinished)
    equal, high = holder(client2, "equal", priority=0), holder(client2, "urgent")
    for waits in (equal, high):
        waits.story.wait_for(FitQueued)
    reason = high.story.kinds(FitQueued)[-1].reason
    assert reason.endswith("cannot be preempted: it has no checkpoint, and too little memory to keep a commit")
    assert "cannot be preempted" not in equal.story.kinds(FitQueued)[-1].reason
    assert low.state == "running" or low.state == "preparing"
    for running in (low, high, equal):  # the urgent fit is served before the earlier one
        running.story.wait_for(BatchFinished)
        running.cancel()
        assert len(running.result()) == 2
    assert_nothing_left(client2)


@pytest.mark.repeated
@pytest.mark.parametrize("abort", [False, True])
def test_a_preempted_fit_can_be_cancelled(abort: bool, client2: Client, tmp_path: Path) -> None:
    low = low_fit(client2, tmp_path / "steps", RARELY)
    high = holder(client2)
    high.story.wait_for(BatchFinished)
    low.cancel(abort)
    with pytest.raises(FitCancelledError, match="was cancelled"):
        low.result()
    high.cancel()
    assert len(high.result()) == 2
    assert_nothing_left(client2)


@pytest.mark.repeated
def test_the_supervisor_of_a_preempted_fit_may_be_lost(tmp_path: Path) -> None:
    notes = tmp_path / "steps"
    with local_cluster(3) as client:
        low = low_fit(client, notes, n_ranks=3)
        pids = worker_pids(client)
        home = supervisor_of(client)
        other = next(address for address in pids if address != home)
        high = holder(client, n_ranks=1, workers=(other,))
        high.story.wait_for(BatchFinished)
        assert low.state == "preempted"
        os.kill(pids[home], signal.SIGKILL)
        wait_until(lambda: len(worker_pids_of(client)) == 3 and home not in worker_pids_of(client), what="a new worker")
        assert low.state == "preempted"
        high.cancel()
        high.result()
        assert low.result() == [3, 3, 3]
        assert steps_of(notes) == list(range(1, STEPS + 1)), "others had the commit"


def supervisor_of(client: Client) -> str:
    def where(dask_scheduler: Any) -> str:
        tasks = dask_scheduler.tasks.items()
        return str(next(task.processing_on.address for key, task in tasks if "supervisor" in str(key)))

    return str(client.run_on_scheduler(where))


def worker_pids_of(client: Client) -> list[str]:
    return list(client.scheduler_info(n_workers=-1)["workers"])


@pytest.mark.repeated
def test_a_client_that_leaves_takes_its_preempted_fit_with_it(client2: Client, tmp_path: Path) -> None:
    low = low_fit(client2, tmp_path / "steps", RARELY)
    high = holder(client2)
    high.story.wait_for(BatchFinished)
    fit = low.status().metadata.fit

    def disconnect(dask_scheduler: Any) -> None:
        plugins = dask_scheduler.plugins.values()
        registry = next(plugin for plugin in plugins if hasattr(plugin, "fits"))._registry
        dask_scheduler.remove_client(registry.records[fit].client)

    client2.run_on_scheduler(disconnect)
    wait_until(lambda: low.state == "lost", what="the end of a fit without a client")
    high.cancel()
    assert len(high.result()) == 2
    with pytest.raises(ClusterError):
        low.result()
    assert_nothing_left(client2)


@pytest.mark.long
def test_the_fits_of_a_user_hold_no_more_than_the_quota() -> None:
    quotas = {"daskkern.quotas": {"workers": 1, "users": {"root": {"workers": None}}}}
    with configured_cluster(2, **quotas) as client:
        first = holder(client, "first", user="anna")
        first.story.wait_for(BatchFinished)
        assert len(first.status().workers) == 1
        second, other = holder(client, "second", user="anna", priority=9), holder(client, "other", user="ben")
        other.story.wait_for(BatchFinished)
        second.story.wait_for(FitQueued)
        reason = "waiting for the quota of user 'anna': 1 of 1 workers are in use, and this fit needs 1"
        assert second.story.kinds(FitQueued)[0].reason == reason
        assert (second.status().quota, second.state) == (reason, "queued")
        with pytest.raises(ClusterError, match="got a request for 2 workers with the quota of 1 for user 'ben'"):
            run_gang(client, ranks.many_steps, 5, name="large", settings=replace(PATIENT, n_ranks=2, user="ben"))
        first.cancel()
        assert len(first.result()) == 1
        second.story.wait_for(BatchFinished)
        for running in (second, other):
            running.cancel()
            assert len(running.result()) == 1
        assert run_gang(client, ranks.many_steps, 5, name="all", settings=replace(PATIENT, user="root"))[1:]
        assert_nothing_left(client)


def test_a_scheduler_with_a_wrong_configuration_says_so() -> None:
    for config, message in (
        ({"daskkern.quotas": {"worker": 1}}, "the scheduler's quotas cannot be read: got worker in"),
        ({"daskkern.preemption-interval": "soon"}, "got 'soon' as daskkern.preemption-interval"),
    ):
        with configured_cluster(1, **config) as client, pytest.raises(ClusterError, match=message):
            run_gang(client, ranks.many_steps, 5, name="refused", listener=silent)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"priority": 1.5}, r"got priority=1\.5; expected a whole number from -1,000,000 to 1,000,000"),
        ({"priority": True}, "got priority=True"),
        ({"priority": 10**9}, "got priority=1000000000"),
        ({"user": " "}, "got user=' '; expected a name"),
    ],
)
def test_nonsense_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        replace(PATIENT, **how)
