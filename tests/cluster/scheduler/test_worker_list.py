"""What fits are told of the workers several times a second is little, and enough."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from distributed.protocol import dumps

from daskkern.cluster.gang.gang import run_gang
from daskkern.cluster.scheduler.worker_changes import worker_changes
from daskkern.cluster.scheduler.worker_list import WorkerList
from tests.support import ranks


class Scheduler:
    """A scheduler with `size` workers, and a list of them at a client that asks it."""

    def __init__(self, size: int) -> None:
        self.workers = [self.worker(f"tcp://10.0.0.{number}:40001") for number in range(size)]
        self.bytes: list[int] = []
        client: Any = None
        self.list = WorkerList(client, self._ask)

    def worker(self, address: str) -> Any:
        status = SimpleNamespace(name="running")
        return SimpleNamespace(address=address, name=address[-7:], status=status, last_seen=time.time())

    def _ask(self, client: None, verb: str, known: int) -> dict[str, Any]:
        assert verb == "workers"
        answer = worker_changes(self.workers, known)
        self.bytes.append(sum(len(frame) for frame in dumps(answer)))
        return answer

    def seen(self) -> list[float]:
        return [float(worker["last_seen"]) for worker in self.list.alive().values()]


@pytest.mark.long
def test_a_poll_of_a_thousand_workers_is_small() -> None:
    scheduler = Scheduler(1000)
    for _ in range(3):
        assert list(scheduler.list.alive()) == [worker.address for worker in scheduler.workers]
    assert scheduler.bytes[0] < 60_000
    assert max(scheduler.bytes[1:]) < 200
    assert scheduler.list.interval_s == 6.0


def test_changes_of_workers_are_noticed() -> None:
    scheduler = Scheduler(2)
    assert {worker["status"] for worker in scheduler.list.alive().values()} == {"running"}
    scheduler.workers[1].status.name = "paused"
    assert [worker["status"] for worker in scheduler.list.alive().values()] == ["running", "paused"]
    scheduler.workers.append(scheduler.worker("tcp://joins:1"))
    del scheduler.workers[0]
    assert [worker["name"] for worker in scheduler.list.alive().values()] == [w.name for w in scheduler.workers]


def test_only_workers_without_heartbeats_look_the_same_again() -> None:
    scheduler = Scheduler(2)
    scheduler.workers[0].last_seen -= 5.0
    first, second = scheduler.seen(), scheduler.seen()
    assert first[0] == second[0] == scheduler.workers[0].last_seen
    assert first[1] != second[1]
    scheduler.workers[0].last_seen = time.time()
    assert scheduler.seen()[0] not in (first[0], first[1], second[1])


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(60)
def test_a_fit_does_not_poll_all_that_dask_knows(client2: Client) -> None:
    def count(dask_scheduler: Any) -> None:
        own = dask_scheduler.handlers["identity"]
        dask_scheduler.identities = 0

        def counted(n_workers: int = -1) -> Any:
            dask_scheduler.identities += n_workers == -1
            return own(n_workers)

        dask_scheduler.handlers["identity"] = counted

    client2.run_on_scheduler(count)
    assert run_gang(client2, ranks.counts, 300, name="polls")[0][1] == 300.0
    calls = client2.run_on_scheduler(lambda dask_scheduler: dask_scheduler.identities)
    assert calls < 10, "a few before the start"
