"""Names are the field's: words that were replaced do not come back, and the glossary stays short."""

import io
import re
import tokenize
from pathlib import Path

import pytest

import daskkern

PACKAGE = Path(daskkern.__file__).parent
GLOSSARY = PACKAGE.parent / "docs" / "glossary.md"
MOST_TERMS = 30
RETIRED = {
    "Attendance": "GangClient",
    "Carried": "PartialFitState",
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
    "Tally": "MetricAccumulator",
    "Thinned": "Downsampled",
    "Vault": "CommitCache",
    "Wish": "WorkerRequest",
    "Wishes": "ControlSignals",
}
"""Names of version 0.1 and what they are called now."""


def _identifiers(path: Path) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_replaced_names_do_not_come_back() -> None:
    found = {path: names for path in PACKAGE.rglob("*.py") if (names := _identifiers(path) & RETIRED.keys())}
    assert found == {}


def test_the_new_names_exist() -> None:
    names = set().union(*(_identifiers(path) for path in PACKAGE.rglob("*.py")))
    assert set(RETIRED.values()) <= names


@pytest.mark.skipif(not GLOSSARY.exists(), reason="the glossary lies in the repository: run the tests from a clone")
def test_the_glossary_is_short_and_sorted() -> None:
    terms = re.findall(r"^\| (?!term|---)([^|]+) \|", GLOSSARY.read_text(), re.MULTILINE)
    assert 20 <= len(terms) <= MOST_TERMS
    assert terms == sorted(terms)
