"""The scheduler plugin of daskkern: admission of fits, and the registry of their status.

Handlers answer at once; nothing here waits for a worker or a client. The plugin can be added to a running scheduler.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Callable, Mapping
from typing import Any

import dask
from dask.utils import parse_timedelta
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from daskkern.cluster.connect.protocol import PROTOCOL, VERSION
from daskkern.cluster.scheduler.demand import WorkerDemand
from daskkern.cluster.scheduler.detached_drivers import DetachedDrivers
from daskkern.cluster.scheduler.equipped_workers import EquippedWorkers
from daskkern.cluster.scheduler.event_topics import TOPIC, EventTopics
from daskkern.cluster.scheduler.fits import CANCELLED, FAILED, FINISHED, STARTED, checked
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.retirement import Retirement
from daskkern.cluster.scheduler.sharing.preemption import INTERVAL_S
from daskkern.cluster.scheduler.sharing.quotas import Quotas, quotas_of
from daskkern.cluster.scheduler.silent_workers import TICK_MS, SilentWorkers
from daskkern.cluster.scheduler.supervisors import Supervisors
from daskkern.cluster.scheduler.task_placement import TaskPlacement
from daskkern.cluster.scheduler.worker_changes import worker_changes
from daskkern.errors import ClusterError, SpecError

PLUGIN_NAME = f"daskkern_fits_{PROTOCOL}"

_SWEEP_MS = 5_000
_ABSENT_S = 60.0
"""A client that has been silent for this long no longer holds or waits for anything."""
_HUNG_S = 60.0
"""A worker that drives a detached fit is given up after this long without a heartbeat."""
_ERROR = 20_000
"""Characters kept of the reason why a fit failed."""


class FitsPlugin(SchedulerPlugin):
    """Admission and the registry of fits, on the scheduler."""

    name = PLUGIN_NAME
    idempotent = True  # a second registration would forget the fits that run

    protocol = 0
    """Protocol of the client that sent this plugin; the class, pickled by its name, is the scheduler's own."""

    def __init__(self, protocol: int = PROTOCOL) -> None:
        self.protocol = protocol

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by a function that older schedulers do not have: some accept any plugin, and lose their fits."""
        return received, (self.protocol,)

    async def start(self, scheduler: Any) -> None:
        if self.protocol != PROTOCOL:
            raise ClusterError(
                f"this client speaks version {self.protocol or 'unknown'} of daskkern's messages and the scheduler "
                f"version {PROTOCOL}; install the same daskkern in both environments and restart the older one"
            )
        if any(isinstance(plugin, FitsPlugin) for plugin in scheduler.plugins.values()):
            raise ClusterError(
                "the scheduler already keeps the list of fits, under another name; install the scheduler's version of "
                "daskkern here"
            )
        self._scheduler = scheduler
        self._registry = FitRegistry(*_settings())
        self._drivers = DetachedDrivers(scheduler, self._registry, lambda fit: self._supervisors.forget(fit))
        self._silent = SilentWorkers(scheduler)
        self._topics = EventTopics(scheduler, self._registry)
        self._workers = EquippedWorkers(scheduler)
        self._demand = WorkerDemand(scheduler, self._registry.admission, self._workers.places)
        self._demand.install()
        Retirement(scheduler).install()
        self._names = {address: str(worker.name) for address, worker in scheduler.workers.items()}
        self._placement = TaskPlacement(scheduler, self._workers_of)
        self._supervisors = Supervisors(
            scheduler, self._registry, self._workers.places, self._workers.addresses, self._placement.refresh
        )
        handlers: dict[str, Callable[..., Any]] = {
            "ask": self._ask,
            "equipped": self._equip,
            "workers": lambda known: worker_changes(self._workers.listed(), known),
            "want": self._demand.want,
            "ended": self._ended,
            "asked_to_stop": self._stop_request,
            "task_state": self._task_state,
            "cancel": self.cancel,
            "fits": self.fits,
            "prospects": self._prospects,
            "active": self._registry.active,
            "fit_events": self._registry.events,
            "fit_history": self.history,
            **self._drivers.handlers(),
            "drop": self._drop,
            **self._supervisors.handlers(),
        }
        scheduler.handlers.update({question(verb): handler for verb, handler in handlers.items()})
        self._clocks = [PeriodicCallback(self._sweep, _SWEEP_MS), PeriodicCallback(self._silent.tick, TICK_MS)]
        for clock in self._clocks:
            clock.start()

    async def close(self) -> None:
        for clock in self._clocks:
            clock.stop()

    # -- hooks that the scheduler calls

    def log_event(self, topic: str, msg: Any) -> None:
        record = self._registry.records.get(topic.removeprefix(TOPIC)) if topic.startswith(TOPIC) else None
        if record is None or not isinstance(msg, Mapping):
            return
        if STARTED in msg:
            record.history.forming()
        if "event" in msg:
            message = checked(msg)  # anybody may write to the topic
            if message is not None and record.note(message):
                record.losses = 0

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self._names[worker] = str(scheduler.workers[worker].name)
        self._placement.refresh()

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Count the loss of a worker for its fit, not for Dask: see :meth:`DetachedDrivers.reset_loss_counts`."""
        del scheduler, kwargs
        name = self._names.pop(worker, "")
        self._workers.discard(worker)
        for fit, held in self._registry.admission.held.items():
            if name in held:
                self._registry.records[fit].history.losses[name] += 1
        self._drivers.reset_loss_counts()
        self._demand.left(worker)
        self._placement.refresh()

    def update_graph(self, scheduler: Any, *, annotations: Mapping[str, Mapping[Any, Any]], **kwargs: Any) -> None:
        del scheduler, kwargs
        self._placement.submitted(annotations)

    def remove_client(self, scheduler: Any, client: str) -> None:
        del scheduler
        self._registry.client_left(client)
        self._demand.forget(client)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        del start, args, kwargs
        if key in self._supervisors.tasks and finish == "forgotten":  # its client has the result, or is gone
            fit = self._supervisors.tasks.pop(key)
            if not self._registry.records[fit].metadata.detached:  # its driver has the place
                self._registry.admission.release(fit)
        else:
            self._drivers.changed(key, finish)
        if finish == "forgotten":
            self._placement.forget(key)

    def valid_workers_downscaling(self, scheduler: Any, workers: list[Any]) -> list[Any]:
        """Exclude the workers of fits, also of preempted ones, when a cluster scales down adaptively."""
        del scheduler
        spared = self._registry.admission.reserved
        return [worker for worker in workers if str(worker.name) not in spared]

    # -- handlers for clients and supervisors

    def _equip(self, address: str, version: str) -> bool:
        """Count a worker that has the plugin from now on; return False for an unknown one, or of another version."""
        known = version == VERSION and self._workers.add(address)
        self._placement.refresh()
        return known

    def _ask(self, card: dict[str, Any], wish: dict[str, Any], asker: str) -> dict[str, Any]:
        metadata = FitMetadata(**card)
        if self._drivers.is_given_up(metadata.fit, asker):
            return {"given_up": True}
        if self._registry.holder(metadata.fit) != asker:  # supervisors of an earlier driver end
            self._supervisors.forget(metadata.fit)
        self._demand.forget(str(asker))
        answer = self._registry.ask(metadata, wish, str(asker), self._workers.places())
        known, names = self._workers.addresses(), answer.get("members", ())
        self._placement.refresh()
        answer["moves"] = self._drivers.leaves(metadata.fit)
        return {**answer, "members": [known[name] for name in names if name in known], "held": len(names)}

    def _ended(self, fit: str, state: str, asker: str, error: str = "") -> bool:
        """Record how a fit ended. Return False, without a change, if another process drives it now."""
        if self._registry.holder(fit) not in ("", asker) or self._drivers.is_given_up(fit, asker):
            return False
        if state not in ("", FINISHED, CANCELLED, FAILED):
            raise ClusterError(f"got {state!s:.50} as the end of a fit; expected finished, cancelled or failed")
        if state == FINISHED or not self._drivers.leaves(fit):  # else it continues, with its place
            self._registry.ended(fit, state, str(error)[:_ERROR])
        return True

    def _task_state(self, key: str) -> tuple[str, int, str]:
        """Return a task's state ("" for an unknown one), how many graphs wait to be read, and the task's error."""
        task, n_graphs = self._scheduler.tasks.get(key), self._scheduler._active_graph_updates
        return ("", n_graphs, "") if task is None else (task.state, n_graphs, str(task.exception_text)[:_ERROR])

    def _stop_request(self, fit: str, asker: str) -> str:
        record = self._registry.records.get(fit)
        if record is None or record.client not in ("", asker) or self._drivers.is_given_up(fit, asker):
            return "abort"  # another process drives it now
        return record.stop or ("move" if self._drivers.leaves(fit) else "")

    def cancel(self, fit: str, abort: bool = False) -> bool:
        """Ask `fit` to end: after this step with the model so far, or at once with `abort`. False if it has ended."""
        if not self._registry.stop(fit, abort):
            return False
        record = self._registry.records[fit]
        if not record.client:  # nobody is left to end it
            self._registry.admission.release(fit)
            record.end(CANCELLED, "it was cancelled while no process ran it; --resume continues from its checkpoint")
            self._drivers.release(record.task)
        return True

    def _prospects(self, fit: str) -> tuple[float, float]:
        record = self._registry.records.get(fit)
        return (float("inf"), 0.0) if record is None else record.prospects()

    def fits(self) -> list[dict[str, Any]]:
        """Return the status of every fit, as :class:`daskkern.cluster.scheduler.fits.FitStatus` writes it."""
        return self._registry.messages(self._workers.places())

    def history(self, fit: str) -> dict[str, Any]:
        """Return the FitHistory of `fit`, and the time of each worker's last heartbeat; {} for an unknown fit."""
        record = self._registry.records.get(fit)
        return {} if record is None else {**record.history.to_message(), "workers": self._workers.heard()}

    def glance(self, fit: str) -> dict[str, Any]:
        """Return the small part of :meth:`history` that changes every second, and the version of the rest."""
        record = self._registry.records.get(fit)
        return {} if record is None else {**record.history.glance(), "workers": self._workers.heard()}

    async def _drop(self, address: str, silence_s: float, unused: bool = False, fit: str = "") -> bool:
        """Remove a worker that hangs, see :meth:`SilentWorkers.drop`; with `unused`, unless another fit has it."""
        worker = self._scheduler.workers.get(address)
        if unused and worker is not None and self._registry.admission.holds_another(str(worker.name), fit):
            return False
        return await self._silent.drop(address, silence_s)

    # -- the rest

    def _workers_of(self, fit: str) -> list[str]:
        """Return the workers on which tasks of `fit` may run: its own, or, when it has none, those that it may use."""
        known, admission = self._workers.addresses(), self._registry.admission
        if fit not in admission.held:  # the driver of a detached fit, which has yet to ask for its workers
            return list(known.values())
        own = [known[name] for name in admission.held[fit] if name in known]
        return own or [known[name] for name in known.keys() - admission.unavailable(fit, self._workers.places())]

    async def _sweep(self) -> None:
        """Free what silent clients hold, and give up workers that hang while they drive a fit."""
        now = time.time()
        held_up = self._silent.was_blocked(now, _ABSENT_S)  # what clients sent meanwhile may not be read yet
        for fit, record in [] if held_up else list(self._registry.records.items()):
            client = self._scheduler.clients.get(record.client)
            silent = client is None or now - client.last_seen > _ABSENT_S
            if record.active and record.client and silent and not self._supervisors.is_supervised(fit):
                self._registry.admission.release(fit)
        if not held_up:
            self._registry.tidy(self._scheduler.clients, now)
        self._registry.preemption.update(self._workers.places())
        self._placement.refresh()  # tasks of fits that wait may run on what was freed
        self._topics.forget(now)
        for key in [*self._drivers.fits, *self._supervisors.tasks]:
            task = self._scheduler.tasks.get(key)
            if task is not None and task.processing_on is not None:
                await self._drop(task.processing_on.address, _HUNG_S)


def _settings() -> tuple[Quotas, float]:
    """Return the quotas, and the least time between two preemptions of a fit, from the configuration of Dask here."""
    interval = dask.config.get("daskkern.preemption-interval", None)
    try:
        quotas = quotas_of(dask.config.get("daskkern.quotas", None))
        interval_s = INTERVAL_S if interval is None else parse_timedelta(interval)
    except SpecError as error:
        raise ClusterError(f"the scheduler's quotas cannot be read: {error}; its owner has to correct that") from None
    except (ValueError, TypeError, KeyError):
        raise ClusterError(
            f"got {interval!r:.50} as daskkern.preemption-interval in the scheduler's Dask configuration; expected a "
            "time such as 60s"
        ) from None
    return quotas, interval_s


def received(protocol: int) -> FitsPlugin:
    """Return the plugin that a client of version `protocol` sent."""
    return FitsPlugin(protocol)


def question(verb: str) -> str:
    """Return the name of the scheduler's handler for `verb`."""
    return f"{PLUGIN_NAME}_{verb}"
