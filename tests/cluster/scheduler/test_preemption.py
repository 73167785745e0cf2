"""The rules of priorities and preemption, without a cluster, by a fake clock."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.preemption import HandOver, Preemptible, Preemption
from daskkern.cluster.scheduler.sharing.requests import Place, WorkerRequest

NAMES = "abcd"
GB = 1 << 30


class Cluster:
    """Workers, the fits on them, and a clock that is set by hand."""

    def __init__(self, names: str = NAMES, limit: int = 0) -> None:
        self.places = [Place(name, limit) for name in names]
        self.now = 0.0
        self.admission = Admission()
        self.preemption = Preemption(self.admission, 60.0, lambda: self.now)
        self._times = count()

    def ask(self, fit: str, priority: int = 0, n_ranks: int | None = None, **wish: object) -> tuple[str, ...]:
        request = WorkerRequest(fit, float(next(self._times)), n_ranks, priority=priority, **wish)
        members = self.admission.ask(request, self.places).members
        self.preemption.update(self.places)
        return members

    def end(self, fit: str) -> None:
        self.admission.release(fit)
        self.admission.grant(self.places)
        self.preemption.update(self.places)

    def commit(self, fit: str, whole: bool = False) -> tuple[str, ...]:
        """Do what a supervisor does when the ranks of `fit` have committed."""
        kept = self.preemption.hand_over(fit, whole=whole)
        self.admission.grant(self.places)
        self.preemption.update(self.places)
        return kept

    @property
    def asked(self) -> dict[str, str]:
        return {fit: asked.to for fit, asked in self.preemption.requested.items()}

    @property
    def running(self) -> set[str]:
        return set(self.admission.held)


def test_fits_wait_by_priority_and_then_by_arrival() -> None:
    cluster = Cluster()
    cluster.ask("runs", priority=9)
    for fit, priority in (("low", -1), ("first", 0), ("second", 0), ("high", 5), ("higher", 7)):
        cluster.ask(fit, priority)
    order = []
    for fit in ("runs", "higher", "high", "first", "second", "low"):
        assert cluster.running == {fit}
        order.append(fit)
        cluster.end(fit)
    assert cluster.running == set()


def test_a_fit_of_a_higher_priority_gets_the_workers_of_a_lower_one_which_goes_on_later() -> None:
    cluster = Cluster()
    assert cluster.ask("low") == tuple(NAMES)
    assert cluster.ask("other") == ()
    assert cluster.ask("high", priority=1) == ()
    assert cluster.asked == {"low": "high"}
    assert cluster.running == {"low"}, "it keeps its workers until it has committed"
    assert cluster.commit("low") == ()
    assert cluster.running == {"high"}
    assert cluster.admission.suspended == {"low": tuple(NAMES)}
    cluster.end("high")
    assert cluster.running == {"low"}, "it has kept its place before the other"
    assert cluster.admission.suspended == {}


def test_fits_of_equal_or_higher_priority_are_not_preempted() -> None:
    cluster = Cluster()
    cluster.ask("runs", priority=2)
    for fit, priority in (("equal", 2), ("lower", 1)):
        assert cluster.ask(fit, priority) == ()
        assert cluster.asked == {}


def test_the_lowest_priority_is_preempted_and_of_those_the_latest() -> None:
    cluster = Cluster()
    cluster.ask("middle", priority=1, n_ranks=1)
    cluster.ask("low early", n_ranks=1)
    cluster.ask("low late", n_ranks=1)
    cluster.ask("high", priority=3, n_ranks=2)
    assert cluster.asked == {"low late": "high"}, "one worker is free"
    cluster.commit("low late")
    assert cluster.admission.held["high"] == ("c", "d")
    cluster.ask("highest", priority=4, n_ranks=3)
    assert cluster.asked == {"low early": "highest", "high": "highest"}


def test_no_more_is_preempted_than_is_needed() -> None:
    cluster = Cluster()
    cluster.ask("small", n_ranks=1)
    cluster.ask("large", priority=1, n_ranks=3)
    cluster.ask("high", priority=2, n_ranks=3)
    assert cluster.asked == {"large": "high"}, "the small one, of a lower priority, would not suffice and is spared"


def test_nothing_is_preempted_in_vain() -> None:
    cluster = Cluster()
    cluster.ask("low", n_ranks=2)
    cluster.ask("equal", priority=1, n_ranks=2)
    cluster.ask("all", priority=1)
    assert cluster.asked == {}
    cluster.ask("too many", priority=9, n_ranks=6)
    assert cluster.asked == {}


def test_a_request_is_withdrawn_when_workers_come_free_or_the_waiting_fit_ends() -> None:
    cluster = Cluster()
    cluster.ask("low", n_ranks=2)
    cluster.ask("equal", priority=1, n_ranks=2)
    cluster.ask("high", priority=1, n_ranks=2)
    assert cluster.asked == {"low": "high"}
    cluster.end("equal")
    assert cluster.running == {"low", "high"}
    assert cluster.asked == {}
    assert cluster.commit("low") == ("a", "b"), "it goes on with the workers that it had"
    cluster.ask("next", priority=2)
    assert cluster.asked == {"low": "next", "high": "next"}
    cluster.end("next")
    assert cluster.asked == {}


def test_what_was_asked_for_first_stays_asked_for() -> None:
    cluster = Cluster("ab")
    cluster.ask("x", n_ranks=1)
    cluster.ask("y", n_ranks=1)
    cluster.ask("high", priority=1, n_ranks=1)
    assert cluster.asked == {"y": "high"}
    for _ in range(3):
        cluster.preemption.update(cluster.places)
        assert cluster.asked == {"y": "high"}


def test_a_fit_is_not_preempted_again_for_a_while() -> None:
    cluster = Cluster()
    cluster.ask("low")
    cluster.ask("high", priority=1)
    cluster.commit("low")
    cluster.now = 500.0
    cluster.end("high")
    assert cluster.running == {"low"}
    cluster.now = 559.0
    cluster.ask("high 2", priority=1)
    assert cluster.asked == {}
    (why,) = cluster.preemption.obstacles(1, ["low"]).values()
    assert why == "it was preempted a moment ago, and runs for 60 s at least"
    cluster.now = 560.0
    cluster.preemption.update(cluster.places)
    assert cluster.asked == {"low": "high 2"}
    assert cluster.preemption.obstacles(1, ["low"]) == {}


def test_a_fit_that_cannot_commit_is_not_preempted_and_says_why() -> None:
    cluster = Cluster()
    cluster.ask("low")
    cluster.preemption.declared["low"] = Preemptible("it keeps no commit")
    cluster.ask("high", priority=1)
    assert cluster.asked == {}
    assert cluster.preemption.obstacles(1, ["low", "unknown"]) == {"low": "it keeps no commit"}
    assert cluster.preemption.obstacles(0, ["low"]) == {}, "equals wait anyway"


def test_a_fit_on_all_workers_that_can_shrink_hands_over_what_is_needed() -> None:
    cluster = Cluster()
    cluster.ask("low")
    cluster.preemption.declared["low"] = Preemptible(shrinks=True)
    cluster.ask("high", priority=1, n_ranks=1)
    assert cluster.preemption.requested == {"low": HandOver("high", ("d",), ("a", "b", "c"))}
    assert cluster.commit("low") == ("a", "b", "c")
    assert cluster.admission.held == {"low": ("a", "b", "c"), "high": ("d",)}
    cluster.ask("high 2", priority=1, n_ranks=1)
    assert cluster.asked == {}, "it was asked a moment ago"
    cluster.now = 60.0
    cluster.preemption.update(cluster.places)
    assert cluster.commit("low", whole=True) == (), "two are too few for it"
    assert cluster.admission.held["high 2"] == ("a",)
    assert cluster.admission.suspended == {"low": ("a", "b", "c")}


def test_a_fit_with_a_number_of_workers_hands_over_all_or_nothing() -> None:
    cluster = Cluster()
    cluster.ask("low", n_ranks=4)
    cluster.preemption.declared["low"] = Preemptible(shrinks=True)
    cluster.ask("high", priority=1, n_ranks=1)
    assert cluster.commit("low") == ()
    assert cluster.ask("more", n_ranks=3) == (), "the preempted fit comes first"
    cluster.end("high")
    assert cluster.admission.held == {"low": tuple(NAMES)}


def test_two_waiting_fits_ask_for_different_workers() -> None:
    cluster = Cluster()
    cluster.ask("x", n_ranks=2)
    cluster.ask("y", n_ranks=2)
    cluster.ask("high", priority=2, allowed=("a", "b"))
    cluster.ask("other", priority=1, allowed=("c", "d"))
    assert cluster.asked == {"x": "high", "y": "other"}


def test_workers_of_a_higher_request_are_not_asked_for_twice() -> None:
    cluster = Cluster("ab")
    cluster.ask("low")
    cluster.ask("higher", priority=2)
    cluster.ask("high", priority=1)
    assert cluster.asked == {"low": "higher"}


def test_a_fit_that_shares_is_preempted_by_one_that_does_not() -> None:
    cluster = Cluster("a", limit=8 * GB)
    for fit in ("x", "y"):
        assert cluster.ask(fit, memory=3 * GB) == ("a",)
    assert cluster.ask("shares too", priority=1, memory=4 * GB) == ()
    assert cluster.asked == {"y": "shares too"}
    cluster.commit("y")
    cluster.ask("alone", priority=2)
    assert cluster.asked == {"x": "alone", "shares too": "alone"}


def test_a_preempted_fit_settles_for_the_workers_that_are_left() -> None:
    cluster = Cluster()
    cluster.ask("low", n_ranks=3)
    cluster.ask("high", priority=1, n_ranks=4)
    cluster.commit("low")
    cluster.places = cluster.places[:2]
    cluster.end("high")
    assert cluster.running == set()
    cluster.admission.settle("low", cluster.places)
    cluster.admission.grant(cluster.places)
    assert cluster.admission.held == {"low": ("a", "b")}


def test_workers_that_may_have_commits_of_preempted_fits_are_spared() -> None:
    cluster = Cluster()
    cluster.ask("low", n_ranks=2, allowed=("a", "b"))
    cluster.ask("high", priority=1, n_ranks=1, allowed=("a",))
    cluster.commit("low")
    assert cluster.admission.busy == {"a"}
    assert cluster.admission.reserved == {"a", "b"}
    cluster.admission.release("low")
    assert cluster.admission.reserved == {"a"}


wishes = st.tuples(
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)),
    st.booleans(),
)
actions = st.one_of(
    st.tuples(st.just("ask"), wishes),
    st.tuples(st.just("end"), st.integers(0, 50)),
    st.tuples(st.just("commit"), st.integers(0, 50)),
    st.tuples(st.just("wait"), st.integers(1, 100)),
)


@given(st.lists(actions, max_size=40))
def test_every_fit_ends_and_no_worker_is_held_twice(moves: list[tuple[str, object]]) -> None:
    cluster = Cluster()
    fits: list[str] = []

    def check() -> None:
        held = [name for names in cluster.admission.held.values() for name in names]
        assert len(held) == len(set(held))
        assert not set(cluster.admission.held) & set(cluster.admission.waiting)
        for fit, asked in cluster.preemption.requested.items():
            assert set(asked.names) | set(asked.kept) == set(cluster.admission.held[fit])
            assert cluster.admission.granted[fit].priority < cluster.admission.waiting[asked.to].priority

    for kind, value in moves:
        if kind == "ask":
            priority, n_ranks, allowed, shrinks = value
            fit = f"fit {len(fits)}"
            fits.append(fit)
            cluster.ask(fit, priority, n_ranks, allowed=allowed)
            cluster.preemption.declared[fit] = Preemptible(shrinks=shrinks)
        elif kind == "wait":
            cluster.now += value
            cluster.preemption.update(cluster.places)
        else:
            there = sorted(cluster.preemption.requested if kind == "commit" else cluster.admission.held)
            if there:
                (cluster.commit if kind == "commit" else cluster.end)(there[value % len(there)])
        check()
    for _ in range(3 * len(fits)):
        cluster.now += 100.0
        cluster.preemption.update(cluster.places)
        for fit in list(cluster.preemption.requested):
            if fit in cluster.preemption.requested:
                cluster.commit(fit)
        for fit in sorted(cluster.admission.held)[:1]:
            cluster.end(fit)
        check()
    unservable = [r for r in cluster.admission.waiting.values() if (r.n_ranks or 1) <= len(r.allowed or NAMES)]
    assert unservable == []
    assert cluster.admission.held == {}


def test_obstacles_are_forgotten_with_their_fits() -> None:
    cluster = Cluster()
    cluster.ask("low")
    cluster.preemption.declared["low"] = Preemptible("no")
    cluster.end("low")
    assert cluster.preemption.declared == {}


@pytest.mark.parametrize("whole", [False, True])
def test_a_fit_that_was_not_asked_keeps_its_workers_unless_it_cannot_run(whole: bool) -> None:
    cluster = Cluster()
    cluster.ask("low")
    assert cluster.commit("low", whole=whole) == (() if whole else tuple(NAMES))
    assert cluster.running == {"low"}
