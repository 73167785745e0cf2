"""What daskkern adds to a scheduler: who may run where, and what is known of each fit.

Handlers answer at once; nothing here waits for a worker or a client. The plugin can be put on a scheduler that runs.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from daskkern.cluster.connect.protocol import PROTOCOL
from daskkern.cluster.scheduler.admission import Place
from daskkern.cluster.scheduler.fits import CANCELLED, FAILED, FINISHED, FitMetadata, FitRecord, checked
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.silent_workers import TICK_MS, SilentWorkers
from daskkern.errors import ClusterError

PLUGIN_NAME = f"daskkern_fits_{PROTOCOL}"
TOPIC = "daskkern-"

_KEEPER = "daskkern-fits"
"""The name under which the scheduler keeps detached fits, as it keeps published data."""

_SWEEP_MS = 5_000
_ABSENT_S = 60.0
"""A client of which the scheduler has heard nothing for so long no longer holds or waits for anything."""
_HUNG_S = 60.0
"""A worker that conducts a detached fit, and of which nothing was heard for so long, is given up."""
_HOLD_S = 10.0
_LOSSES = 20
_ERROR = 20_000
"""Characters that are kept of why a fit failed."""


class FitsPlugin(SchedulerPlugin):
    """Admission and the registry of fits, on the scheduler."""

    name = PLUGIN_NAME
    idempotent = True  # a second registration would forget the fits that run

    protocol = 0
    """Of the client that sent this plugin, which travels by its class's name: the class is the scheduler's own."""

    def __init__(self, protocol: int = PROTOCOL) -> None:
        self.protocol = protocol

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel by a function that older schedulers do not have: some take any plugin, and forget their fits."""
        return received, (self.protocol,)

    async def start(self, scheduler: Any) -> None:
        if self.protocol != PROTOCOL:
            raise ClusterError(
                f"this client speaks version {self.protocol or 'unknown'} of daskkern's messages and the scheduler "
                f"version {PROTOCOL}; install the same daskkern in both environments and restart the older one"
            )
        if any(isinstance(plugin, FitsPlugin) for plugin in scheduler.plugins.values()):
            raise ClusterError(
                "the scheduler keeps the list of fits already, under another name; install the same daskkern as the "
                "scheduler's here"
            )
        self._scheduler = scheduler
        self._book = FitRegistry()
        self._supervisors: dict[str, str] = {}  # key of the supervisor's task -> fit
        self._conductors: dict[str, str] = {}
        self._silent = SilentWorkers(scheduler)
        self._names = {address: str(worker.name) for address, worker in scheduler.workers.items()}
        handlers: dict[str, Callable[..., Any]] = {
            "ask": self._ask,
            "take": self._take,
            "barred": self._barred,
            "supervised": self._supervised,
            "ended": self._ended,
            "asked_to_stop": self._asked_to_stop,
            "cancel": self.cancel,
            "fits": self.fits,
            "fit_events": self._events,
            "fit_history": self.history,
            "hold": self._hold,
            "drop": self._drop,
        }
        scheduler.handlers.update({question(verb): handler for verb, handler in handlers.items()})
        self._clocks = [PeriodicCallback(self._sweep, _SWEEP_MS), PeriodicCallback(self._silent.tick, TICK_MS)]
        for clock in self._clocks:
            clock.start()

    async def close(self) -> None:
        for clock in self._clocks:
            clock.stop()

    # -- what the scheduler tells

    def log_event(self, topic: str, msg: Any) -> None:
        record = self._book.records.get(topic.removeprefix(TOPIC)) if topic.startswith(TOPIC) else None
        if record is not None and isinstance(msg, Mapping) and "event" in msg:
            message = checked(msg)  # anybody may write to the topic
            if message is not None and record.note(message):
                record.losses = 0

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self._names[worker] = str(scheduler.workers[worker].name)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Count the loss of a worker for the fit that holds it, and forgive it. See :meth:`_forgive`."""
        del kwargs
        name = self._names.pop(worker, "")
        for fit, held in self._book.admission.held.items():
            if name in held:
                self._book.records[fit].history.losses[name] += 1
        self._forgive(scheduler)

    def _forgive(self, scheduler: Any) -> None:
        """Forgive the losses of workers under conductors, of which Dask counts three: most wait, or hold a fit that
        goes on. `_LOSSES` without a batch between them are too many."""
        for key, fit in self._conductors.items():
            task, record = scheduler.tasks.get(key), self._book.records[fit]
            if task is not None and task.suspicious:
                record.losses += task.suspicious
                if record.losses <= _LOSSES:
                    task.suspicious = 0

    def remove_client(self, scheduler: Any, client: str) -> None:
        del scheduler
        self._book.client_left(client)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        del start, args, kwargs
        if key in self._supervisors and finish == "forgotten":  # its client has the result, or is gone
            fit = self._supervisors.pop(key)
            if not self._book.records[fit].card.detached:  # which keeps its place until its conductor ends
                self._book.admission.release(fit)
        elif key in self._conductors and finish in ("memory", "erred", "forgotten"):
            fit = self._conductors.pop(key)
            self._book.admission.release(fit)
            self._settle(self._book.records[fit], finish)
            asyncio.get_running_loop().call_soon(self._let_go, key)

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Leave the workers of running fits alone when a cluster shrinks by itself."""
        del scheduler
        busy = self._book.admission.busy
        return [worker for worker in workers if str(worker.name) not in busy]

    # -- what clients and supervisors ask

    def _ask(self, card: dict[str, Any], wish: dict[str, Any], asker: str) -> dict[str, Any]:
        asks = FitMetadata(**card)
        if self._book.holder(asks.fit) not in ("", asker):  # conducted anew: what the one before had ends
            self._supervisors = {key: fit for key, fit in self._supervisors.items() if fit != asks.fit}
        answer = self._book.ask(asks, wish, str(asker), self._places())
        known, names = self._addresses(), answer.get("members", ())
        return {**answer, "members": [known[name] for name in names if name in known], "held": len(names)}

    def _take(self, fit: str, addresses: tuple[str, ...]) -> bool:
        names = {address: name for name, address in self._addresses().items()}
        if any(address not in names for address in addresses):
            return False
        return self._book.admission.take(fit, [names[address] for address in addresses], self._places())

    def _barred(self, fit: str) -> list[str]:
        known = self._addresses()
        return [known[name] for name in self._book.admission.barred(fit, self._places())]

    def _supervised(self, fit: str, task: str, asker: str) -> bool:
        """Note the task that supervises `fit` from now on. False when `asker` does not hold its workers any more."""
        if fit not in self._book.admission.held or self._book.holder(fit) != asker:
            return False
        self._supervisors = {key: other for key, other in self._supervisors.items() if other != fit} | {task: fit}
        return True

    def _ended(self, fit: str, state: str, asker: str, error: str = "") -> bool:
        """Note how a fit ended. False, and nothing changes, when another process conducts it now."""
        if self._book.holder(fit) not in ("", asker):
            return False
        if state not in ("", FINISHED, CANCELLED, FAILED):
            raise ClusterError(f"a fit cannot end as {state!s:.50}; it ends finished, cancelled or failed")
        self._book.ended(fit, state, str(error)[:_ERROR])
        return True

    def _asked_to_stop(self, fit: str, asker: str) -> str:
        record = self._book.records.get(fit)
        if record is None or record.client not in ("", asker):
            return "abort"  # another process conducts it now
        return record.stop

    def cancel(self, fit: str, abort: bool = False) -> bool:
        """Ask `fit` to end: after this step with the model so far, or with `abort` at once. False when it has."""
        if not self._book.stop(fit, abort):
            return False
        record = self._book.records[fit]
        if not record.client and record.task:  # nobody is there to end it
            record.end(CANCELLED, "it was cancelled while nobody conducted it; --resume goes on from its checkpoint")
            self._let_go(record.task)
        return True

    def fits(self) -> list[dict[str, Any]]:
        """Return how every fit stands, as :class:`daskkern.cluster.scheduler.fits.FitStatus` writes it."""
        return self._book.messages(self._places())

    def _events(self, fit: str, since: int = 0) -> dict[str, Any]:
        return self._book.events(fit, since)

    def history(self, fit: str) -> dict[str, Any]:
        """Return what a FitHistory keeps of `fit`, and when each worker was last heard of; {} for none."""
        record = self._book.records.get(fit)
        if record is None:
            return {}
        return {**record.history.to_message(), "workers": self._heard()}

    def glance(self, fit: str) -> dict[str, Any]:
        """Return the little of :meth:`history` that changes from second to second, and the version of the rest."""
        record = self._book.records.get(fit)
        return {} if record is None else {**record.history.glance(), "workers": self._heard()}

    def _heard(self) -> dict[str, dict[str, Any]]:
        return {
            address: {"name": str(worker.name), "heard": worker.last_seen}
            for address, worker in self._scheduler.workers.items()
        }

    async def _hold(self, card: dict[str, Any], task: str) -> str:
        """Keep the task of a detached fit, so that whoever submitted it may leave. Returns why not."""
        rival = self._book.rival(FitMetadata(**card))
        if rival:
            return f"fit {rival} is active and writes to {card['out']}; wait for it, cancel it, or write elsewhere"
        deadline = time.monotonic() + _HOLD_S
        while task not in self._scheduler.tasks:  # it comes by another connection
            if time.monotonic() > deadline:
                return f"the scheduler did not take the fit in {_HOLD_S:g} s; see its log, and fit again"
            await asyncio.sleep(0.01)
        record = self._book.record(FitMetadata(**card))
        record.task = task
        self._conductors[task] = record.card.fit
        self._scheduler.client_desires_keys([task], _KEEPER)
        if self._scheduler.tasks[task].state in ("memory", "erred"):
            self.transition(task, "processing", self._scheduler.tasks[task].state)
        return ""

    async def _drop(self, address: str, silence_s: float, unused: bool = False) -> bool:
        """Remove a worker that hangs, see :meth:`SilentWorkers.drop`; with `unused` none that a fit holds: how long it
        may be silent is the matter of that fit."""
        worker = self._scheduler.workers.get(address)
        if unused and worker is not None and str(worker.name) in self._book.admission.busy:
            return False
        return await self._silent.drop(address, silence_s)

    # -- the rest

    def _settle(self, record: FitRecord, finish: str) -> None:
        """Note how a detached fit ended that did not say so itself."""
        task = self._scheduler.tasks.get(record.task)
        if finish == "erred":
            text = "" if task is None else str(task.exception_text or "")
            text = text or "workers were lost under it again and again"
            record.end(FAILED, f"its task failed: {text}; see its worker's log, and fit again with resume")
        elif finish == "forgotten":
            record.end(CANCELLED)
        else:
            record.end(FAILED, "it ended without saying how; see the worker's log, and fit again with resume")

    def _let_go(self, key: str) -> None:
        if _KEEPER in self._scheduler.clients:
            self._scheduler.client_releases_keys([key], _KEEPER)

    def _places(self) -> list[Place]:
        return [Place(str(worker.name), int(worker.memory_limit or 0)) for worker in self._alive()]

    def _addresses(self) -> dict[str, str]:
        return {str(worker.name): worker.address for worker in self._alive()}

    def _alive(self) -> list[Any]:
        workers = self._scheduler.workers.values()
        return [worker for worker in workers if worker.status.name in ("running", "paused")]

    def _is_supervised(self, fit: str) -> bool:
        """Return whether the task of its supervisor waits or runs."""
        tasks = [self._scheduler.tasks.get(key) for key, other in self._supervisors.items() if other == fit]
        return any(task is not None and task.state not in ("memory", "erred") for task in tasks)

    async def _sweep(self) -> None:
        """Free what belongs to clients that are silent, and give up workers that hang while they conduct a fit."""
        now = time.time()
        for fit, record in list(self._book.records.items()):
            client = self._scheduler.clients.get(record.client)
            silent = client is None or now - client.last_seen > _ABSENT_S
            if record.active and record.client and silent and not self._is_supervised(fit):
                self._book.admission.release(fit)
        for key in [*self._conductors, *self._supervisors]:
            task = self._scheduler.tasks.get(key)
            worker = None if task is None else task.processing_on
            if worker is not None:
                await self._drop(worker.address, _HUNG_S)


def received(protocol: int) -> FitsPlugin:
    """Return the plugin that a client of version `protocol` has sent."""
    return FitsPlugin(protocol)


def question(verb: str) -> str:
    """Return the name of the scheduler's handler for `verb`."""
    return f"{PLUGIN_NAME}_{verb}"
