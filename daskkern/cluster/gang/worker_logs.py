"""The latest log lines of daskkern on a worker, each with its fit and role."""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from daskkern.errors import without_secrets

LOG = logging.getLogger("daskkern.gang")
"""Of ranks, supervisors and drivers."""

_ROOT = "daskkern"
_LINES = 2_000
_TEXT = 4_000
"""Characters kept of one entry, which may be a traceback."""

_TAGS: dict[int, tuple[str, str, str]] = {}


@dataclass(frozen=True)
class LogEntry:
    """One entry: its number on this worker, its time in seconds since 1970, level, role and text.

    `role` is "rank 0", "supervisor" or "driver", and "" for a thread that one of them has started.
    """

    number: int
    time: float
    level: str
    role: str
    text: str


@contextmanager
def logged_as(fit: str, role: str, worker: str) -> Iterator[None]:
    """Let what this thread logs within the context belong to `role` of `fit` on the worker at this address."""
    thread = threading.get_ident()
    before = _TAGS.get(thread)
    _TAGS[thread] = (fit, role, worker)
    try:
        yield
    finally:
        if before is None:
            _TAGS.pop(thread, None)
        else:
            _TAGS[thread] = before


class WorkerLogs(logging.Handler):
    """Keeps the last entries of daskkern's loggers in this process that belong to fits on the worker at `address`.

    Other threads than those of ranks, supervisors and drivers do not know their fit: their entries belong to it where
    the worker has only one.
    """

    def __init__(self, address: str) -> None:
        super().__init__(logging.INFO)
        self._address, self._numbers = address, count(1)
        self._kept: deque[tuple[str, LogEntry]] = deque(maxlen=_LINES)
        self._level_before: int | None = None

    def attach(self) -> None:
        """Listen to daskkern's loggers, which from now on let information pass."""
        logger = logging.getLogger(_ROOT)
        if logger.level == logging.NOTSET:
            self._level_before = logger.level
            logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def detach(self) -> None:
        """Stop listening."""
        logger = logging.getLogger(_ROOT)
        logger.removeHandler(self)
        if self._level_before is not None:
            logger.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an entry, without secrets of URLs."""
        tag = _TAGS.get(record.thread or 0)
        if tag is None:
            fits = {fit for fit, _, worker in list(_TAGS.values()) if worker == self._address}
            tag = (next(iter(fits)), "", self._address) if len(fits) == 1 else None
        if tag is None or tag[2] != self._address:
            return
        try:
            text = without_secrets(self.format(record))[:_TEXT]
        except Exception:  # arguments that do not fit the text, as elsewhere in logging
            self.handleError(record)
            return
        entry = LogEntry(next(self._numbers), record.created, record.levelname, tag[1], text)
        self._kept.append((tag[0], entry))

    def of(self, fit: str, since: int = 0) -> list[LogEntry]:
        """Return the entries of `fit` with numbers above `since`, oldest first."""
        return [entry for owner, entry in list(self._kept) if owner == fit and entry.number > since]
