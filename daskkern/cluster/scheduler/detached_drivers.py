"""The drivers of detached fits: tasks that the scheduler keeps alive after their submitters have left."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
import time
from collections.abc import Callable
from typing import Any

from daskkern.cluster.connect.leaving import LEAVING
from daskkern.cluster.scheduler.fits import CANCELLED, FAILED, FitRecord
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry

_HOLDER = "daskkern-fits"
"""The client name under which the scheduler holds detached fits, as it holds published data."""
_HOLD_S = 10.0
_LOSSES = 20


def driver_key(fit: str) -> str:
    """Return the key of the task that drives a detached fit."""
    return f"daskkern_fit-{fit}"


class DetachedDrivers:
    """The tasks on `scheduler` that drive the detached fits of `registry`.

    Parameters
    ----------
    scheduler : Scheduler
    registry : FitRegistry
    followed : callable
        Is called with a fit that another driver holds from now on.

    Attributes
    ----------
    fits : dict
        Maps the key of a task to its fit.
    """

    def __init__(self, scheduler: Any, registry: FitRegistry, followed: Callable[[str], None]) -> None:
        self._scheduler, self._registry, self._followed = scheduler, registry, followed
        self.fits: dict[str, str] = {}
        self._begun: dict[str, str] = {}

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the answers to the questions of clients and drivers, by verb."""
        return {"hold": self._hold, "drive": self._drive, "given_up": self.is_given_up}

    def is_given_up(self, fit: str, asker: str) -> bool:
        """Return whether the client `asker` is that of a driver of a detached fit that another driver has followed."""
        return self._begun.get(fit, asker) != asker

    def _drive(self, fields: dict[str, Any], task: str, run: int, asker: str) -> bool:
        """Let the client `asker` of a driver hold its fit from now on.

        Returns False, and changes nothing, unless the driver is this run of its task: Dask runs a task again when it
        takes a worker for lost, which may only have been cut off. A fit that writes to the place of another one is
        not recorded: it would refuse the other.
        """
        metadata = FitMetadata(**fields)
        state = self._scheduler.tasks.get(task)
        if task != driver_key(metadata.fit) or state is None or state.run_id != run:
            return False
        if self._registry.rival(metadata):  # the driver learns of it when it asks for workers
            return True
        record = self._registry.record(metadata)
        if record.client != asker:
            self._followed(metadata.fit)
        known = self._registry.records
        self._begun = {fit: client for fit, client in self._begun.items() if fit in known} | {metadata.fit: asker}
        record.client = asker
        return True

    async def _hold(self, fields: dict[str, Any], task: str) -> str:
        """Hold the task of a detached fit, so that its submitter may leave. Return why not, or ""."""
        metadata = FitMetadata(**fields)
        rival = self._registry.rival(metadata)
        if rival:
            return f"fit {rival} is active and writes to {metadata.out}; wait for it, cancel it, or write elsewhere"
        deadline = time.monotonic() + _HOLD_S
        while task not in self._scheduler.tasks:  # it arrives over another connection
            if time.monotonic() > deadline:
                return f"the scheduler did not take the fit in {_HOLD_S:g} s; see its log, and fit again"
            await asyncio.sleep(0.01)
        record = self._registry.record(metadata)
        record.task = task
        self.fits[task] = record.metadata.fit
        self._scheduler.client_desires_keys([task], _HOLDER)
        self.changed(task, self._scheduler.tasks[task].state)
        return ""

    def changed(self, task: str, state: str) -> None:
        """Free the workers of the fit of `task`, and record its end, if the new `state` of the task is an end."""
        if task in self.fits and state in ("memory", "erred", "forgotten"):
            fit = self.fits.pop(task)
            self._registry.admission.release(fit)
            self._settle(self._registry.records[fit], state)
            asyncio.get_running_loop().call_soon(self.release, task)

    def leaves(self, fit: str) -> bool:
        """Return whether the task of this detached fit runs on a worker that is about to leave."""
        record = self._registry.records.get(fit)
        task = self._scheduler.tasks.get(record.task) if record is not None and record.task in self.fits else None
        worker = None if task is None else task.processing_on
        return worker is not None and worker.status.name == LEAVING

    def release(self, task: str) -> None:
        """Let Dask forget `task`."""
        if _HOLDER in self._scheduler.clients:
            self._scheduler.client_releases_keys([task], _HOLDER)

    def reset_loss_counts(self) -> None:
        """Reset Dask's count of workers lost under a driver, of which it allows three: most drivers wait, or hold
        a fit that continues. `_LOSSES` without a batch between them are too many."""
        for key, fit in self.fits.items():
            task, record = self._scheduler.tasks.get(key), self._registry.records[fit]
            if task is not None and task.suspicious:
                record.losses += task.suspicious
                if record.losses <= _LOSSES:
                    task.suspicious = 0

    def _settle(self, record: FitRecord, finish: str) -> None:
        """Record the end of a detached fit that did not report it."""
        task = self._scheduler.tasks.get(record.task)
        if finish == "erred":
            text = "" if task is None else str(task.exception_text or "")
            text = text or "workers were lost under it again and again"
            record.end(FAILED, f"its task failed: {text}; see its worker's log, and fit again with resume")
        elif finish == "forgotten":
            record.end(CANCELLED)
        else:
            record.end(FAILED, "it ended without reporting how; see the worker's log, and fit again with resume")
