"""What daskkern adds to a scheduler: who may run where, and what is known of each fit.

Handlers answer at once; nothing here waits for a worker or a client. The plugin can be put on a scheduler that runs.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from daskkern.cluster.admission import Place
from daskkern.cluster.fit_book import FitBook
from daskkern.cluster.fits import CANCELLED, FAILED, FitCard, FitRecord

PROTOCOL = 1
"""Raised whenever the messages change, so that two versions never talk to each other by accident."""

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
_RESTART_S = 60.0


class FitsPlugin(SchedulerPlugin):
    """Admission and the registry of fits, on the scheduler."""

    name = PLUGIN_NAME
    idempotent = True  # a second registration would forget the fits that run

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._book = FitBook()
        self._supervisors: dict[str, str] = {}  # key of the supervisor's task -> fit
        self._conductors: dict[str, str] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        handlers: dict[str, Callable[..., Any]] = {
            "ask": self._ask,
            "take": self._take,
            "barred": self._barred,
            "supervised": self._supervised,
            "ended": self._ended,
            "asked_to_stop": self._asked_to_stop,
            "cancel": self._cancel,
            "fits": self._list,
            "fit_events": self._events,
            "hold": self._hold,
            "drop": self._drop,
        }
        scheduler.handlers.update({f"daskkern_{verb}": handler for verb, handler in handlers.items()})
        self._sweeper = PeriodicCallback(self._sweep, _SWEEP_MS)
        self._sweeper.start()

    async def close(self) -> None:
        self._sweeper.stop()

    # -- what the scheduler tells

    def log_event(self, topic: str, msg: Any) -> None:
        record = self._book.records.get(topic.removeprefix(TOPIC)) if topic.startswith(TOPIC) else None
        if record is not None and isinstance(msg, Mapping) and "event" in msg and record.note(msg):
            task = self._scheduler.tasks.get(record.task)
            if task is not None:
                task.suspicious = 0  # it made progress: of the workers that died under it, none counts any more

    def remove_client(self, scheduler: Any, client: str) -> None:
        del scheduler
        self._book.client_left(client)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        del start, args, kwargs
        if finish not in ("memory", "erred", "forgotten"):
            return
        if key in self._supervisors and finish != "erred":  # then Dask gave it up, and its client may submit another
            self._book.admission.release(self._supervisors.pop(key))
        elif key in self._conductors:
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
        answer = self._book.ask(FitCard(**card), wish, asker, self._places())
        known = self._addresses()
        return {**answer, "members": [known[name] for name in answer.get("members", ()) if name in known]}

    def _take(self, fit: str, addresses: tuple[str, ...]) -> bool:
        names = {address: name for name, address in self._addresses().items()}
        if any(address not in names for address in addresses):
            return False
        return self._book.admission.take(fit, [names[address] for address in addresses], self._places())

    def _barred(self, fit: str) -> list[str]:
        known = self._addresses()
        return [known[name] for name in self._book.admission.barred(fit, self._places())]

    def _supervised(self, fit: str, task: str) -> bool:
        """Note the task that supervises `fit` from now on. False when the fit does not hold its workers any more."""
        if fit not in self._book.admission.held:
            return False
        self._supervisors = {key: other for key, other in self._supervisors.items() if other != fit} | {task: fit}
        return True

    def _ended(self, fit: str, state: str, error: str = "") -> None:
        self._book.ended(fit, state, error)

    def _asked_to_stop(self, fit: str) -> str:
        record = self._book.records.get(fit)
        return "" if record is None else record.stop

    def _cancel(self, fit: str, abort: bool = False) -> bool:
        return self._book.stop(fit, abort)

    def _list(self) -> list[dict[str, Any]]:
        return self._book.messages(self._places())

    def _events(self, fit: str, since: int = 0) -> dict[str, Any]:
        return self._book.events(fit, since)

    async def _hold(self, card: dict[str, Any], task: str) -> bool:
        """Keep the task of a detached fit, so that whoever submitted it may leave."""
        deadline = time.monotonic() + _HOLD_S
        while task not in self._scheduler.tasks:  # it comes by another connection
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.01)
        record = self._book.record(FitCard(**card))
        record.task = task
        self._conductors[task] = record.card.fit
        self._scheduler.client_desires_keys([task], _KEEPER)
        if self._scheduler.tasks[task].state in ("memory", "erred"):
            self.transition(task, "processing", self._scheduler.tasks[task].state)
        return True

    async def _drop(self, address: str, silence_s: float) -> bool:
        """Remove a worker that hangs from the cluster, so that Dask computes again what it held, and have its nanny
        start another. False when it was heard of, or when it is the scheduler that was slow."""
        worker = self._scheduler.workers.get(address)
        if worker is None:
            return True
        now = time.time()
        others = [other for other in self._scheduler.workers.values() if other is not worker]
        slow = bool(others) and all(now - other.last_seen > silence_s / 3 for other in others)
        if slow or now - worker.last_seen < silence_s:
            return False
        nanny = worker.nanny
        await self._scheduler.remove_worker(address, stimulus_id=f"daskkern-hung-{now}")
        if nanny:
            self._restarts.add(restart := asyncio.create_task(self._restart(nanny)))
            restart.add_done_callback(self._restarts.discard)
        return True

    # -- the rest

    async def _restart(self, nanny: str) -> None:
        with suppress(OSError, TimeoutError):  # its host may be cut off; Dask logs it
            await asyncio.wait_for(self._scheduler.rpc(nanny).restart(reason="daskkern-hung"), _RESTART_S)

    def _settle(self, record: FitRecord, finish: str) -> None:
        """Note how a detached fit ended that did not say so itself."""
        task = self._scheduler.tasks.get(record.task)
        if finish == "erred":
            text = "" if task is None else str(task.exception_text or "")
            record.end(FAILED, f"its task failed: {text}; see its worker's log, and fit again with resume")
        elif finish == "forgotten":
            record.end(CANCELLED)

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

    async def _sweep(self) -> None:
        """Free what belongs to clients that are silent, and give up workers that hang while they conduct a fit."""
        now = time.time()
        for fit, record in list(self._book.records.items()):
            client = self._scheduler.clients.get(record.client)
            silent = client is None or now - client.last_seen > _ABSENT_S
            if record.active and record.client and silent and fit not in self._supervisors.values():
                self._book.admission.release(fit)
        for key in list(self._conductors):
            task = self._scheduler.tasks.get(key)
            worker = None if task is None else task.processing_on
            if worker is not None:
                await self._drop(worker.address, _HUNG_S)


def install_fits(client: Client) -> None:
    """Put the plugin on the scheduler. Costs one message when it is there already."""
    client.register_plugin(FitsPlugin())
