"""Run one function on many workers at once, as the ranks of a gang that talk to each other."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from daskkern.cluster.membership import choose_workers, live_workers, tell_workers
from daskkern.cluster.plugin import install
from daskkern.cluster.rank import RankMain
from daskkern.cluster.supervisor import STARTED, GangOrder, GangReport, supervise
from daskkern.errors import ClusterError, SpecError
from daskkern.events import Listener, from_message, silent

_TICK_S = 0.1
_LOOK_S = 0.5
_PRIORITY = 10


@dataclass(frozen=True)
class GangSettings:
    """How a gang is formed, and how long it waits.

    Parameters
    ----------
    n_ranks
        How many ranks to run, one a worker. None takes every worker.
    workers
        Addresses or names of the workers to choose from, in rank order. None is all of them.
    collective_timeout_s
        How long a collective waits for its peers; longer than the longest step of the slowest rank.
    start_timeout_s
        How long to wait until all ranks run; a worker may be busy with other tasks.
    stop_grace_s
        How long the ranks may go on after an interrupt before they are aborted.
    """

    n_ranks: int | None = None
    workers: tuple[str, ...] | None = None
    collective_timeout_s: float = 60.0
    start_timeout_s: float = 60.0
    stop_grace_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("collective_timeout_s", "start_timeout_s", "stop_grace_s"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name}={getattr(self, name)!r} was given; it is a positive number of seconds")


@dataclass(frozen=True)
class PerRank:
    """A payload for each rank, in rank order, where one for all does not do."""

    payloads: tuple[Any, ...]


def run_gang(
    client: Client,
    rank_main: RankMain,
    payload: Any,
    *,
    name: str,
    settings: GangSettings = GangSettings(),
    listener: Listener = silent,
) -> list[Any]:
    """Run ``rank_main(communicator, payload, emit, should_stop)`` on each worker and return the results by rank.

    `rank_main` is a function that the workers can import. What rank 0 gives to `emit` reaches `listener`, in
    order and in this thread. The first interrupt (Ctrl-C) makes ``should_stop()`` true on every rank, soon but
    not in the same step, and waits for the results; the second aborts. Ranks agree on when to stop by a
    collective of their own.

    Parameters
    ----------
    payload
        What each rank is given: the same object, or a :class:`PerRank`.
    name
        What the dashboard calls the fit.

    Raises
    ------
    ClusterError
        When the gang cannot run, or a worker is lost.
    DaskkernError
        What a rank raised, by its own type. Other exceptions of a rank come as ClusterError, with their text
        and traceback in a note.
    """
    addresses = choose_workers(client, settings.n_ranks, settings.workers, (rank_main, payload))
    payloads = _payloads(payload, len(addresses))
    install(client)
    fit = uuid.uuid4().hex[:12]
    order = GangOrder(
        fit,
        name,
        f"daskkern-{fit}",
        addresses,
        settings.collective_timeout_s,
        settings.start_timeout_s,
    )
    attendance = _Attendance(client, order, settings, listener)
    try:
        attendance.begin(rank_main, payloads)
        report = attendance.wait()
    finally:
        attendance.end()
    if report.error is not None:
        raise report.error
    return list(report.values)


def _payloads(payload: Any, size: int) -> tuple[Any, ...]:
    if not isinstance(payload, PerRank):
        return (payload,) * size
    if len(payload.payloads) != size:
        raise SpecError(f"{len(payload.payloads)} payloads were given for {size} ranks; one for each is needed")
    return tuple(payload.payloads)


class _Attendance:
    """The client's side of one gang: its events, its interrupts, and its end."""

    def __init__(self, client: Client, order: GangOrder, settings: GangSettings, listener: Listener) -> None:
        self._client = client
        self._order = order
        self._settings = settings
        self._listener = listener
        self._messages: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._future: Future[Any] | None = None
        self._start_deadline: float | None = time.monotonic() + settings.start_timeout_s
        self._stop_deadline: float | None = None

    def begin(self, rank_main: RankMain, payloads: Sequence[Any]) -> None:
        """Subscribe to the fit's events and submit its supervisor."""
        order = self._order
        messages = self._messages  # all that the handler holds: the client keeps it for ever
        self._client.subscribe_topic(order.topic, lambda event: messages.put(event[1]))
        self._future = self._client.submit(
            supervise,
            rank_main,
            payloads,
            order,
            key=order.key("supervisor", 0),
            workers=[order.addresses[0]],
            allow_other_workers=False,
            pure=False,
            retries=0,
            priority=_PRIORITY,
        )
        self._future.add_done_callback(lambda _: self._messages.put(None))

    def wait(self) -> GangReport:
        """Return the report, passing events on meanwhile. An interrupt becomes a request to stop."""
        while True:
            try:
                return self._wait()
            except KeyboardInterrupt:
                if self._stop_deadline is not None:
                    raise
                self._stop_deadline = time.monotonic() + self._settings.stop_grace_s
                self._ask_to_stop()

    def _wait(self) -> GangReport:
        next_look = time.monotonic() + _LOOK_S
        while True:
            try:
                message = self._messages.get(timeout=_TICK_S)
            except queue.Empty:
                pass
            else:
                if message is None:
                    return self._report()
                self._pass_on(message)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_S
                self._look()

    def _pass_on(self, message: Mapping[str, Any]) -> None:
        fields = {key: value for key, value in message.items() if key != "worker"}  # which the scheduler adds
        if fields == STARTED:
            self._start_deadline = None
        else:
            self._listener(from_message(fields))

    def _look(self) -> None:
        """Raise when nothing can come of waiting any longer."""
        now, home = time.monotonic(), self._order.addresses[0]
        if self._stop_deadline is not None:
            self._ask_to_stop()  # again: the ranks may not have been there the first time
        if self._stop_deadline is not None and now > self._stop_deadline:
            raise ClusterError(
                f"fit '{self._order.name}' was asked to stop and has not within {self._settings.stop_grace_s:g} s; "
                "it was aborted"
            )
        if home not in live_workers(self._client):
            raise ClusterError(
                f"worker {home} (rank 0), which supervised fit '{self._order.name}', left the cluster: killed, out of "
                "memory, retired or cut off; see its log, give it more memory if that was the reason, and fit again"
            )
        if self._start_deadline is not None and now > self._start_deadline:
            raise ClusterError(
                f"worker {home} did not start fit '{self._order.name}' within {self._settings.start_timeout_s:g} s: it "
                "is busy with other tasks or paused for memory; wait for them, add workers, or raise start_timeout_s"
            )

    def _ask_to_stop(self) -> None:
        tell_workers(self._client, self._order.addresses, "stop", fit=self._order.fit)

    def _report(self) -> GangReport:
        assert self._future is not None
        patience_s = 10.0
        while True:
            try:
                report = self._future.result(timeout=patience_s)
            except TimeoutError:  # a large result, or its worker went with it
                self._look()
                patience_s *= 2
            except (Exception, CancelledError) as error:
                live_workers(self._client)  # raises, and says it better, when the scheduler is gone
                raise ClusterError(
                    f"fit '{self._order.name}' could not be supervised at {self._order.addresses[0]}: "
                    f"{type(error).__name__}: {error}"
                ) from error
            else:
                assert isinstance(report, GangReport)
                return report

    def end(self) -> None:
        """Release everything that the fit holds on the cluster, in every case."""
        with suppress(OSError, TimeoutError, RuntimeError, ValueError):  # the scheduler may be gone
            self._client.unsubscribe_topic(self._order.topic)
            if self._future is not None:
                self._client.cancel([self._future])
