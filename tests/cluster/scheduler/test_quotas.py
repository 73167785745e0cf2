"""Quotas of users: what their fits may hold at once, and what a fit above its quota waits for."""

from itertools import count

import pytest

from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.sharing.admission import Admission
from daskkern.cluster.scheduler.sharing.quotas import Quota, Quotas, quotas_of
from daskkern.cluster.scheduler.sharing.requests import Place, Verdict, WorkerRequest
from daskkern.errors import SpecError

PLACES = [Place(name) for name in "abcdef"]
QUOTAS = Quotas(Quota(workers=3), {"anna": Quota(workers=4, fits=2), "root": Quota()})


class Asker:
    """Asks for workers, each time later."""

    def __init__(self, quotas: Quotas = QUOTAS) -> None:
        self.admission = Admission(quotas)
        self._times = count()

    def __call__(self, fit: str, user: str, n_ranks: int | None = None, priority: int = 0) -> Verdict:
        request = WorkerRequest(fit, float(next(self._times)), n_ranks, priority=priority, user=user)
        return self.admission.ask(request, PLACES)


def test_a_user_holds_no_more_workers_than_the_quota_says() -> None:
    ask = Asker()
    assert ask("f", "ben", 2).members == ("a", "b")
    waits = ask("g", "ben", 2)
    assert waits.members == ()
    assert waits.quota == "waiting for the quota of user 'ben': 2 of 3 workers are in use, and this fit needs 2"
    assert ask("h", "ben", 1).members == ("c",)
    assert ask("i", "cleo", 3).members == ("d", "e", "f"), "a fit above its quota blocks nobody"
    ask.admission.release("f")
    ask.admission.grant(PLACES)
    assert ask.admission.held["g"] == ("a", "b")


def test_a_fit_that_takes_every_worker_takes_what_the_quota_leaves() -> None:
    ask = Asker()
    assert ask("f", "ben").members == ("a", "b", "c")
    assert ask("g", "anna", 1).members == ("d",)
    assert ask("h", "anna").members == (), "it waits for three, which its quota leaves"
    ask.admission.release("f")
    ask.admission.grant(PLACES)
    assert ask.admission.held["h"] == ("a", "b", "c")
    assert Asker()("i", "root").members == tuple("abcdef")


def test_a_user_has_no_more_fits_than_the_quota_says() -> None:
    ask = Asker()
    for fit in "fg":
        assert ask(fit, "anna", 1).members
    assert ask("h", "anna", 1).quota == "waiting for the quota of user 'anna': 2 of 2 fits run"


def test_a_running_fit_does_not_grow_beyond_the_quota() -> None:
    ask = Asker()
    assert ask("f", "ben", 1).members == ("a",)
    assert ask("g", "ben", 1).members == ("b",)
    assert ask.admission.unavailable("g", PLACES) == set("adef")
    assert not ask.admission.take("g", ["b", "c", "d"], PLACES)
    assert ask.admission.take("g", ["b", "c"], PLACES)
    assert ask.admission.unavailable("g", PLACES) == set("adef")
    assert ask.admission.take("g", ["b"], PLACES)


def test_workers_that_a_quota_forbids_are_not_lacking() -> None:
    ask = Asker(Quotas(Quota(workers=8)))
    assert ask("f", "ben", 6).members
    ask("g", "ben", 6)
    assert ask.admission.lacking(PLACES) == 0
    ask("h", "cleo", 6)
    assert ask.admission.lacking(PLACES) == 6


def test_a_fit_above_its_quota_preempts_nobody() -> None:
    registry = FitRegistry(Quotas(Quota(workers=3)))
    assert request(registry, "f", "ben", 3)["members"]
    assert request(registry, "g", "cleo", 3)["members"]
    assert request(registry, "h", "ben", 1, priority=9)["quota"]
    assert registry.preemption.requested == {}
    assert request(registry, "i", "dora", 1, priority=9)["preempts"] == ["g"]


def test_a_fit_that_can_never_run_is_refused() -> None:
    registry = FitRegistry(QUOTAS)
    assert request(registry, "f", "ben", 4)["refused"] == (
        "got a request for 4 workers with the quota of 3 for user 'ben'; request at most 3 (--ranks), or ask the "
        "cluster's owner for more"
    )
    assert "refused" not in request(registry, "g", "anna", 4)
    nothing = FitRegistry(Quotas(users={"ben": Quota(workers=0)}))
    assert "allows user 'ben' no fits" in request(nothing, "f", "ben", None)["refused"]


def request(registry: FitRegistry, fit: str, user: str, n_ranks: int | None, priority: int = 0) -> dict[str, object]:
    metadata = FitMetadata(fit, fit, user=user, priority=priority)
    return registry.ask(metadata, {"n_ranks": n_ranks}, f"client of {fit}", PLACES)


def test_quotas_come_from_a_configuration() -> None:
    assert quotas_of(None) == quotas_of({}) == Quotas()
    found = quotas_of({"workers": 3, "users": {"anna": {"workers": 4, "fits": 2}, "root": {"workers": None}}})
    assert found == QUOTAS
    assert found.of("anyone") == Quota(workers=3)
    assert quotas_of({"fits": 2, "users": {"ben": {"workers": 1}}}).of("ben") == Quota(workers=1, fits=2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (8, "got 8 as daskkern.quotas"),
        ({"worker": 8}, "got worker in daskkern.quotas .*; known are fits, users, workers"),
        ({"workers": "8"}, "got workers: '8' in daskkern.quotas .*; expected a whole number of 0 or more, or null"),
        ({"fits": True}, "got fits: True"),
        ({"users": ["anna"]}, "as users of daskkern.quotas"),
        ({"users": {"anna": {"workers": -1}}}, "got workers: -1 in user 'anna'"),
        ({"users": {"anna": {"users": {}}}}, "got users in user 'anna'; known are fits, workers"),
    ],
)
def test_nonsense_is_refused(config: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        quotas_of(config)
