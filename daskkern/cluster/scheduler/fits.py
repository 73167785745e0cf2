"""The scheduler's record of each fit: who submitted it, its progress, and its events."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from daskkern.cluster.scheduler.history import FitHistory
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.sharing.requests import Place
from daskkern.display import html_facts
from daskkern.errors import ClusterError, SpecError, without_secrets
from daskkern.events import CheckpointWritten, Event, RankReported, from_message, to_message

SUBMITTED, QUEUED, PREPARING, RUNNING, RECOVERING = "submitted", "queued", "preparing", "running", "recovering"
PREEMPTED = "preempted"
ACTIVE = frozenset({SUBMITTED, QUEUED, PREPARING, RUNNING, RECOVERING, PREEMPTED})
FINISHED, INTERRUPTED, CANCELLED, FAILED, LOST = "finished", "interrupted", "cancelled", "failed", "lost"

STARTED = "gang"
"""Key of what a supervisor publishes on the fit's topic once its ranks are submitted: its own address."""

_EVENTS = 5_000
"""Events kept of one fit: ranks send one for each epoch and stage; events of batches are not among them."""
_TEXT = 4_000
"""Characters kept of a text in an event, which may be a traceback."""
_NUMBERS = 10_000
"""Entries kept of a list in an event, such as eigenvalues."""


@dataclass(frozen=True)
class Recall:
    """When a worker is offered to a fit again that has left it out, in seconds since 1970, and the wait until then."""

    time: float
    wait_s: float


@dataclass(frozen=True, repr=False)
class FitStatus:
    """The status of a fit, as the scheduler reports it to any client.

    Attributes
    ----------
    metadata : FitMetadata
    state : str
        "submitted", "queued", "preparing", "running", "recovering" or "preempted"; then "finished", "interrupted",
        "cancelled", "failed" or "lost".
    submitted, started, ended : float
        Seconds since 1970; 0.0 for what has not happened yet.
    workers : tuple of str
        Names of the workers that it holds, in rank order.
    ahead : tuple of str
        Fits that it waits for.
    epoch, batch, n_batches, loss, rows_per_second
        Of the last batch that was reported.
    validation_score : float
        Of the last epoch; NaN without validation rows.
    lost : int
        How often its gang has broken up.
    error : str
        Why it failed.
    seconds_left : float
        Until its last epoch ends, at the pace of its last batches; NaN where unknown.
    stop : str
        "stop" or "abort" if it was asked to end.
    time_shares : mapping
        The share of each of :data:`daskkern.events.PARTS_OF_TIME` in the last epoch; empty before the first ends.
    preempted : int
        How often it has handed all its workers over to a fit of a higher priority.
    quota : str
        The quota that it waits for, in a sentence; "" for none.
    waits : str
        What it waits for, in a sentence: workers, other fits, or a quota; "" for nothing.
    """

    metadata: FitMetadata
    state: str = SUBMITTED
    submitted: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    workers: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    epoch: int = 0
    batch: int = 0
    n_batches: int = 0
    loss: float = float("nan")
    rows_per_second: float = 0.0
    validation_score: float = float("nan")
    lost: int = 0
    error: str = ""
    seconds_left: float = float("nan")
    stop: str = ""
    time_shares: Mapping[str, float] = field(default_factory=dict)
    preempted: int = 0
    quota: str = ""
    waits: str = ""

    @property
    def active(self) -> bool:
        """Whether it has not ended."""
        return self.state in ACTIVE

    def __repr__(self) -> str:
        return f"<FitStatus: {self.metadata.fit} ({self.metadata.name}), {self.state}{self._progress(', ')}>"

    def _repr_html_(self) -> str:
        facts = [
            ("state", self.state),
            ("rows from", without_secrets(self.metadata.source)),
            ("model", without_secrets(self.metadata.out)),
            ("progress", self._progress()),
            ("loss", f"{self.loss:.4g}" if self.loss == self.loss else ""),
            ("validation", f"{self.validation_score:.4f}" if self.validation_score == self.validation_score else ""),
            ("rate", f"{self.rows_per_second:,.0f} rows/s" if self.rows_per_second else ""),
            ("workers", ", ".join(self.workers)),
            ("waits for", self.waits.removeprefix("waiting for ")),
            ("error", self.error),
        ]
        return html_facts(f"fit {self.metadata.fit} ({self.metadata.name})", facts)

    def _progress(self, before: str = "") -> str:
        of = f"/{self.metadata.max_epochs}" if self.metadata.max_epochs else ""
        return f"{before}epoch {self.epoch}{of}" if self.epoch else ""

    def to_message(self) -> dict[str, Any]:
        """Return it as plain values that msgpack and JSON can carry."""
        plain = {"card": dict(vars(self.metadata)), **vars(self), "time_shares": dict(self.time_shares)}
        del plain["metadata"]
        return plain

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> "FitStatus":
        """Rebuild it from :meth:`to_message`. Raises ClusterError for a message of an incompatible version."""
        values = dict(message)
        try:
            metadata = FitMetadata(**values.pop("card"))
            known = {f.name for f in fields(cls)}
            listed = {"workers", "ahead"}
            taken: dict[str, Any] = {k: tuple(v) if k in listed else v for k, v in values.items() if k in known}
            return cls(metadata, **taken)
        except (KeyError, TypeError, SpecError) as error:
            raise ClusterError(
                f"got the status of a fit in a format that this version does not know ({error}); "
                "install the same daskkern on both"
            ) from None


