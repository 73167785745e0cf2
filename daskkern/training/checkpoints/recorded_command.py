"""The command that started a fit, as recorded in its checkpoint, so that the fit can be continued without it.

It is a group of a checkpoint, ``resumption``, whose attributes are written in one piece. They come from a file that
anybody may have written: a reader takes only plain values of the expected types, and of these only what a fit's command
line may say. They hold no secrets of URLs: credentials are those of the process that continues.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import psutil
import zarr

from daskkern.data.remote.stores import absolute, is_url, public
from daskkern.errors import StoreError
from daskkern.training.checkpoints.claims import attributes_in, put_attributes

_NAME = "resumption"
_MOST = 1 << 16
"""Most characters of all of it as JSON."""

Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Resumption:
    """The command that began a fit.

    Attributes
    ----------
    store : str
        Absolute path or URL of the training rows.
    options : mapping
        Options of the fit by name, as a file of settings has them.
    validation : str or None
        Absolute path or URL of validation rows.
    out : str or None
        Where the model goes; None next to the checkpoint, ``MODEL`` for ``MODEL.checkpoint``.
    name : str or None
        What the dashboard calls the fit.
    ranks : int or None
    share : bool
    detached : bool
    priority : int
    user : str
        The user whose quota counts; "" in checkpoints of versions without quotas.
    rows : mapping
        What the command named of rows that are not in a store, by option: names with commas between them.
    host, pid, since
        The process that runs it, and when that process began; "" and 0 for a detached fit.
    """

    store: str
    options: Mapping[str, Plain] = field(default_factory=dict)
    validation: str | None = None
    out: str | None = None
    name: str | None = None
    ranks: int | None = None
    share: bool = False
    detached: bool = False
    priority: int = 0
    user: str = ""
    host: str = ""
    pid: int = 0
    since: float = 0.0
    rows: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether the process that began it is still there, on this machine."""
        if self.host != socket.gethostname() or self.pid == os.getpid():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.since) < 1.0
        except (psutil.Error, ValueError, OverflowError):
            return False


def resumption_of(
    store: str,
    options: Mapping[str, Any],
    *,
    validation: str | None,
    out: str | None,
    name: str | None,
    ranks: int | None,
    share: bool,
    detached: bool,
    priority: int = 0,
    user: str = "",
    rows: Mapping[str, Any] | None = None,
) -> Resumption | None:
    """Return the record of a fit that begins now, without secrets; None where `options` are not plain values."""
    if not all(isinstance(value, Plain) for value in options.values()):
        return None
    places = [None if place is None else public(absolute(place)) for place in (store, validation, out)]
    assert places[0] is not None
    process = psutil.Process()
    here = ("", 0, 0.0) if detached else (socket.gethostname(), process.pid, process.create_time())
    words = (name, ranks, share, detached, priority, user)
    named = {key: ",".join(value) if isinstance(value, tuple) else str(value) for key, value in (rows or {}).items()}
    return replace(Resumption(places[0], dict(options), places[1], places[2], *words, *here), rows=named)


def write_resumption(group: zarr.Group, record: Resumption) -> None:
    """Store a record in a checkpoint, in place of an older one."""
    put_attributes(group, _NAME, asdict(record))


def read_resumption(group: zarr.Group, location: str) -> Resumption | None:
    """Return the record in the checkpoint `group` at `location`; None without one.

    Raises
    ------
    StoreError
        When it has other fields or types than a record.
    """
    values = attributes_in(group, _NAME)
    if not values:
        return None
    try:
        if len(json.dumps(values)) > _MOST:
            raise ValueError("it is too long")
        record = Resumption(**values)
        _check(record)
    except (TypeError, ValueError) as error:
        raise StoreError(f"the record of the command in the checkpoint {location} is damaged: {error}") from None
    return record


def _check(record: Resumption) -> None:
    """Raise ValueError for values that no fit has written."""
    wanted: dict[str, Any] = {item.name: str | None for item in fields(Resumption)}
    wanted |= {"store": str, "options": dict, "ranks": int | None, "share": bool, "detached": bool}
    wanted |= {"rows": dict, "priority": int, "user": str, "host": str, "pid": int, "since": float | int}
    for name, kind in wanted.items():
        value = getattr(record, name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{name} is {type(value).__name__}")
    if not all(isinstance(text, str) for item in record.rows.items() for text in item):
        raise ValueError("rows are not plain")
    for place in (record.store, record.validation, record.out):
        if place is not None and not (is_url(place) or os.path.isabs(place)):
            raise ValueError(f"{place!r} is neither an absolute path nor a URL")
    for key, value in record.options.items():
        if not isinstance(key, str) or not isinstance(value, Plain) or "=" in key:
            raise ValueError(f"the option {key!r} is not plain")
