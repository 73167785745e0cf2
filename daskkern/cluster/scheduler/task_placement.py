"""Placement of the tasks of a fit on the workers that it holds, whichever Dask call submits them.

Dask runs a task on any worker, one without daskkern, or one that another fit uses, included. The tasks of a fit carry
its identifier in an annotation, by which the scheduler restricts them to the workers of the fit. Dask's own
restrictions are by address, which a worker that is restarted changes: here they follow the workers of the fit.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dask.base import annotate

FIT_ANNOTATION = "daskkern_fit"
_NOWHERE = "tcp://nowhere:0"
"""An empty set of addresses would be no restriction for Dask."""


@contextmanager
def tasks_of(fit: str) -> Iterator[None]:
    """Let the tasks that are submitted within the context belong to `fit`.

    Arguments of ``client.scatter`` are not tasks, and need ``workers=``.
    """
    with annotate(**{FIT_ANNOTATION: fit}):
        yield


class TaskPlacement:
    """Restricts the tasks of fits on `scheduler`, except for those that name their workers themselves.

    A task that prefers some workers (``allow_other_workers=True``) gets one of these as long as the fit has one, and
    any worker of the fit otherwise.

    Parameters
    ----------
    scheduler : Scheduler
    workers_of : callable
        Returns the addresses of the workers on which the tasks of a fit may run now.
    """

    def __init__(self, scheduler: Any, workers_of: Callable[[str], Iterable[str]]) -> None:
        self._scheduler, self._workers_of = scheduler, workers_of
        self._fits: dict[Any, str] = {}  # by the key of a task
        self._tasks = Counter[str]()  # by fit
        self._bound: dict[str, frozenset[str] | None] = {}  # by fit
        self._preferred: dict[Any, frozenset[str]] = {}  # by the key of a task

    def submitted(self, annotations: Mapping[str, Mapping[Any, Any]]) -> None:
        """Restrict new tasks, given their annotations by name and key."""
        for key, fit in annotations.get(FIT_ANNOTATION, {}).items():
            task = self._scheduler.tasks.get(key)
            if task is None or key in self._fits or task.host_restrictions:
                continue
            if task.worker_restrictions:
                if not task.loose_restrictions:
                    continue
                self._preferred[key] = frozenset(task.worker_restrictions)
            self._fits[key] = fit
            self._tasks[fit] += 1
            if fit not in self._bound:
                self._bound[fit] = self._allowed(fit)
            self._restrict(task, self._bound[fit])

    def forget(self, key: Any) -> None:
        """Forget a task that the scheduler has forgotten."""
        fit = self._fits.pop(key, None)
        self._preferred.pop(key, None)
        if fit is not None:
            self._tasks[fit] -= 1
            if not self._tasks[fit]:
                del self._tasks[fit], self._bound[fit]

    def refresh(self) -> None:
        """Let the restrictions follow the workers: some have joined or left, or changed the fit that holds them."""
        moved = {self._fits[key] for key in self._preferred}
        for fit, before in self._bound.items():
            self._bound[fit] = self._allowed(fit)
            if self._bound[fit] != before:
                moved.add(fit)
        if moved:
            tasks = [self._scheduler.tasks[key] for key, fit in self._fits.items() if fit in moved]
            for task in tasks:
                self._restrict(task, self._bound[self._fits[task.key]])
            self._reconsider(tasks)

    def _allowed(self, fit: str) -> frozenset[str] | None:
        """Return the workers of `fit`; None when these are all, so that Dask need not treat its tasks specially."""
        allowed = frozenset(self._workers_of(fit))
        return None if allowed >= self._scheduler.workers.keys() else allowed or frozenset({_NOWHERE})

    def _restrict(self, task: Any, allowed: frozenset[str] | None) -> None:
        preferred = self._preferred.get(task.key, frozenset())
        own = preferred & (self._scheduler.workers.keys() if allowed is None else allowed)
        found = own or allowed
        task.worker_restrictions = None if found is None else set(found)
        task.loose_restrictions = False

    def _reconsider(self, tasks: Iterable[Any]) -> None:
        """Let Dask reconsider the tasks that wait for a worker; its queue ignores restrictions."""
        again = {"no-worker": "processing", "queued": "released"}
        recommended = {task.key: again[task.state] for task in tasks if task.state in again}
        if recommended:
            self._scheduler.transitions(recommended, f"daskkern-placement-{time.time()}")
