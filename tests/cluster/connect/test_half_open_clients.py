"""A client of a worker that Dask leaves half-open does not swallow the tasks of fits."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
from operator import add
from typing import Any

import pytest
from distributed import Scheduler, SchedulerPlugin

from daskkern.cluster.connect.connecting import own_client
from tests.support.cluster import local_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.long]


class Greeting(SchedulerPlugin):
    """Sends one more message along with the first that a worker's client gets, as the cancelling of a task does.

    A worker that leaves with many tasks causes several in a row.
    """

    def __init__(self) -> None:
        self.n_left = 6

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        if "worker" in client and self.n_left:
            self.n_left -= 1
            message = {"op": "adjust-heartbeat-interval", "interval": 5}
            asyncio.get_running_loop().call_soon(lambda: scheduler.client_comms[client].send(message))


def summed(a: int, b: int) -> Any:
    client = own_client()
    return client.submit(add, a, b, pure=False).result(timeout=20)


def test_a_client_that_never_connects_is_closed_and_another_made() -> None:
    with local_cluster(1, threads_per_worker=2) as client:
        client.register_plugin(Greeting(), name="greeting")
        for number in range(2):
            assert client.submit(summed, number, 1, pure=False).result(timeout=60) == number + 1
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins["greeting"].n_left) == 0
