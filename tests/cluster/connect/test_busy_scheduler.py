"""A scheduler that is busy is waited for; one that is gone is told at once."""

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from distributed.comm import CommClosedError

from daskkern.cluster.connect import membership
from daskkern.cluster.connect.membership import ask_scheduler
from daskkern.cluster.gang.gang import run_gang
from daskkern.errors import ClusterError
from daskkern.events import BatchFinished, Event, WorkersLost
from tests.support import ranks
from tests.support.left_over import assert_nothing_left

BUSY_S = 17.0
"""Longer than `silence_s`, and than the connections of the tests' clusters take to be made."""


class FakeClient:
    """A client whose scheduler answers as `call` does."""

    def __init__(self, call: Callable[["FakeClient"], Any]) -> None:
        self.status = "running"
        self.calls = 0
        self._call = call
        self.scheduler = SimpleNamespace(address="tcp://fake:1", question=self._question)

    async def _question(self) -> Any:
        self.calls += 1
        return await self._call(self)

    def sync(self, function: Any, *arguments: Any) -> Any:
        return asyncio.run(function(*arguments))


def ask(call: Callable[[FakeClient], Any]) -> tuple[Any, FakeClient]:
    client: Any = FakeClient(call)
    return ask_scheduler(client, "question"), client


def test_a_scheduler_that_takes_no_connections_is_asked_again() -> None:
    async def busy_twice(client: FakeClient) -> str:
        if client.calls == 1:
            raise OSError("Timed out trying to connect to tcp://fake:1 after 30 s")
        if client.calls == 2:
            raise CommClosedError("in <TCP>: Stream is closed")
        return "answer"

    assert ask(busy_twice)[0] == "answer"


def test_a_slow_answer_is_waited_for_and_not_asked_for_again() -> None:
    async def slow(client: FakeClient) -> str:
        await asyncio.sleep(0.7)
        return "answer"

    answer, client = ask(slow)
    assert (answer, client.calls) == ("answer", 1)


def test_a_connection_that_breaks_ends_the_wait() -> None:
    async def breaks(client: FakeClient) -> None:
        client.status = "connecting"
        await asyncio.sleep(30)

    started = time.monotonic()
    with pytest.raises(ClusterError, match=r"tcp://fake:1 cannot be reached .*the client is connecting"):
        ask(breaks)
    assert time.monotonic() - started < 5


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "ANSWER_S", 0.6)

    async def never(client: FakeClient) -> None:
        await asyncio.sleep(30)

    with pytest.raises(ClusterError, match=r"cannot be reached \(TimeoutError: no answer in 0\.6 s"):
        ask(never)


def test_an_error_of_the_scheduler_is_no_reason_to_ask_again() -> None:
    async def refuses(client: FakeClient) -> None:
        raise PermissionError("not for you")

    with pytest.raises(ClusterError, match="PermissionError: not for you"):
        ask(refuses)


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(90)
def test_a_scheduler_that_is_busy_does_not_end_a_fit(client2: Client, cluster2: str) -> None:
    events: list[Event] = []
    with Client(cluster2, set_as_default=False) as other:
        busy = threading.Thread(target=other.run_on_scheduler, args=(time.sleep, BUSY_S), daemon=True)

        def listener(event: Event) -> None:
            events.append(event)
            if isinstance(event, BatchFinished) and not busy.ident:
                busy.start()

        found = run_gang(client2, ranks.counts, 400, name="patient", listener=listener)
        busy.join(60)
    assert [result[:2] for result in found] == [(2, 400.0)] * 2
    assert not [event for event in events if isinstance(event, WorkersLost)]
    assert_nothing_left(client2)
