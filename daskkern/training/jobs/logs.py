"""The log lines of a fit on the workers of a cluster, read by a client."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client

from daskkern.cluster.connect.membership import answers_of, live_workers
from daskkern.cluster.gang.worker_logs import LogEntry
from daskkern.cluster.gang.worker_plugin import logs_of

_ANSWER_S = 10.0


@dataclass(frozen=True, order=True)
class LogLine:
    """An entry of a worker's log: seconds since 1970, the worker's name, the role there, the level and the text."""

    time: float
    worker: str
    role: str
    level: str
    text: str


@dataclass(frozen=True)
class LogPage:
    """The lines since the last page, oldest first; how far each worker was read; and the workers without an answer."""

    lines: tuple[LogLine, ...]
    read: Mapping[str, int]
    silent: tuple[str, ...]


def read_logs(client: Client, fit: str, read: Mapping[str, int] | None = None) -> LogPage:
    """Return what the live workers have logged about `fit`; those that have left took their lines with them.

    Parameters
    ----------
    read : mapping or None
        How far each worker was read, from the page before.

    Raises
    ------
    ClusterError
        When the scheduler does not answer.
    """
    workers, read = live_workers(client), dict(read or {})
    answers = answers_of(client, list(workers), _ANSWER_S, _entries, fit, read)
    found: set[LogLine] = set()  # workers of one process have the same entries
    silent = []
    for address, answer in answers.items():
        name = str(workers[address]["name"])
        if not isinstance(answer, list):
            silent.append(name)
            continue
        entries = tuple(_checked(answer))
        found |= {LogLine(entry.time, name, entry.role, entry.level, entry.text) for entry in entries}
        read[address] = max((entry.number for entry in entries), default=read.get(address, 0))
    return LogPage(tuple(sorted(found)), read, tuple(silent))


def _entries(fit: str, read: Mapping[str, int], dask_worker: Any = None) -> list[tuple[int, float, str, str, str]]:
    entries = logs_of(dask_worker, fit, read.get(dask_worker.address, 0))
    return [(entry.number, entry.time, entry.level, entry.role, entry.text) for entry in entries]


def _checked(answer: Iterable[Any]) -> Iterable[LogEntry]:
    for number, at, level, role, text in answer:
        yield LogEntry(int(number), float(at), str(level), str(role), str(text))
