"""The provenance of a store: a readable record of how it was made."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import zarr

from daskkern import __version__
from daskkern.data.remote.stores import public

Provenance: TypeAlias = Mapping[str, str | int | float | bool | list[str] | None]


def made_now(command: str, sources: Iterable[object]) -> Provenance:
    """Return the provenance of a store that `command` makes now from `sources`, without secrets of URLs."""
    return {
        "by": f"daskkern {__version__} {command}",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "from": [public(str(source)) for source in sources],
    }


def recorded(group: zarr.Group) -> Mapping[str, Any]:
    """Return the recorded provenance of a store, empty when there is none."""
    found = group.attrs.asdict().get("provenance")
    return found if isinstance(found, dict) else {}
