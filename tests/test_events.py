"""Events cross the wire as flat messages and come back the same."""

import json

import pytest

from daskkern.events import CheckpointWritten, Event, RankReported, SpectrumFound, from_message, to_message

EVENTS = [
    SpectrumFound(500, (0.5, 0.25), (0.25, 0.25), 128, 61.5, 12.0),
    RankReported(1, "tcp://10.0.0.1:4000", "cpu", 10**9, 2 * 10**9, 0.5),
    CheckpointWritten(2, 7, 0.25),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_a_message_of_json(event: Event) -> None:
    assert from_message(json.loads(json.dumps(to_message(event)))) == event


def test_a_message_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a kind of event"):
        from_message({"event": "Unheard"})
    with pytest.raises(ValueError, match="does not have these fields"):
        from_message({"event": "CheckpointWritten", "epoch": 1, "pages": 3})
