"""Names are the field's: words that were replaced do not come back, and the glossary stays short."""

import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

import daskkern

PACKAGE = Path(daskkern.__file__).parent
GLOSSARY = PACKAGE.parent / "docs" / "glossary.md"
MOST_TERMS = 30
RETIRED = {
    "Attendance": "GangClient",
    "Carried": "PartialFitState",
    "Conductors": "DetachedDrivers",
    "Deal": "BlockCyclicLayout",
    "Desk": "RankContext",
    "FitBook": "FitRegistry",
    "FitCard": "FitMetadata",
    "KeptBlocks": "BlockCache",
    "KeptRows": "RowCache",
    "Likeness": "TableSchema",
    "Moment": "TimedEvent",
    "Post": "PeerTransport",
    "Pulse": "HeartbeatMonitor",
    "Room": "WorkerResources",
    "Safety": "CheckpointPolicy",
    "Standing": "FitProgress",
    "Tally": "MetricAccumulator",
    "Thinned": "Downsampled",
    "Vault": "CommitCache",
    "Wish": "WorkerRequest",
    "Wishes": "ControlSignals",
}
"""Names of version 0.1 and what they are called now."""
RETIRED_WORDS = {
    "anew": "reshuffle, again",
    "asked": "requested",
    "attendance": "gang client",
    "book": "registry",
    "card": "metadata",
    "conductor": "driver",
    "conductors": "drivers",
    "courier": "transport",
    "couriers": "transports",
    "deal": "layout, assign",
    "deals": "parallelism",
    "dealt": "distributed, reshuffled",
    "desk": "context",
    "hearsay": "secondary",
    "hush": "silence",
    "hushed": "silenced",
    "keeper": "checkpointing",
    "likeness": "schema, eigenvalue ratio",
    "mending": "remedy",
    "mutual": "direct",
    "outlook": "upper bound of the plan",
    "post": "transport",
    "posts": "transports",
    "pulse": "heartbeat monitor",
    "roomiest": "with most memory",
    "rooms": "resources",
    "tally": "accumulator",
    "teller": "notifier",
    "thinned": "downsampled",
    "told": "reported",
    "vault": "commit cache",
    "vaults": "commit caches",
    "truths": "booleans",
    "wish": "request",
    "wished": "requested",
    "wishes": "requests, signals",
}
"""Words that identifiers had, and the terms of the field for them."""
WIRE = {
    "cluster/scheduler/lease.py": {"card", "wish"},
    "cluster/scheduler/plugin.py": {"card", "wish"},
}
"""Keys of messages between clients and the scheduler: the protocol keeps its words."""


def _words(identifiers: set[str]) -> set[str]:
    split = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in identifiers if name[:2] != "__")
    return {word for name in split for word in name.split("_")}


@cache
def _identifiers(path: Path) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_replaced_names_do_not_come_back() -> None:
    found = {path: names for path in PACKAGE.rglob("*.py") if (names := _identifiers(path) & RETIRED.keys())}
    assert found == {}


def test_replaced_words_do_not_come_back_as_parts_of_names() -> None:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        words = _words(_identifiers(path) | {path.stem}) & RETIRED_WORDS.keys()
        if words != WIRE.get(name, set()):
            found[name] = words
    assert found == {}


def test_words_are_parts_of_names() -> None:
    assert _words({"_Outlook", "draws_anew", "FitBook", "__post_init__"}) == {
        "",
        "outlook",
        "draws",
        "anew",
        "fit",
        "book",
    }


def test_the_new_names_exist() -> None:
    names = set().union(*(_identifiers(path) for path in PACKAGE.rglob("*.py")))
    assert set(RETIRED.values()) <= names


@pytest.mark.skipif(not GLOSSARY.exists(), reason="the glossary lies in the repository: run the tests from a clone")
def test_the_glossary_is_short_and_sorted() -> None:
    terms = re.findall(r"^\| (?!term|---)([^|]+) \|", GLOSSARY.read_text(), re.MULTILINE)
    assert 20 <= len(terms) <= MOST_TERMS
    assert terms == sorted(terms)