@dataclass
class FitRecord:
    """The scheduler's record of one fit. Changed by its event loop only."""

    metadata: FitMetadata
    state: str = SUBMITTED
    submitted: float = field(default_factory=time.time)
    started: float = 0.0
    ended: float = 0.0
    client: str = ""
    """The client whose connection holds the fit: the fit ends with it."""
    task: str = ""
    """The task that drives a detached fit."""
    losses: int = 0
    """Workers that died under its driver since its last batch."""
    preempted: int = 0
    """How often it has handed all its workers over."""
    stop: str = ""
    """"stop" or "abort", if the fit was asked to end."""
    lost: int = 0
    error: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Numbers of the events in order of arrival: some are no longer kept."""
    n_events: int = 0
    """Number of events so far."""
    latest: dict[str, Any] = field(default_factory=dict)
    """The last batch."""
    reason: str = ""
    score: float = float("nan")
    farthest: tuple[int, int] = (0, 0)
    handed_over: tuple[int, tuple[str, ...]] = (-1, ())
    """Of the last supervisor that left: the generation that had committed, and the workers that continue."""
    excluded: frozenset[Place] = frozenset()
    """Workers that have too little memory for a part of it."""
    recalls: dict[Place, Recall] = field(default_factory=dict)
    """Those of them to which other programs left too little."""
    history: FitHistory = field(default_factory=FitHistory)

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def note(self, message: Mapping[str, Any]) -> bool:
        """Record an event of the fit, as :func:`daskkern.events.to_message` wrote it. Return whether it is progress."""
        if not self.active:
            return False
        kind = message.get("event")
        self.history.note(message)
        if kind == "BatchFinished":
            self.latest = dict(message)
            at = (int(message["epoch"]), int(message["batch"]))
            forward, self.farthest = at > self.farthest, max(at, self.farthest)
            return forward
        if kind == "RankReported":
            return False
        self._keep({**message, "time": time.time()})
        match kind:
            case "FitStarted" | "FitResumed":
                self.state, self.started = RUNNING, self.started or time.time()
            case "WorkersLost":
                self.state, self.lost = RECOVERING, self.lost + 1
            case "FitPreempted":
                self.preempted += 1
            case "EpochFinished":
                self.score = float(message.get("validation_score", float("nan")))
            case "FitFinished":
                self.reason = str(message.get("reason", ""))
        return False

    def prospects(self) -> tuple[float, float]:
        """Return the seconds until the fit ends, and those that forming its gang has taken, until its first batch.

        The first is infinite without a number of epochs, and NaN before the pace is known.
        """
        most = self.metadata.max_epochs
        return self.history.seconds_left(most) if most > 0 else float("inf"), self.history.formation_s

    def end(self, state: str, error: str = "") -> None:
        """Record how it ended. Only the first call counts."""
        if self.active:
            self.state = INTERRUPTED if state == FINISHED and self.reason == "interrupted" else state
            self.ended, self.error = time.time(), error
            self.history.close()

    def _keep(self, event: dict[str, Any]) -> None:
        """Store an event. Of successive checkpoints only the last is kept: there is one every half minute."""
        if self.events and self.events[-1]["event"] == event["event"] == CheckpointWritten.__name__:
            del self.events[-1], self.numbers[-1]
        self.events.append(event)
        self.numbers.append(self.n_events)
        self.n_events += 1
        del self.events[:-_EVENTS], self.numbers[:-_EVENTS]

    def status(self, workers: tuple[str, ...], ahead: tuple[str, ...], quota: str = "", waits: str = "") -> FitStatus:
        """Return the public status."""
        latest = self.latest
        return FitStatus(
            self.metadata,
            self.state,
            self.submitted,
            self.started,
            self.ended,
            workers,
            ahead,
            int(latest.get("epoch", 0)),
            int(latest.get("batch", 0)),
            int(latest.get("n_batches", 0)),
            float(latest.get("loss", float("nan"))),
            float(latest.get("rows_per_second", 0.0)),
            self.score,
            self.lost,
            self.error,
            self.history.seconds_left(self.metadata.max_epochs) if self.active else float("nan"),
            self.stop,
            self.history.time_shares,
            self.preempted,
            quota,
            waits,
        )


def event_of(message: Mapping[str, Any]) -> Event:
    """Rebuild an event from a message that went through Dask, which adds a time, and the worker that sent it.

    Raises ValueError for an unknown kind or field, or a value of another type.
    """
    added = {"time"} if message.get("event") == RankReported.__name__ else {"time", "worker"}
    return from_message({key: value for key, value in message.items() if key not in added})


def checked(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the event of a message that went through Dask, of bounded size; None if it is not an event of a fit."""
    try:
        event = to_message(event_of(message))
    except ValueError:
        return None
    if any(isinstance(value, tuple) and len(value) > _NUMBERS for value in event.values()):
        return None
    return {name: value[:_TEXT] if isinstance(value, str) else value for name, value in event.items()}
