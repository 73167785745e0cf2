"""A lost message between client and scheduler ends the wait for a task."""

import time
from collections.abc import Iterator
from operator import add
from typing import Any

import pytest
from distributed import Client

from daskkern.cluster.connect.membership import BrokenOffError
from daskkern.cluster.connect.task_results import TaskResult
from daskkern.errors import ClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


class LossyClient(Client):
    """A client that loses the tasks that it should send, or what it hears of their ends."""

    loses = ""

    def _send_to_scheduler(self, msg: dict[str, Any]) -> None:
        if msg["op"] != self.loses:
            super()._send_to_scheduler(msg)

    def _handle_key_in_memory(self, *of: Any, **fields: Any) -> None:
        if self.loses != "key-in-memory":
            super()._handle_key_in_memory(*of, **fields)


@pytest.fixture
def lossy(cluster2: str) -> Iterator[LossyClient]:
    with LossyClient(cluster2, set_as_default=False) as client:
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


def test_a_scheduler_that_takes_no_connections_for_a_moment_is_asked_again(
    lossy: LossyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = lossy.scheduler.get_task_status, list[object]()

    async def busy_at_first(**of: Any) -> Any:
        asked.append(of)
        if len(asked) == 1:
            raise OSError("Timed out trying to connect to the scheduler")
        return await ask(**of)

    monkeypatch.setattr(lossy.scheduler, "get_task_status", busy_at_first, raising=False)
    lossy.loses = "update-graph"
    future = lossy.submit(add, 1, 2, pure=False)
    with pytest.raises(BrokenOffError, match="does not know it"):
        outcome(TaskResult(lossy, future, "the set-up", 0.1))
    assert len(asked) == 3


def test_a_scheduler_that_is_gone_is_told_in_one_sentence(lossy: LossyClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(**of: Any) -> Any:
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(lossy.scheduler, "get_task_status", gone, raising=False)
    lossy.loses = "update-graph"
    future = lossy.submit(add, 1, 2, pure=False)
    with pytest.raises(ClusterError, match=r"^the Dask scheduler at tcp://\S+ cannot be reached"):
        outcome(TaskResult(lossy, future, "the set-up", 0.1))
