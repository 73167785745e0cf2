"""The client's side of one gang: submits the supervisor, forwards events, and notices when no worker is left."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from distributed import Client, Future, KilledWorker

from daskkern.cluster.connect.membership import ask_scheduler, tell_workers
from daskkern.cluster.gang.generation import GangOrder
from daskkern.cluster.gang.heartbeats import HeartbeatMonitor
from daskkern.cluster.gang.rank import RankMain
from daskkern.cluster.gang.settings import GangSettings
from daskkern.cluster.gang.supervisor import GangReport, Reform, supervise
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.fits import STARTED, event_of
from daskkern.cluster.scheduler.task_results import LostTaskError, TaskResult
from daskkern.cluster.scheduler.worker_list import WorkerList
from daskkern.errors import ClusterError, FitCancelledError
from daskkern.events import INTERRUPTED, BatchFinished, FitPreempted, FitResumed, Listener, StopRequested, WorkersLeft

_ENDED = "supervisor"  # key of the message that a supervisor's task has ended
_TICK_S = 0.1
_LOOK_S = 0.5
_PRIORITY = 10
_REQUESTS = {
    "stop": "somebody asked this fit to stop: it ends within a few steps",
    "move": "the worker that drives this fit leaves: it commits, and continues from another worker",
}


class GangClient:
    """The client's side of one gang: its events, its interrupts, and its end."""

    def __init__(self, client: Client, order: GangOrder, settings: GangSettings, listener: Listener) -> None:
        self._client = client
        self._order = order
        self._settings = settings
        self._listener = listener
        self._messages: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._future: Future[Any] | None = None
        self._task: TaskResult | None = None
        self._home: str | None = None
        self._alone_since: float | None = None
        self._supervisors = 0
        self._farthest = self._farthest_then = (0, 0)
        """Epoch and batch: the latest overall, and the latest when all workers had died."""
        self._deaths = 0
        """How many workers have died under supervisors since the last progress."""
        self._heartbeats = HeartbeatMonitor(2 * settings.silence_s, "")  # the supervisor sees a silent worker first
        self._workers = WorkerList(client)
        self._start_deadline: float | None = time.monotonic() + settings.start_timeout_s
        self._before: set[str] = set()
        """The workers at the last look before the start."""
        self._lost = 0
        """Number of looks at which one of them was missing."""
        self._stop_deadline: float | None = None
        self._interrupted = False
        self._deserted = self._preempted = False
        """Whether all workers of the gang have left as planned, or were handed over, and the ranks have committed."""

    def begin(self, rank_main: RankMain, payload: Any, reform: Reform | None) -> None:
        """Subscribe to the fit's events and submit its supervisor."""
        messages = self._messages  # the handler holds only this: the client keeps it for ever
        self._client.subscribe_topic(self._order.topic, lambda event: messages.put(event[1]))
        self._work = rank_main, payload, reform
        self._supervise()

    def _supervise(self) -> None:
        """Submit a supervisor. Dask runs it again elsewhere when its worker is lost."""
        rank_main, payload, reform = self._work
        self._home = None
        key = self._order.key("supervisor", self._supervisors)
        may = {"obstacle": self._order.obstacle, "shrinks": self._order.elastic}
        if not ask_fits(self._client, "supervised", fit=self._order.fit, task=key, asker=self._client.id, **may):
            raise ClusterError(
                f"fit '{self._order.name}' has lost its place: the scheduler had not heard of this process for a "
                "minute; fit again"
            )
        self._future = self._client.submit(
            supervise,
            rank_main,
            payload,
            self._order,
            reform,
            key=key,
            pure=False,
            retries=0,
            priority=_PRIORITY,
        )
        self._task = TaskResult(self._client, self._future, f"the supervisor of fit '{self._order.name}'")
        self._supervisors += 1
        self._start_deadline = time.monotonic() + self._settings.start_timeout_s
        number, messages = self._supervisors, self._messages
        self._future.add_done_callback(lambda _: messages.put({_ENDED: number}))

    def wait(self) -> GangReport:
        """Return the report, forwarding events meanwhile. An interrupt becomes a request to stop."""
        while True:
            try:
                return self._wait()
            except KeyboardInterrupt:
                if self._stop_deadline is not None:
                    raise
                self._stop_deadline, self._interrupted = time.monotonic() + self._settings.stop_grace_s, True
                self._listener(INTERRUPTED)
                self._ask_to_stop()

    def _wait(self) -> GangReport:
        next_look = time.monotonic() + _LOOK_S
        while True:
            try:
                message = self._messages.get(timeout=_TICK_S)
            except queue.Empty:
                pass
            else:
                if message.get(_ENDED) == self._supervisors:
                    report = self._report()
                    if report is not None:
                        return report
                elif _ENDED not in message:
                    self._pass_on(message)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _LOOK_S
                self._look()

    def _pass_on(self, message: Mapping[str, Any]) -> None:
        if STARTED in message:
            self._start_deadline, self._home = None, str(message[STARTED])
            self._preempted = False
        else:
            try:
                event = event_of(message)
            except ValueError:  # anybody may write to the topic
                return
            if isinstance(event, BatchFinished):
                self._farthest = max(self._farthest, (event.epoch, event.batch))
            elif isinstance(event, WorkersLeft | FitResumed):
                self._deserted = event.size == 0
            elif isinstance(event, FitPreempted):
                self._preempted = True
            self._listener(event)

    def _look(self) -> None:
        """Raise when further waiting is pointless; drop the supervisor's worker if it hangs."""
        begun = now = time.monotonic()
        name = self._order.name
        self._follow_request(str(ask_fits(self._client, "asked_to_stop", fit=self._order.fit, asker=self._client.id)))
        if self._stop_deadline is not None:
            self._ask_to_stop()  # again: the ranks may not have existed the first time
        if self._stop_deadline is not None and now > self._stop_deadline:
            raise ClusterError(
                f"fit '{name}' was asked to stop and has not within {self._settings.stop_grace_s:g} s; it was aborted"
            )
        assert self._task is not None
        try:
            self._task.check(now=self._start_deadline is not None and now > self._start_deadline)
        except LostTaskError:
            if self._start_deadline is None or self._supervisors > self._settings.retries:
                raise
            self._supervise()  # it has never run
        alive, silent = self._alive()
        self._look_for_workers(bool(alive.keys() - silent))
        if self._start_deadline is not None:
            self._start_deadline += time.monotonic() - begun  # a scheduler that does not answer starts nothing
            if not alive or self._has_lost_one(alive):
                self._start_deadline = now + self._settings.start_timeout_s
        for home in silent & {self._home, self._next_home(silent)}:  # without it, Dask runs the supervisor elsewhere
            silence_s = self._heartbeats.patience_s / 2
            if ask_fits(self._client, "drop", address=home, silence_s=silence_s) and self._start_deadline is not None:
                self._start_deadline = now + self._settings.start_timeout_s
        if self._start_deadline is not None and now > self._start_deadline and not self._task.in_doubt:
            raise ClusterError(
                f"no worker started fit '{name}' within {self._settings.start_timeout_s:g} s: they are busy with other "
                "tasks or paused for memory; wait for them, add workers, or raise start_timeout_s"
            )

    def _has_lost_one(self, alive: Mapping[str, Any]) -> bool:
        """Return whether a worker has left since the last call, which may have been about to start the supervisor.

        As often as the fit may try again: a worker that is killed whenever it is restarted does not keep a fit waiting.
        """
        missing, self._before = self._before - alive.keys(), set(alive)
        self._lost += bool(missing)
        return bool(missing) and self._lost <= self._settings.retries

    def _alive(self) -> tuple[Mapping[str, Mapping[str, Any]], set[str]]:
        """Return the workers that the scheduler counts as alive, by address, and those of them that are silent."""
        alive = self._workers.alive()
        return alive, self._heartbeats.silent(alive, self._workers.interval_s)

    def _next_home(self, silent: set[str]) -> str | None:
        """Return the silent worker that Dask assigned the supervisor to, which could not yet report it."""
        if not silent or self._future is None:
            return None
        given: Mapping[str, Sequence[Any]] = ask_scheduler(self._client, "processing")
        return next((address for address in silent if self._future.key in given.get(address, ())), None)

    def _follow_request(self, request: str) -> None:
        """Carry out a request made through the scheduler: "stop" acts as an interrupt, "abort" as the second one.

        "move" stops a detached fit, too, whose driver will continue on another worker.
        """
        if request == "abort":
            raise FitCancelledError(f"fit '{self._order.name}' was cancelled; nothing was written")
        if request in _REQUESTS and self._stop_deadline is None:
            self._stop_deadline = time.monotonic() + self._settings.stop_grace_s
            self._interrupted = request == "move"
            self._listener(StopRequested(_REQUESTS[request]))

    def _look_for_workers(self, any_left: bool) -> None:
        if self._interrupted and (self._deserted or self._preempted or not any_left):  # what was committed remains
            raise KeyboardInterrupt
        if self._stop_deadline is not None and self._preempted:
            raise FitCancelledError(
                f"fit '{self._order.name}' was cancelled while it was preempted, and has no model; if it has a "
                "checkpoint, --resume continues from there"
            )
        if any_left:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if self._settings.retries == 0 or now - self._alone_since > self._settings.idle_s:
            raise ClusterError(
                f"all workers have left the cluster while fit '{self._order.name}' was running, and none came in "
                f"{now - self._alone_since:.0f} s; start workers, and fit again"
            )

    def _ask_to_stop(self) -> None:
        alive, silent = self._alive()
        with suppress(ClusterError):  # a worker hangs: the request is repeated at the next look
            tell_workers(self._client, [a for a in alive if a not in silent], "stop", fit=self._order.fit)

    def _report(self) -> GangReport | None:
        """Return what the supervisor returned, or None when its worker was lost with it: Dask runs it again."""
        assert self._future is not None
        patience_s = 10.0
        while True:
            try:
                report = self._future.result(timeout=patience_s)
            except TimeoutError:  # a large result, or its worker was lost with it
                self._look()
                patience_s *= 2
            except KilledWorker as error:  # its workers died again and again
                progress = self._farthest > self._farthest_then
                self._deaths = error.allowed_failures + 1 + (0 if progress else self._deaths)
                if not progress and self._deaths > self._settings.retries:
                    raise ClusterError(
                        f"fit '{self._order.name}' lost all its workers again and again without any progress; "
                        "see their logs: too little memory is the usual reason"
                    ) from error
                self._farthest_then = self._farthest
                self._supervise()
                return None
            except (Exception, CancelledError) as error:
                self._workers.alive()  # raises, with a better message, when the scheduler is gone
                raise ClusterError(
                    f"fit '{self._order.name}' could not be supervised: {type(error).__name__}: {error}"
                ) from error
            else:
                assert isinstance(report, GangReport)
                return report

    def end(self) -> None:
        """Release everything that the fit holds on the cluster, however it ended."""
        with suppress(OSError, TimeoutError, RuntimeError, ValueError, ClusterError):  # the scheduler may be gone
            self._client.unsubscribe_topic(self._order.topic)
            if self._future is not None:
                self._client.cancel([self._future])
