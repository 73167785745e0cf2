"""The supervisors of running fits, as the scheduler knows them: their tasks, and what is requested of them."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from daskkern.cluster.scheduler.fits import PREEMPTED, RECOVERING
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.sharing.preemption import Preemptible
from daskkern.cluster.scheduler.sharing.requests import Place


class Supervisors:
    """The supervisors of the fits of `registry`.

    Parameters
    ----------
    scheduler : Scheduler
    registry : FitRegistry
    places : callable
        Returns the workers that fits may use.
    addresses : callable
        Returns the addresses of live workers by name.
    changed : callable
        Is called when fits may hold other workers than before.
    """

    def __init__(
        self,
        scheduler: Any,
        registry: FitRegistry,
        places: Callable[[], Sequence[Place]],
        addresses: Callable[[], Mapping[str, str]],
        changed: Callable[[], None],
    ) -> None:
        self._scheduler, self._registry, self._places, self._addresses = scheduler, registry, places, addresses
        self._changed = changed
        self.tasks: dict[str, str] = {}
        """Maps the key of a supervisor's task to its fit."""

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return the answers to the questions of clients and supervisors, by verb."""
        return {
            "supervised": self._supervised,
            "take": self._take,
            "exclude": self._exclude,
            "barred": self._barred,
            "hand_over": self._registry.hand_over,
            "handed_over": self._registry.handed_over,
            "preempted_for": self._preempted_for,
            "hand_workers_over": self._hand_workers_over,
            "suspended": self._suspended,
            "workers_again": self._workers_again,
        }

    def forget(self, fit: str) -> None:
        """Forget the supervisors of `fit`: another driver has taken over, and they end."""
        self.tasks = {key: other for key, other in self.tasks.items() if other != fit}

    def is_supervised(self, fit: str) -> bool:
        """Return whether the task of its supervisor waits or runs."""
        tasks = [self._scheduler.tasks.get(key) for key, other in self.tasks.items() if other == fit]
        return any(task is not None and task.state not in ("memory", "erred") for task in tasks)

    def _supervised(self, fit: str, task: str, asker: str, obstacle: str, shrinks: bool) -> bool:
        """Record the task that supervises `fit` from now on. Return False if `asker` no longer holds its workers.

        `obstacle` says why the fit cannot be preempted, "" if it can; `shrinks` that it may go on with fewer workers.
        """
        admission = self._registry.admission
        if fit not in admission.held and fit not in admission.suspended:
            return False
        if self._registry.holder(fit) != asker:
            return False
        self.forget(fit)
        self.tasks[task] = fit
        self._registry.preemption.declared[fit] = Preemptible(str(obstacle), bool(shrinks))
        return True

    def _take(self, fit: str, addresses: tuple[str, ...]) -> bool:
        names = {address: name for name, address in self._addresses().items()}
        if any(address not in names for address in addresses):
            return False
        taken = self._registry.admission.take(fit, [names[address] for address in addresses], self._places())
        self._changed()
        return taken

    def _exclude(self, fit: str, addresses: tuple[str, ...], for_now: tuple[str, ...]) -> bool:
        """Take these workers from `fit`, because they have too little memory for a part of it; those `for_now` only for
        some time. Return False, changing nothing, where it could use no other."""
        names = {address: name for name, address in self._addresses().items()}
        limits = {address: int(self._scheduler.workers[address].memory_limit or 0) for address in names}
        small = {address: Place(names[address], limits[address]) for address in addresses if address in names}
        excluded = self._registry.exclude(fit, list(small.values()), self._places())
        if excluded:
            self._registry.recall(fit, [place for address, place in small.items() if address in for_now], time.time())
        self._changed()
        return excluded

    def _barred(self, fit: str) -> list[str]:
        known = self._addresses()
        return [known[name] for name in self._registry.admission.unavailable(fit, self._places())]

    def _preempted_for(self, fit: str) -> str:
        """Return the fit that `fit` is to hand workers over to, "" for none."""
        found = self._registry.preemption.requested.get(fit)
        return "" if found is None else found.to

    def _hand_workers_over(self, fit: str, task: str, whole: bool) -> dict[str, Any]:
        """Take workers of `fit`, which has committed, see :meth:`Preemption.hand_over`; return the addresses of the
        rest, and whether `task` is still the one that supervises it."""
        registry = self._registry
        if self.tasks.get(task) != fit or fit not in registry.admission.held:
            return {"current": False}
        places = self._places()
        registry.preemption.update(places)
        kept = registry.preemption.hand_over(fit, whole=whole)
        if not kept:
            registry.records[fit].state = PREEMPTED
        registry.admission.grant(places)
        registry.preemption.update(places)
        self._changed()
        known = self._addresses()
        return {"current": True, "members": [known[name] for name in kept if name in known]}

    def _suspended(self, fit: str) -> bool:
        """Return whether `fit` was preempted and has no workers yet."""
        return fit in self._registry.admission.suspended

    def _workers_again(self, fit: str, task: str, settle: bool) -> dict[str, Any]:
        """Return the addresses of the workers that a suspended `fit` has got, [] as long as it waits, how many it holds
        or lacks, and whether `task` is still the one that supervises it.

        With `settle` it no longer waits for more workers than there are.
        """
        registry, admission, places = self._registry, self._registry.admission, self._places()
        if self.tasks.get(task) != fit or (fit not in admission.held and fit not in admission.waiting):
            return {"current": False}
        if settle and fit in admission.suspended:
            admission.settle(fit, places)
        admission.grant(places)
        registry.preemption.update(places)
        self._changed()
        if fit not in admission.held:
            missing = admission.look(admission.waiting[fit], places).missing
            return {"current": True, "members": [], "held": 0, "missing": missing}
        record = registry.records[fit]
        record.state = RECOVERING if record.state == PREEMPTED else record.state
        known, names = self._addresses(), admission.held[fit]
        members = [known[name] for name in names if name in known]
        return {"current": True, "members": members, "held": len(names), "missing": 0}
