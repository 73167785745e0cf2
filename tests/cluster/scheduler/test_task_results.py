"""A lost message between client and scheduler ends the wait for a task."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from operator import add
from typing import Any

import distributed.utils
import pytest
from distributed import Client, Scheduler

from daskkern.cluster.connect.membership import BrokenOffError
from daskkern.cluster.scheduler.client import install_fits
from daskkern.cluster.scheduler.plugin import question
from daskkern.cluster.scheduler.task_results import TaskResult, await_ends, results_of
from daskkern.errors import ClusterError
from tests.support.cluster import local_cluster, worker_pids
from tests.support.recovery.lossy_client import LossyClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


@pytest.fixture
def lossy(cluster2: str) -> Iterator[LossyClient]:
    with LossyClient(cluster2, set_as_default=False) as client:
        install_fits(client)
        yield client


def outcome(result: TaskResult) -> Any:
    for _ in range(200):
        try:
            return result.within(0.05)
        except TimeoutError:
            continue
    raise AssertionError("nothing was noticed")


def test_a_result_is_returned_and_an_error_raised(lossy: LossyClient) -> None:
    assert outcome(TaskResult(lossy, lossy.submit(add, 1, 2, pure=False), "a sum", 0.1)) == 3
    with pytest.raises(ZeroDivisionError):
        outcome(TaskResult(lossy, lossy.submit(lambda: 1 / 0, pure=False), "a quotient", 0.1))


def test_a_task_that_takes_long_is_waited_for(lossy: LossyClient) -> None:
    slow = lossy.submit(lambda: time.sleep(1.0) or 5, pure=False)
    assert outcome(TaskResult(lossy, slow, "a nap", 0.1)) == 5


@pytest.mark.parametrize(
    ("lost", "said"), [("update-graph", "does not know it"), ("key-in-memory", "says that it has ended")]
)
def test_what_was_lost_is_told(lossy: LossyClient, lost: str, said: str) -> None:
    lossy.loses = lost
    future = lossy.submit(add, 1, 2, pure=False)
    with pytest.raises(BrokenOffError, match=f"waits for the set-up, and the scheduler {said}; fit again"):
        outcome(TaskResult(lossy, future, "the set-up", 0.3))


def test_several_tasks_are_waited_for_and_one_that_was_lost_is_told(lossy: LossyClient) -> None:
    futures = [lossy.submit(add, 1, 2, pure=False), lossy.submit(lambda: 1 / 0, pure=False)]
    await_ends(lossy, futures, "the rows", 0.1)
    assert [future.status for future in futures] == ["finished", "error"]
    lossy.loses = "update-graph"
    futures.append(lossy.submit(add, 1, 2, pure=False))
    with pytest.raises(BrokenOffError, match="waits for the rows, and the scheduler does not know it; fit again"):
        await_ends(lossy, futures, "the rows", 0.1)


def test_a_scheduler_that_takes_no_connections_for_a_moment_is_asked_again(
    lossy: LossyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = getattr(lossy.scheduler, question("task_state")), list[object]()

    async def busy_at_first(**of: Any) -> Any:
        asked.append(of)
        if len(asked) == 1:
            raise OSError("Timed out trying to connect to the scheduler")
        return await ask(**of)

    monkeypatch.setattr(lossy.scheduler, question("task_state"), busy_at_first, raising=False)
    lossy.loses = "update-graph"
    future = lossy.submit(add, 1, 2, pure=False)
    with pytest.raises(BrokenOffError, match="does not know it"):
        outcome(TaskResult(lossy, future, "the set-up", 0.1))
    assert len(asked) == 3


def test_a_scheduler_that_is_gone_is_told_in_one_sentence(lossy: LossyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(**of: Any) -> Any:
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(lossy.scheduler, question("task_state"), gone, raising=False)
    lossy.loses = "update-graph"
    future = lossy.submit(add, 1, 2, pure=False)
    with pytest.raises(ClusterError, match=r"^the Dask scheduler at tcp://\S+ cannot be reached"):
        outcome(TaskResult(lossy, future, "the set-up", 0.1))


def test_a_result_that_takes_longer_to_fetch_than_a_look_arrives(
    lossy: LossyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather, tries = lossy.scheduler.gather, list[object]()

    async def slow(**of: Any) -> Any:
        tries.append(of)
        await asyncio.sleep(1.0)
        return await gather(**of)

    monkeypatch.setattr(lossy.scheduler, "gather", slow, raising=False)
    assert outcome(TaskResult(lossy, lossy.submit(add, 1, 2, pure=False), "a sum", 0.1)) == 3
    assert len(tries) == 1


def test_a_graph_that_the_scheduler_still_reads_is_no_lost_message(lossy: LossyClient) -> None:
    """The scheduler reads graphs one after the other, and knows none of the tasks of those that wait."""

    def hold(dask_scheduler: Scheduler) -> None:
        distributed.utils._offload_executor.submit(time.sleep, 2.0)

    lossy.run_on_scheduler(hold)
    assert outcome(TaskResult(lossy, lossy.submit(add, 1, 2, pure=False), "a sum", 0.1)) == 3


def test_a_timeout_of_the_task_itself_is_its_error(lossy: LossyClient) -> None:
    def late() -> None:
        raise TimeoutError("the storage did not answer in 5 s")

    with pytest.raises(ClusterError, match="the set-up failed with a timeout: the storage did not answer in 5 s"):
        outcome(TaskResult(lossy, lossy.submit(late, pure=False), "the set-up"))
    worker = next(iter(lossy.scheduler_info(n_workers=-1)["workers"]))
    with pytest.raises(ClusterError, match=rf"worker {worker} failed with a timeout: the storage"):
        results_of(lossy, {worker: lossy.submit(late, workers=[worker], pure=False)})


def test_a_client_that_is_cut_off_says_so(lossy: LossyClient) -> None:
    """Dask cancels the futures of a client whose scheduler is gone."""
    future = lossy.submit(time.sleep, 1.0, pure=False)
    future.cancel()
    with pytest.raises(BrokenOffError, match="to the scheduler was lost while this process waited for the set-up"):
        outcome(TaskResult(lossy, future, "the set-up"))


def test_results_of_workers_come_in_order(client2: Client) -> None:
    workers = list(client2.scheduler_info(n_workers=-1)["workers"])
    futures = {
        worker: client2.submit(add, number, 1, workers=[worker], pure=False) for number, worker in enumerate(workers)
    }
    assert results_of(client2, futures) == [1, 2]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("lost", ["update-graph", "key-in-memory"])
def test_results_of_workers_that_will_never_be_heard_of_are_told(lossy: LossyClient, lost: str) -> None:
    worker = next(iter(lossy.scheduler_info(n_workers=-1)["workers"]))
    lossy.loses = lost
    with pytest.raises(BrokenOffError, match=f"waits for a measurement of worker {worker}, and the scheduler"):
        results_of(lossy, {worker: lossy.submit(add, 1, 2, workers=[worker], pure=False)}, doubt_s=0.1)


@pytest.mark.long
def test_a_worker_that_leaves_before_its_result_is_told() -> None:
    with local_cluster(2) as client:
        pids = worker_pids(client)
        futures = {worker: client.submit(time.sleep, 3.0, workers=[worker], pure=False) for worker in pids}
        victim = list(pids)[1]
        os.kill(pids[victim], signal.SIGKILL)
        with pytest.raises(BrokenOffError, match=f"worker {victim} left"):
            results_of(client, futures)
