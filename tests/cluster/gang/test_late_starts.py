"""The time to start a fit does not run while the scheduler is busy, and starts again when a worker is lost."""

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.events import Event, StageFinished
from tests.support import ranks
from tests.support.cluster import local_cluster, worker_pids
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]

START_S, BUSY_S = 6.0, 10.0
SHORT_S, N_SHORT = 2.0, 15
"""Tasks that the workers have besides: the fit's begin when the one that runs ends."""


def busy_when_it_comes(role: str) -> Any:
    """Return a function that keeps the scheduler busy from when it has a task of this role of a gang."""

    async def busy(dask_scheduler: Any) -> None:
        while not any(f"-{role}-" in str(key) for key in dask_scheduler.tasks):
            await asyncio.sleep(0.001)
        time.sleep(BUSY_S)

    return busy


@pytest.mark.long
@pytest.mark.parametrize("role", ["supervisor", "rank"])
def test_a_scheduler_that_is_busy_while_a_fit_starts_does_not_end_it(role: str, client2: Client, cluster2: str) -> None:
    events: list[Event] = []
    with Client(cluster2, set_as_default=False) as other:
        busy = threading.Thread(target=other.run_on_scheduler, args=(busy_when_it_comes(role),), daemon=True)
        busy.start()
        others = [
            client2.submit(time.sleep, SHORT_S, workers=[address], pure=False, priority=-1)
            for address in worker_pids(client2)
            for _ in range(N_SHORT)
        ]
        settings = GangSettings(start_timeout_s=START_S)
        begun = time.monotonic()
        found = run_gang(client2, ranks.own_payload, 7, name="late", settings=settings, listener=events.append)
        assert time.monotonic() - begun > BUSY_S
        busy.join(30)
        client2.cancel(others)
    assert found == [(0, 7), (1, 7)]
    assert not [event for event in events if isinstance(event, StageFinished)], "a worker was left out"
    assert_nothing_left(client2)


@pytest.mark.long
def test_a_worker_that_is_lost_before_the_start_gives_the_others_time_again() -> None:
    with local_cluster(2) as client:
        pids = worker_pids(client)
        sleeping = [client.submit(time.sleep, 6.0, workers=[address], pure=False, retries=9) for address in pids]
        threading.Timer(3.5, os.kill, (list(pids.values())[1], signal.SIGKILL)).start()
        settings = GangSettings(start_timeout_s=4.0)
        found = run_gang(client, ranks.own_payload, 7, name="lost", settings=settings)
        assert found in ([(0, 7)], [(0, 7), (1, 7)])
        del sleeping
        assert_nothing_left(client)
