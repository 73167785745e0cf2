"""What a fit waits for is said in a sentence, in its status and so on the page of fits."""

from dataclasses import asdict

import pytest

from daskkern.cluster.scheduler.fits import FitStatus
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.sharing.requests import Place
from daskkern.cluster.scheduler.sharing.waiting import waiting_in_words
from daskkern.errors import SpecError

_FIRST, _SECOND = "0123456789ab", "ba9876543210"


def _waits(registry: FitRegistry, places: list[Place]) -> dict[str, str]:
    statuses = [FitStatus.from_message(message) for message in registry.messages(places)]
    return {status.metadata.fit: status.waits for status in statuses}


def test_a_fit_waits_for_workers_then_for_another_fit() -> None:
    registry, places = FitRegistry(), [Place("0"), Place("1")]
    registry.ask(FitMetadata(_FIRST, "prices"), {"n_ranks": 2}, "a", places)
    registry.ask(FitMetadata(_SECOND, "delays"), {"n_ranks": 3}, "b", places)
    assert _waits(registry, places) == {_FIRST: "", _SECOND: "waiting for 1 more worker to join the cluster"}
    there = [*places, Place("2")]
    uses = f"waiting for 1 fit that uses the workers or comes first: prices ({_FIRST})"
    assert _waits(registry, there)[_SECOND] == uses
    registry.ended(_FIRST, "finished", "")
    registry.ask(FitMetadata(_SECOND, "delays"), {"n_ranks": 3}, "b", there)
    assert _waits(registry, there)[_SECOND] == ""


def test_a_detached_fit_without_any_worker_waits_for_one() -> None:
    registry = FitRegistry()
    registry.record(FitMetadata(_FIRST, "prices", detached=True))
    registry.record(FitMetadata(_SECOND, "delays"))
    assert _waits(registry, []) == {_FIRST: "waiting for a worker to join the cluster", _SECOND: ""}
    assert _waits(registry, [Place("0")])[_FIRST] == ""


def test_sentences_are_those_of_their_reasons() -> None:
    assert waiting_in_words("", 0, ()) == ""
    assert waiting_in_words("waiting for a quota", 2, ("a",)) == "waiting for a quota"
    two = "waiting for 2 fits that use the workers or come first: a, b; a cannot be preempted: it has no checkpoint"
    assert waiting_in_words("", 0, ("a", "b"), obstacles={"a": "it has no checkpoint"}) == two
    hand_over = "waiting for fits of a lower priority to commit and to hand workers over: A"
    assert waiting_in_words("", 0, ("a",), ("a",), name_of=str.upper) == hand_over


def test_settings_of_a_fit_come_as_a_few_short_texts() -> None:
    metadata = FitMetadata(_FIRST, "prices", settings={"loss": "squared"})
    assert FitMetadata(**asdict(metadata)) == metadata
    for wrong in ([("loss", "squared")], {"loss": 1}, {"loss": 501 * "a"}, {str(i): "" for i in range(101)}, {1: "a"}):
        with pytest.raises(SpecError, match="the settings of a fit are"):
            FitMetadata(_FIRST, "prices", settings=wrong)  # type: ignore[arg-type]
