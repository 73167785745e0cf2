"""The outcomes so far, one line each, so that a long run can be cut and continued."""

import json
from pathlib import Path

from tests.nasty.outcomes import Outcome


def read(path: Path) -> dict[str, Outcome]:
    """Return the outcomes by their keys; of a case that was run again, the last."""
    if not path.exists():
        return {}
    records = (json.loads(line) for line in path.read_text().splitlines())
    return {record["key"]: Outcome(**{**record, "losses": tuple(record["losses"])}) for record in records}


def add(path: Path, outcome: Outcome) -> None:
    """Append an outcome."""
    with path.open("a") as lines:
        lines.write(json.dumps(outcome.to_json()) + "\n")
