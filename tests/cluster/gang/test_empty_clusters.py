"""Fits on clusters that have lost all workers for a moment, before their gang runs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from distributed import Client

from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.scheduler.client import install_fits
from daskkern.cluster.scheduler.lease import admitted
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import ClusterError
from daskkern.events import Event, FitQueued, silent
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SETTINGS = GangSettings(rejoin_s=0.5, idle_s=60.0)


@contextmanager
def emptied(client: Client, back_in_s: float) -> Iterator[None]:
    """The cluster without workers; as many come back after some time."""
    size = len(live_workers(client))
    client.cluster.scale(0)
    wait_until(lambda: not live_workers(client), what="a cluster without workers")
    timer = threading.Timer(back_in_s, lambda: client.cluster.scale(size))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_a_fit_waits_for_the_workers_of_a_cluster_that_had_some() -> None:
    with local_cluster(2) as client:
        install_fits(client)
        events: list[Event] = []
        with emptied(client, 2.0):
            found = run_gang(client, ranks.many_steps, 5, name="late", settings=SETTINGS, listener=events.append)
        assert len(found) in (1, 2)
        assert FitQueued("waiting up to 60 s for workers that are not there yet") in events


def test_a_gang_whose_workers_leave_before_it_starts_waits_for_others() -> None:
    with local_cluster(2) as client, admitted(client, new_metadata("held"), SETTINGS, silent) as lease:
        with emptied(client, 2.0):
            found = run_gang(client, ranks.many_steps, 5, name="held", settings=SETTINGS, lease=lease)
        assert len(found) in (1, 2)


def test_workers_that_do_not_come_back_are_not_waited_for_for_ever() -> None:
    with local_cluster(1) as client:
        install_fits(client)
        client.cluster.scale(0)
        wait_until(lambda: not live_workers(client), what="a cluster without workers")
        begun = time.monotonic()
        with pytest.raises(ClusterError, match="has no workers; start some"):
            run_gang(client, ranks.many_steps, 5, name="never", settings=replace(SETTINGS, idle_s=2.0))
        assert 2.0 <= time.monotonic() - begun < 30.0


@pytest.mark.long
def test_the_time_to_start_begins_when_there_is_a_worker() -> None:
    """The supervisor waits behind another task; then its worker leaves for longer than it may take to start."""
    settings = replace(SETTINGS, start_timeout_s=25.0)
    with local_cluster(1) as client:
        busy = [client.submit(time.sleep, 60, pure=False) for _ in range(8)]
        wait_until(lambda: bool(sum(map(len, client.processing().values()))), what="a busy worker")

        def leave() -> None:
            client.cancel(busy)
            client.cluster.scale(0)

        timers = [threading.Timer(1.0, leave), threading.Timer(28.0, lambda: client.cluster.scale(1))]
        for timer in timers:
            timer.start()
        try:
            assert len(run_gang(client, ranks.many_steps, 5, name="behind", settings=settings)) == 1
        finally:
            for timer in timers:
                timer.join()
