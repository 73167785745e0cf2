"""Events as JSON lines, for log collectors and scripts."""

import errno
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from daskkern.errors import StoreError
from daskkern.events import BatchFinished, Event, Listener, to_message

_INTERVAL_S = 1.0
_LONGEST = 1 << 22


@contextmanager
def json_lines(place: str) -> Iterator[Listener]:
    """Yield a listener that appends a JSON object for each event to a file, or writes it to stdout for "-".

    Each has `time` (ISO 8601, UTC), `event` (its kind) and the event's fields, with null for NaN. At most one batch
    event a second is written, and the last one before another event.

    Raises
    ------
    StoreError
        When the file cannot be opened, or is not a log of events.
    """
    if place == "-":
        yield JsonLines(sys.stdout)
        return
    check_log(place)
    try:
        file = open(place, "a", encoding="utf-8")  # noqa: SIM115 - closing it may fail as writing did
    except OSError as error:
        raise StoreError(f"the log {place} cannot be written: {error.strerror}; give another place") from None
    try:
        yield JsonLines(file)
    finally:
        with suppress(OSError):
            file.close()


def check_log(place: str) -> None:
    """Raise StoreError if a log cannot be written to `place`, or the file there does not begin like a log of events."""
    if os.path.isdir(place) or not os.path.isdir(os.path.dirname(os.path.abspath(place))):
        why = os.strerror(errno.EISDIR if os.path.isdir(place) else errno.ENOENT)
        raise StoreError(f"the log {place} cannot be written: {why}; give another place")
    if not os.path.isfile(place):  # devices and pipes hold no data that could be damaged
        return
    try:
        with open(place, encoding="utf-8", errors="replace") as file:
            first = file.readline(_LONGEST)
    except OSError as error:
        raise StoreError(f"the log {place} cannot be read: {error.strerror}; give another place") from None
    if first and not _is_ours(first):
        raise StoreError(f"{place} exists and is not a log of events, so nothing is added to it; choose another name")


def _is_ours(line: str) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and {"time", "event"} <= found.keys()


class JsonLines:
    """A listener that writes events to an open text file. A failure to write ends the log, not the fit.

    Parameters
    ----------
    stream : file
    clock : callable
        Returns seconds since 1970.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        self._stream, self._clock = stream, clock
        self._written = -math.inf
        self._held: tuple[float, BatchFinished] | None = None
        self._broken = False

    def __call__(self, event: Event) -> None:
        """Write `event`."""
        now = self._clock()
        if isinstance(event, BatchFinished):
            if now - self._written < _INTERVAL_S:
                self._held = now, event
                return
            self._written = now
        elif self._held is not None:
            self._write(*self._held)
        self._held = None
        self._write(now, event)

    def _write(self, now: float, event: Event) -> None:
        if self._broken:
            return
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        try:
            print(
                json.dumps({"time": stamp, **_plain(to_message(event))}, allow_nan=False), file=self._stream, flush=True
            )
        except OSError as error:
            self._broken = True
            with suppress(OSError):
                print(f"the JSON log ends here: it cannot be written: {error.strerror}", file=sys.stderr)


def _plain(value: Any) -> Any:
    """Return `value` with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
