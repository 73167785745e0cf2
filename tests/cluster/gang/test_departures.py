"""Graceful shutdown of workers: the gang commits first, and goes on without them with the very next step."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import ClusterError, SpecError
from daskkern.events import BatchFinished, Event, WorkersLeft, WorkersLost
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

QUICK = GangSettings(silence_s=10.0, rejoin_s=8.0, idle_s=20.0, elastic=False)
STEPS = 300  # more than a worker takes to leave on a busy machine
RARELY = 1000
"""More steps between two commits than there are: what is not committed for the departure is made again."""


class Story:
    """Listens to a fit, and does something once from a given step on."""

    def __init__(self, at: int, deed: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._at, self._deed, self._done = at, deed, False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.batch >= self._at and not self._done:
            self._done = True
            threading.Thread(target=self._deed, daemon=True).start()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def supervisor_of(client: Client) -> str:
    """Return the address of the worker that runs the supervisor."""

    def where(dask_scheduler: Any) -> str:
        tasks = dask_scheduler.tasks.items()
        return str(next(task.processing_on.address for key, task in tasks if "supervisor" in str(key)))

    return str(client.run_on_scheduler(where))


def end_nanny(client: Client, address: str) -> None:
    """Close the nanny of a worker, as ``dask worker`` does at SIGTERM."""
    nanny = next(nanny for nanny in client.cluster.workers.values() if nanny.worker_address == address)
    client.sync(nanny.close, timeout=10)


def end_worker(client: Client, address: str, how: int = signal.SIGTERM) -> None:
    os.kill(worker_pids(client)[address], how)


def expire(client: Client, address: str) -> None:
    """Do what a worker does at the end of its lifetime."""

    def close(dask_worker: Any) -> None:
        dask_worker.loop.add_callback(dask_worker.close_gracefully)

    client.run(close, workers=[address])


WAYS: dict[str, Callable[[Client, str], object]] = {
    "it is retired": lambda client, address: client.retire_workers([address]),
    "its nanny ends at SIGTERM": end_nanny,
    "its process gets SIGTERM": end_worker,
    "its lifetime ends": expire,
}


def run(client: Client, notes: Path, leave: Callable[[Client, str], object], **settings: Any) -> tuple[Any, Story]:
    """Run a gang of three, of which one leaves after 30 steps: the supervisor's worker if `settings` say so."""
    supervises = settings.pop("supervises", False)

    def deed() -> None:
        home = supervisor_of(client)
        leave(client, home if supervises else next(a for a in worker_pids(client) if a != home))

    story = Story(30, deed)
    payload, gang = (str(notes), STEPS, RARELY), replace(QUICK, **settings)
    return run_gang(client, ranks.notes_steps, payload, name="leaves", settings=gang, listener=story), story


def steps_of(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()]


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("supervises", [False, True], ids=["rank", "supervisor"])
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_leaves_costs_no_step(way: str, supervises: bool, tmp_path: Path) -> None:
    notes = tmp_path / "steps"
    with local_cluster(3) as client:
        found, story = run(client, notes, WAYS[way], supervises=supervises)
        assert steps_of(notes) == list(range(1, STEPS + 1))
        assert found == [2, 2]
        assert not story.kinds(WorkersLost)
        (left,) = story.kinds(WorkersLeft)
        assert isinstance(left, WorkersLeft)
        assert (left.size, left.reason.endswith("is leaving the cluster")) == (2, True)
        assert_nothing_left(client)


@pytest.mark.repeated
def test_a_worker_that_is_killed_costs_the_steps_since_the_last_commit(tmp_path: Path) -> None:
    notes = tmp_path / "steps"
    with local_cluster(3) as client:
        _, story = run(client, notes, lambda client, address: end_worker(client, address, signal.SIGKILL), rejoin_s=1.0)
        assert len(steps_of(notes)) >= STEPS + 30
        assert story.kinds(WorkersLost)
        assert not story.kinds(WorkersLeft)


@pytest.mark.repeated
def test_a_worker_goes_at_once_where_nothing_waits_for_it(tmp_path: Path) -> None:
    """With ``drain_s=0`` the steps are repeated, as after a loss."""
    notes = tmp_path / "steps"
    with local_cluster(3) as client:
        found, story = run(client, notes, WAYS["it is retired"], drain_s=0.0, rejoin_s=1.0)
        assert found == [2, 2]
        assert len(steps_of(notes)) >= STEPS + 30
        assert story.kinds(WorkersLost)


@pytest.mark.long
def test_a_gang_that_cannot_shrink_ends_when_a_worker_leaves(tmp_path: Path) -> None:
    with local_cluster(2) as client, pytest.raises(ClusterError, match="left the cluster while fit 'leaves' was"):
        run(client, tmp_path / "steps", WAYS["it is retired"], retries=0)


@pytest.mark.repeated
def test_a_worker_without_fits_is_retired_as_ever() -> None:
    with local_cluster(2) as client:
        run_gang(client, ranks.counts, 5, name="before", settings=QUICK)
        address = next(iter(worker_pids(client)))
        assert list(client.retire_workers([address])) == [address]
        wait_until(lambda: list(worker_pids(client)) != [address] and len(worker_pids(client)) == 1)
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3


@pytest.mark.repeated
def test_a_worker_that_cannot_be_retired_goes_on_working(tmp_path: Path) -> None:
    """Nobody takes what the only worker holds: Dask keeps it, and the fit uses it again."""
    notes = tmp_path / "steps"
    with local_cluster(1) as client:
        held = client.submit(sum, [1, 2])
        held.result(timeout=30)
        story = Story(30, lambda: client.retire_workers(list(worker_pids(client))))
        payload = (str(notes), STEPS, RARELY)
        assert run_gang(client, ranks.notes_steps, payload, name="stays", settings=QUICK, listener=story) == [1]
        assert steps_of(notes) == list(range(1, STEPS + 1))
        assert held.result(timeout=30) == 3


def test_a_time_that_makes_no_sense_is_refused() -> None:
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(SpecError, match="drain_s"):
            GangSettings(drain_s=seconds)
