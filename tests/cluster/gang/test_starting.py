"""Ranks that start late, wait for earlier ones, and commit too late, without a cluster."""

import asyncio
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from daskkern.cluster.collectives.mailbox import OPENED, RUNNING, WAITING, Membership
from daskkern.cluster.collectives.mailbox_registry import MailboxRegistry
from daskkern.cluster.gang.calls import Answers
from daskkern.cluster.gang.rank_slots import RankSlots
from daskkern.cluster.gang.starting import EARLIER_RANK_S, StartWatch
from daskkern.cluster.gang.worker_plugin import forget_abandoned
from daskkern.cluster.scheduler.plugin import question
from daskkern.errors import CommunicatorClosedError


class Workers:
    """Three workers whose ranks are in given states, a clock, and how often they were asked."""

    def __init__(self, *states: str) -> None:
        self.states = dict(zip("abc", states, strict=True))
        self.now, self.asked = 1000.0, 0
        self.watch = StartWatch(60.0, tuple("abc"), self.ask, lambda: self.now)

    def ask(self, addresses: Sequence[str]) -> Answers:
        self.asked += 1
        return Answers({address: self.states[address] for address in addresses if self.states[address] != "dead"}, {})

    def late_after(self, seconds: float) -> dict[int, str]:
        self.now = 1000.0 + seconds
        return self.watch.late()


def test_nobody_is_asked_before_the_time_or_once_all_run() -> None:
    workers = Workers(RUNNING, "", "dead")
    assert workers.late_after(59.0) == {}
    assert workers.asked == 0
    assert workers.late_after(60.0) == workers.late_after(90.0) == {}
    assert workers.asked == 1


def test_a_rank_that_has_not_begun_is_late() -> None:
    assert Workers(RUNNING, OPENED, OPENED).late_after(61.0) == {1: "b", 2: "c"}


def test_ranks_are_not_late_while_the_scheduler_does_not_answer() -> None:
    workers = Workers(RUNNING, OPENED, RUNNING)
    workers.now += 100.0
    workers.watch.postpone(95.0)
    assert workers.late_after(100.0) == workers.late_after(154.0) == {}
    assert workers.late_after(156.0) == {1: "b"}


def test_a_rank_that_waits_for_an_earlier_one_is_waited_for() -> None:
    workers = Workers(WAITING, RUNNING, RUNNING)
    assert workers.late_after(61.0) == workers.late_after(400.0) == {}
    assert workers.late_after(61.0 + EARLIER_RANK_S) == {0: "a"}
    workers = Workers(WAITING, RUNNING, RUNNING)
    workers.late_after(61.0)
    workers.states["a"] = RUNNING
    workers.late_after(63.0)
    workers.states["a"] = OPENED
    assert workers.late_after(900.0) == {}, "all have begun"


def test_a_second_rank_of_a_fit_waits_until_the_first_has_left() -> None:
    slots, told, entered, leave = RankSlots(), threading.Event(), threading.Event(), threading.Event()

    def second() -> None:
        with slots.held("fit", lambda: None, told.set):
            entered.set()

    with slots.held("fit", lambda: None, leave.set), slots.held("another", lambda: None, leave.set):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(10)
        assert not entered.wait(0.3)
    assert entered.wait(10)
    thread.join()
    assert not leave.is_set()


def test_a_rank_that_is_given_up_while_it_waits_does_not_start() -> None:
    slots = RankSlots()
    with (
        slots.held("fit", lambda: None, lambda: None),
        pytest.raises(CommunicatorClosedError, match="given up before it started: another generation has begun"),
        slots.held("fit", lambda: "another generation has begun", lambda: None),
    ):
        pass
    with slots.held("fit", lambda: None, lambda: None):
        pass


def test_what_an_earlier_generation_sends_or_commits_is_refused() -> None:
    registry = MailboxRegistry()
    assert registry.open(Membership("fit", 0, 0, ("a", "b"), "task-0"))
    old = registry.commit_caches["fit"].of_generation(0)
    old.put(5, np.zeros(1, np.uint8))
    assert registry.progress("fit") == (0, 0)
    assert registry.open(Membership("fit", 1, 0, ("a", "b"), "task-1"))
    new = registry.commit_caches["fit"].of_generation(1)
    old.put(10, np.ones(1, np.uint8))
    old.mark()
    assert registry.progress("fit") == (1, 0), "the new generation has committed nothing"
    assert new.latest is not None
    assert new.latest.steps == 5
    new.put(6, np.ones(1, np.uint8))
    assert registry.progress("fit") == (1, 1)
    assert old.latest is new.latest
    registry.deliver("fit", 0, 1, "allreduce", 1, {"not": "read"})
    mailbox = registry.find("fit", 1)
    assert mailbox is not None
    assert mailbox.reason is None, "what an earlier generation sends is not even read"
    assert (registry.state("fit", 1), registry.state("fit", 0)) == (OPENED, "")
    assert not registry.open(Membership("fit", 0, 0, ("a", "b"), "task-0"))


class Worker:
    """A worker whose scheduler knows the fits `active`, or does not answer."""

    def __init__(self, active: list[str] | OSError | None) -> None:
        self.active = active
        self.scheduler = SimpleNamespace(**{question("active"): self._answer})

    async def _answer(self, fits: list[str]) -> list[str] | None:
        if isinstance(self.active, OSError):
            raise self.active
        return None if self.active is None else [fit for fit in fits if fit in self.active]


def attended() -> tuple[MailboxRegistry, list[float]]:
    """Return the mailboxes of a worker with a commit of "lost" and one of "runs", and their clock."""
    now = [0.0]
    registry = MailboxRegistry(clock=lambda: now[0])
    for fit in ("lost", "runs"):
        registry.open(Membership(fit, 0, 0, ("a",), "task"))
        registry.commit_caches[fit].put(1, np.zeros(8, np.uint8))
    return registry, now


def test_commits_of_a_fit_that_nobody_asks_for_are_forgotten() -> None:
    registry, now = attended()
    now[0] = 299.0
    asyncio.run(forget_abandoned(Worker([]), registry))
    assert sorted(registry.commit_caches) == ["lost", "runs"]
    now[0] = 301.0
    asyncio.run(forget_abandoned(Worker(["runs"]), registry))
    assert (list(registry.commit_caches), list(registry.mailboxes), list(registry.generations)) == (["runs"],) * 3


def test_commits_are_kept_for_a_running_rank_or_a_supervisor_that_asks() -> None:
    registry, now = attended()
    with registry.slots.held("lost", lambda: None, lambda: None):
        now[0] = 301.0
        asyncio.run(forget_abandoned(Worker(["runs"]), registry))
    now[0] = 400.0
    registry.progress("lost")
    now[0] = 650.0
    asyncio.run(forget_abandoned(Worker(["runs"]), registry))
    assert "lost" in registry.commit_caches
    now[0] = 701.0
    asyncio.run(forget_abandoned(Worker(["runs"]), registry))
    assert "lost" not in registry.commit_caches


@pytest.mark.parametrize("answer", [None, OSError("busy")])
def test_commits_are_kept_while_the_scheduler_does_not_answer(answer: OSError | None) -> None:
    registry, now = attended()
    now[0] = 1000.0
    asyncio.run(forget_abandoned(Worker(answer), registry))
    assert "lost" in registry.commit_caches
