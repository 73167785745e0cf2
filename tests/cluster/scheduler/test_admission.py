"""The rules of admission, without a cluster."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.requests import Place, Verdict, WorkerRequest

NAMES = "abcd"
GB = 1 << 30


def places(names: str = NAMES, limit: int = 0) -> list[Place]:
    return [Place(name, limit) for name in names]


def test_a_fit_gets_all_workers_or_as_many_as_it_asks_for() -> None:
    assert Admission().ask(WorkerRequest("f", 0.0), places()) == Verdict(tuple(NAMES))
    assert Admission().ask(WorkerRequest("f", 0.0, n_ranks=2), places()) == Verdict(("a", "b"))
    assert Admission().ask(WorkerRequest("f", 0.0, n_ranks=2, allowed=("c", "x", "b")), places()) == Verdict(("c", "b"))


def test_small_fits_run_side_by_side_and_a_large_one_waits_for_both() -> None:
    admission = Admission()
    assert admission.ask(WorkerRequest("f", 0.0, n_ranks=1), places("abc")).members == ("a",)
    assert admission.ask(WorkerRequest("g", 1.0, n_ranks=1), places("abc")).members == ("b",)
    assert admission.ask(WorkerRequest("h", 2.0), places("abc")) == Verdict(ahead=("f", "g"))
    admission.release("f")
    assert admission.ask(WorkerRequest("h", 2.0), places("abc")) == Verdict(ahead=("g",))
    admission.release("g")
    assert admission.ask(WorkerRequest("h", 2.0), places("abc")).members == tuple("abc")


def test_looking_changes_nothing() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0), places())
    admission.ask(WorkerRequest("g", 1.0), places())
    admission.release("f")
    assert admission.look(WorkerRequest("g", 1.0), places()) == Verdict()
    assert admission.look(WorkerRequest("h", 2.0), places()) == Verdict(ahead=("g",))
    assert (admission.held, list(admission.waiting)) == ({}, ["g"])
    assert admission.ask(WorkerRequest("g", 1.0), places()).members == tuple(NAMES)


def test_nobody_overtakes_a_fit_that_wants_the_same_workers() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=3), places())
    assert admission.ask(WorkerRequest("all", 1.0), places()).ahead == ("f",)
    assert admission.ask(WorkerRequest("small", 2.0, n_ranks=1), places()).ahead == (
        "f",
        "all",
    )  # worker d is free, but wanted
    assert admission.ask(WorkerRequest("other", 3.0, allowed=("d",)), places()).ahead == ("all", "small")


def test_fits_that_want_other_workers_pass() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, allowed=("a", "b")), places())
    assert admission.ask(WorkerRequest("g", 1.0, allowed=("b",)), places()).ahead == ("f",)
    assert admission.ask(WorkerRequest("h", 2.0, allowed=("c",)), places()).members == ("c",)


def test_a_fit_that_needs_workers_to_come_holds_nobody_up() -> None:
    admission = Admission()
    assert admission.ask(WorkerRequest("large", 0.0, n_ranks=6), places()) == Verdict(missing=2)
    assert admission.ask(WorkerRequest("f", 1.0), places()).members == tuple(NAMES)
    assert admission.ask(WorkerRequest("g", 1.0), []).missing == 1


def test_the_order_is_that_of_submission_and_not_of_asking() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("runs", 0.0), places())
    admission.ask(WorkerRequest("later", 2.0), places())
    assert admission.ask(WorkerRequest("earlier", 1.0), places()).ahead == ("runs",)
    admission.release("runs")
    assert admission.ask(WorkerRequest("later", 2.0), places()).ahead == ("earlier",)


def test_fits_that_declare_their_memory_share_workers() -> None:
    admission, room = Admission(), places("ab", 4 * GB)
    assert admission.ask(WorkerRequest("f", 0.0, memory=2 * GB), room).members == ("a", "b")
    assert admission.ask(WorkerRequest("g", 1.0, memory=2 * GB), room).members == ("a", "b")
    assert admission.ask(WorkerRequest("h", 2.0, memory=1), room).ahead == ("f", "g")
    admission.release("g")
    assert admission.ask(WorkerRequest("alone", 3.0), room).ahead == ("f", "h")
    assert admission.ask(WorkerRequest("h", 2.0, memory=1), room).members == ("a", "b")


def test_a_gang_takes_other_workers_and_leaves_its_own() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=2), places())
    admission.ask(WorkerRequest("g", 1.0, n_ranks=1), places())
    assert admission.unavailable("f", places()) == {"c"}
    assert admission.unavailable("g", places()) == {"a", "b"}
    assert not admission.take("f", ("b", "c"), places())
    assert not admission.take("f", ("b", "x"), places())
    assert admission.held["f"] == ("a", "b")
    admission.ask(WorkerRequest("waits", 2.0, n_ranks=2, allowed=("c", "d")), places("abc"))
    assert not admission.take("f", ("b", "d"), places())  # d has just joined, and another waits for it
    admission.release("waits")
    assert admission.take("f", ("b", "d"), places())
    assert admission.unavailable("g", places()) == {"b", "d"}
    assert admission.busy == {"b", "c", "d"}


def test_a_fit_without_a_place_may_use_nothing() -> None:
    admission = Admission()
    assert admission.unavailable("unknown", places("ab")) == {"a", "b"}
    assert not admission.take("unknown", ("a",), places("ab"))


def test_a_worker_that_is_restarted_keeps_its_place_by_its_name() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=2), places("ab"))
    assert admission.ask(WorkerRequest("g", 1.0, n_ranks=1), places("b")).ahead == ("f",)  # a is being restarted
    assert admission.ask(WorkerRequest("g", 1.0, n_ranks=1), places("ab")).ahead == ("f",)


def lacking(*requests: WorkerRequest, names: str = NAMES, limit: int = 0) -> int:
    """Ask for workers, and return how many the cluster lacks for all fits to run at once."""
    admission = Admission()
    for request in requests:
        admission.ask(request, places(names, limit))
    return admission.lacking(places(names, limit))


def test_workers_that_fits_lack_are_counted() -> None:
    assert lacking() == lacking(WorkerRequest("f", 0.0)) == 0
    assert lacking(WorkerRequest("f", 0.0), names="") == 1, "an empty cluster gets a first worker"
    assert lacking(WorkerRequest("f", 0.0), WorkerRequest("g", 1.0)) == 0, "it may wait for its turn"
    assert lacking(WorkerRequest("f", 0.0, n_ranks=6)) == 2
    assert lacking(WorkerRequest("f", 0.0, n_ranks=3), WorkerRequest("g", 1.0, n_ranks=3)) == 2
    assert lacking(WorkerRequest("f", 0.0, n_ranks=2, memory=3 * GB), names="ab", limit=4 * GB) == 0
    two = WorkerRequest("f", 0.0, n_ranks=2, memory=3 * GB), WorkerRequest("g", 1.0, n_ranks=2, memory=2 * GB)
    assert lacking(*two, names="ab", limit=4 * GB) == 2
    assert lacking(WorkerRequest("f", 0.0, n_ranks=2, allowed=("x", "y"))) == 0, "new workers have other names"
    assert lacking(WorkerRequest("f", 0.0, n_ranks=2, memory=5 * GB), names="a", limit=4 * GB) == 0


def test_a_fit_that_lost_workers_lacks_them_until_others_are_free() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=3), places("abc"))
    admission.take("f", ("a", "b"), places("ab"))
    assert admission.lacking(places("ab")) == 1
    assert admission.lacking(places("abd")) == 0
    assert admission.lacking(places("ab"), [WorkerRequest("soon", 1.0, n_ranks=2)]) == 3


requests = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(1, 4)),
        st.one_of(st.none(), st.lists(st.sampled_from(NAMES), min_size=1, unique=True).map(tuple)),
        st.one_of(st.none(), st.integers(1, 8)),
    ),
    min_size=1,
    max_size=8,
)


@given(requests, st.randoms(use_true_random=False))
def test_every_fit_has_its_turn_and_no_worker_is_promised_twice(drawn: list, random) -> None:
    """Fits ask in any order and end in any order: all are served that the cluster is large enough for."""
    admission, numbers, room = Admission(), count(), places(limit=8)
    open_ = [
        WorkerRequest(
            f"f{number}", float(number), None if ranks is None else min(ranks, len(allowed or NAMES)), allowed, memory
        )
        for number, (ranks, allowed, memory) in zip(numbers, drawn, strict=False)
    ]
    served = 0
    for _ in range(20 * len(drawn)):
        for request in random.sample(open_, len(open_)):
            admission.ask(request, room)
        for place in room:
            users = [admission.granted[fit] for fit, names in admission.held.items() if place.name in names]
            assert len(users) <= 1 or all(user.memory is not None for user in users)
            assert sum(user.memory or 0 for user in users) <= place.memory_limit or len(users) == 1
        for fit, names in admission.held.items():
            request = admission.granted[fit]
            assert len(names) == (request.n_ranks or len(request.allowed or NAMES))
        if admission.held:
            ended = random.choice(sorted(admission.held))
            admission.release(ended)
            open_ = [request for request in open_ if request.fit != ended]
            served += 1
        if not open_:
            break
    assert served == len(drawn)
    assert not admission.waiting


@pytest.mark.parametrize("memory", [None, 5])
def test_asking_again_changes_nothing(memory: int | None) -> None:
    admission = Admission()
    first = admission.ask(WorkerRequest("f", 0.0, n_ranks=2, memory=memory), places())
    assert admission.ask(WorkerRequest("f", 0.0, n_ranks=3, memory=memory), places()) == first


def test_a_worker_that_is_too_small_is_never_offered_again() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("all", 0.0), places())
    assert admission.exclude("all", places("b"), places())
    assert admission.held["all"] == ("a", "c", "d")
    assert admission.unavailable("all", places("abcde")) == {"b"}
    assert not admission.take("all", ["a", "b"], places())
    assert admission.ask(WorkerRequest("other", 1.0, n_ranks=1), places()).members == ("b",)
    assert not admission.exclude("all", places("acd"), places()), "it could use no other"
    assert admission.held["all"] == ("a", "c", "d")
    assert not admission.exclude("nobody", places("a"), places())


def test_the_largest_free_workers_take_the_place_of_one_that_is_too_small() -> None:
    sizes = [Place("a", 1 * GB), Place("b", 2 * GB), Place("c", 4 * GB), Place("d", 3 * GB)]
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=2), sizes)
    assert admission.exclude("f", sizes[:1], sizes)
    assert admission.held["f"] == ("b", "c")
    assert admission.exclude("f", sizes[1:2], sizes)
    assert admission.held["f"] == ("c", "d")
    assert admission.exclude("f", sizes[3:], sizes)
    assert admission.held["f"] == ("c",), "it goes on with fewer than it requested"
    assert admission.granted["f"].n_ranks == 1


def test_a_fit_whose_only_worker_is_too_small_waits_for_others() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=1), places("ab"))
    admission.ask(WorkerRequest("g", 1.0, n_ranks=1), places("ab"))
    assert admission.exclude("f", places("a"), places("ab"))
    assert "f" not in admission.held
    assert admission.lacking(places("ab")) == 1
    admission.release("g")
    admission.grant(places("ab"))
    assert admission.held == {"f": ("b",)}


def test_workers_that_are_smaller_than_what_a_rank_declares_are_no_candidates() -> None:
    sizes = [Place("a", 1 * GB), Place("b", 4 * GB), Place("c")]
    assert Admission().ask(WorkerRequest("f", 0.0, memory=2 * GB), sizes).members == ("b", "c")
    assert Admission().ask(WorkerRequest("f", 0.0, n_ranks=3, memory=2 * GB), sizes).missing == 1


def test_a_fit_that_asks_again_is_not_offered_what_is_too_small() -> None:
    registry, metadata = FitRegistry(), new_metadata("fit")

    def ask(names: str) -> tuple[str, ...]:
        found = registry.ask(metadata, {"n_ranks": 2}, "client", places(names))
        return tuple(found["members"])

    assert ask("ab") == ("a", "b")
    assert registry.exclude(metadata.fit, places("a"), places("ab"))
    registry.ended(metadata.fit, "", "")
    assert ask("a") == (), "it waits for another one"
    assert ask("ab") == ("b",)


def test_a_worker_that_comes_back_with_more_memory_is_offered_again() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=2), places("abc", 2 * GB))
    assert admission.exclude("f", places("a", 2 * GB), places("abc", 2 * GB))
    assert admission.held["f"] == ("b", "c")
    assert admission.unavailable("f", places("abc", 2 * GB)) == {"a"}
    assert admission.unavailable("f", [Place("a", 8 * GB), *places("bc", 2 * GB)]) == set()
    assert admission.take("f", ["a", "b"], [Place("a", 8 * GB), *places("bc", 2 * GB)])


def test_workers_of_a_fit_that_are_paused_or_restart_count_when_one_is_too_small() -> None:
    admission = Admission()
    admission.ask(WorkerRequest("f", 0.0, n_ranks=3), places("abc"))
    assert admission.exclude("f", places("a"), places("ab"))
    assert admission.held["f"] == ("b", "c")
    assert admission.granted["f"].n_ranks == 2
    assert admission.exclude("f", places("b"), places("ab")), "it goes on with the one that is not there now"
    assert admission.held["f"] == ("c",)
    assert not admission.exclude("f", places("c"), places("ab"))


def test_a_worker_with_too_little_memory_at_the_moment_is_offered_again_later() -> None:
    """Other programs may release memory of its host. Each wait is twice as long as the last, and at most an hour."""
    registry, metadata = FitRegistry(), new_metadata("fit")
    both, fit, now = places("ab"), metadata.fit, 0.0
    registry.ask(metadata, {}, "client", both)
    registry.exclude(fit, places("b"), both)
    registry.tidy({"client"}, 1e6)
    assert registry.admission.unavailable(fit, both) == {"b"}, "it is too small whatever is free"
    for wait_s in (60.0, 120.0, 240.0):
        registry.recall(fit, places("b"), now)
        registry.tidy({"client"}, now + wait_s - 1)
        assert registry.admission.unavailable(fit, both) == {"b"}
        now += wait_s
        registry.tidy({"client"}, now)
        assert registry.admission.unavailable(fit, both) == set()
        assert registry.admission.take(fit, ["a", "b"], both)
        registry.exclude(fit, places("b"), both)
    for _ in range(10):
        registry.recall(fit, places("b"), now)
    assert registry.records[fit].recalls[places("b")[0]].wait_s == 3600.0
