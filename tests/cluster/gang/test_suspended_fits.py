"""The wait of a preempted fit for workers, and its decision to commit, by a fake clock and without a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from daskkern.cluster.gang.growth import GrowthPolicy
from daskkern.cluster.gang.members import RegainedWorkers
from daskkern.cluster.gang.regrouping import Regrouping, TakenOverError, await_workers
from daskkern.errors import ClusterError

WAITS = RegainedWorkers((), 0, 0)


@dataclass(frozen=True)
class Order:
    name: str = "low"
    rejoin_s: float = 10.0
    idle_s: float = 300.0
    elastic: bool = False
    drain_s: float = 30.0
    obstacle: str = ""


@dataclass
class Scheduler:
    """Gives one answer after the other, the last for ever, and moves the clock on."""

    answers: Sequence[RegainedWorkers | None]
    now: float = 0.0
    settled: list[float] = field(default_factory=list)
    asked: int = 0

    def workers_again(self, *, settle: bool) -> RegainedWorkers | None:
        if settle:
            self.settled.append(self.now)
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, checks: int | None = None) -> tuple[str, ...]:
        def check() -> None:
            if checks is not None and self.asked >= checks:
                raise ClusterError("no longer wanted")

        return await_workers(self, Order(), check, lambda: self.now, self.sleep)


def test_it_waits_for_other_fits_as_long_as_they_take() -> None:
    scheduler = Scheduler([*[WAITS] * 100_000, RegainedWorkers(("a", "b"), 2, 0)])
    assert scheduler.wait() == ("a", "b")
    assert scheduler.now == pytest.approx(25_000.0)
    assert scheduler.settled == []


def test_it_settles_for_the_workers_that_there_are_after_a_while() -> None:
    scheduler = Scheduler([*[RegainedWorkers((), 0, 1)] * 45, RegainedWorkers(("a",), 1, 0)])
    assert scheduler.wait() == ("a",)
    assert scheduler.settled[0] == pytest.approx(10.0)


def test_it_waits_for_workers_that_are_restarted_and_goes_on_without_them_in_the_end() -> None:
    scheduler = Scheduler([RegainedWorkers(("a",), 2, 0), RegainedWorkers(("a", "b"), 2, 0)])
    assert scheduler.wait() == ("a", "b")
    scheduler = Scheduler([RegainedWorkers(("a",), 2, 0)])
    assert scheduler.wait() == ("a",)
    assert scheduler.now == pytest.approx(10.0)


def test_it_gives_up_without_any_worker() -> None:
    for nothing in (RegainedWorkers((), 0, 1), RegainedWorkers((), 2, 0)):
        scheduler = Scheduler([nothing])
        with pytest.raises(ClusterError, match="no worker was left for the preempted fit 'low', and none"):
            scheduler.wait()
        assert scheduler.now == pytest.approx(300.0)


def test_it_ends_when_nobody_wants_it_or_another_has_taken_over() -> None:
    with pytest.raises(ClusterError, match="no longer wanted"):
        Scheduler([WAITS]).wait(checks=3)
    with pytest.raises(TakenOverError, match="another supervisor has taken over fit 'low'"):
        Scheduler([WAITS, None]).wait()


@dataclass
class Members:
    """The members of a gang that is to hand workers over to the fit `to`."""

    to: str = ""
    leaving: frozenset[str] = frozenset()
    queries: int = 0

    def preempted_for(self) -> str:
        self.queries += 1
        return self.to

    def joinable(self, members: Sequence[str]) -> tuple[str, ...]:
        return ()


def regrouping(members: Members, order: Order, clock: list[float]) -> Regrouping:
    return Regrouping(order, members, ("a", "b"), "a", GrowthPolicy(), lambda: clock[0])


def test_a_gang_commits_once_when_its_fit_is_preempted() -> None:
    members, clock = Members(), [0.0]
    found = regrouping(members, Order(), clock)
    assert not found.due()
    members.to = "urgent"
    assert not found.due(), "it asks twice a second only"
    clock[0] = 0.5
    assert found.due()
    assert found.preempted_for == "urgent"
    clock[0] = 5.0
    assert not found.due()
    assert members.queries == 2


def test_a_gang_that_cannot_commit_is_not_asked() -> None:
    members = Members("urgent")
    found = regrouping(members, Order(obstacle="it keeps no commit"), [0.0])
    assert not found.due()
    assert (members.queries, found.preempted_for) == (0, "")
