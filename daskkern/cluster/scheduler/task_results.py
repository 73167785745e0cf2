"""Waiting for results of tasks whose messages, or whose workers, may be lost.

A client learns of a task's end by a message of the scheduler, and the scheduler of the task by one of the client. If
either is lost, the future of Dask waits for ever, while the scheduler answers every question.
"""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, wait

from daskkern.backend.current import current
from daskkern.cluster.connect.membership import BrokenOffError, live_workers
from daskkern.cluster.scheduler.client import ask_fits, install_fits
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.worker_list import WorkerList
from daskkern.errors import ClusterError, FitCancelledError

_T = TypeVar("_T")
DOUBT_S = 10.0
"""Seconds between two questions to the scheduler about a task that has not ended."""
FETCH_S = 10.0
"""How long the first attempt to fetch a result may take; each further one may take twice as long."""
_MOST_FETCH_S = 600.0
_LOOK_S = 2.0
"""Seconds between two looks whether a worker is still there, which costs a list of all workers."""
_POLL_S = 0.5
_RESUBMISSIONS = 3
_LOST = "lost dependencies"
"""Dask's reason for cancelling a task when the scheduler does not know one that it needs."""
_ENDED = ("memory", "erred", "forgotten")


class LostTaskError(BrokenOffError):
    """The scheduler does not know a task, or one that it needs: it has never run, and can be submitted again."""


class TaskResult:
    """The result of the task of a future.

    Parameters
    ----------
    client : Client
    future : Future
    what : str
        Names the task in an error.
    doubt_s : float, optional
        Seconds between two questions to the scheduler about a task that has not ended. Messages may be on their way,
        so that it takes two answers of the same kind to believe one. `DOUBT_S` unless given.
    """

    def __init__(self, client: Client, future: "Future[Any]", what: str, doubt_s: float | None = None) -> None:
        self._client, self._future, self._what = client, future, what
        self._doubt_s = DOUBT_S if doubt_s is None else doubt_s
        self._checked_at, self._doubt, self._fetch_s = time.monotonic(), "", FETCH_S

    def within(self, timeout_s: float) -> Any:
        """Return the result, or raise the task's error.

        Once the task has ended, fetching its result has a time of its own: an attempt that is broken off is begun
        from the start.

        Raises
        ------
        TimeoutError
            When the task has not ended after `timeout_s`, or its result has not arrived in time.
        LostTaskError
            When the scheduler does not know the task, or one that it needs.
        BrokenOffError
            When the scheduler says that the task has ended, which this client has not heard; or when the client has
            lost its scheduler.
        ClusterError
            When the scheduler cannot be reached.
        """
        self.end_within(timeout_s)
        try:
            return self._future.result(timeout=self._fetch_s)
        except TimeoutError as error:
            _raise_own(self._future, error, self._what)
            self._fetch_s = min(2 * self._fetch_s, _MOST_FETCH_S)
            raise
        except CancelledError as error:
            raise _cut_off(self._future, self._what) from error

    def end_within(self, timeout_s: float) -> None:
        """Return once the task has ended, well or badly; nothing is fetched. Raises what :meth:`within` raises.

        Other errors than TimeoutError say that it will never be heard to end.
        """
        try:
            with current(self._client):
                wait([self._future], timeout=timeout_s)
        except TimeoutError:
            self.check()
            raise
        except CancelledError as error:
            raise _cut_off(self._future, self._what) from error

    @property
    def in_doubt(self) -> bool:
        """Whether the last answer of the scheduler was that this process waits in vain."""
        return bool(self._doubt)

    def check(self, now: bool = False) -> None:
        """Ask the scheduler for the state of the task, if the last question was long ago, or `now`.

        Raises
        ------
        LostTaskError
            When it answers for the second time that it does not know the task.
        BrokenOffError
            When it answers for the second time that the task has ended.
        """
        if not now and time.monotonic() - self._checked_at < self._doubt_s:
            return
        state, n_graphs, _ = ask_fits(self._client, "task_state", key=str(self._future.key))
        before, self._doubt, self._checked_at = self._doubt, "", time.monotonic()
        if self._future.done() or (n_graphs if not state else state not in _ENDED):  # it may be among those graphs
            return
        self._doubt = "says that it has ended" if state else "does not know it"
        if self._doubt == before:
            kind = BrokenOffError if state else LostTaskError
            raise kind(
                f"a message between this process and the scheduler was lost: this process waits for {self._what}, and "
                f"the scheduler {self._doubt}; fit again"
            )


def resubmitting(work: Callable[[], _T]) -> _T:
    """Return the result of `work`, which submits tasks and waits for them, and is called again when one was lost."""
    for _ in range(_RESUBMISSIONS):
        with suppress(LostTaskError):
            return work()
    return work()


def await_ends(client: Client, futures: Sequence["Future[Any]"], what: str, doubt_s: float | None = None) -> None:
    """Wait until all tasks have ended, well or badly, and leave their results where they are.

    Raises
    ------
    BrokenOffError
        When this process will never hear of an end; see :meth:`TaskResult.within`.
    """
    install_fits(client)  # which is asked in doubt
    doubt_s = DOUBT_S if doubt_s is None else doubt_s
    for future in futures:
        task = TaskResult(client, future, what, doubt_s)
        while not future.done():
            with suppress(TimeoutError):
                task.end_within(min(doubt_s, _LOOK_S))
        if future.cancelled():
            raise _cut_off(future, what)


def set_up_result(client: Client, future: "Future[Any]", metadata: FitMetadata, idle_s: float) -> Any:
    """Return the result of the set-up of a fit, and release the future.

    Raises
    ------
    ClusterError
        When its worker died repeatedly, or the cluster had no workers for `idle_s`.
    FitCancelledError
        When the fit is cancelled meanwhile.
    """
    there, workers = time.monotonic(), WorkerList(client)
    result = TaskResult(client, future, f"the set-up of fit '{metadata.name}'")
    try:
        while True:
            try:
                return result.within(_POLL_S)
            except KilledWorker as error:
                raise ClusterError(
                    f"the set-up of fit '{metadata.name}' lost its worker repeatedly; see the workers' logs: the usual "
                    "reason is too little memory"
                ) from error
            except TimeoutError:
                there = time.monotonic() if workers.alive() else there
            if time.monotonic() - there > idle_s:
                raise ClusterError(
                    f"all workers left during the set-up of fit '{metadata.name}', and none came in {idle_s:g} s; "
                    "start workers, and fit again"
                )
            if ask_fits(client, "asked_to_stop", fit=metadata.fit, asker=client.id):
                raise FitCancelledError(f"fit '{metadata.name}' ({metadata.fit}) was cancelled; nothing was written")
    finally:
        future.release()


def results_of(client: Client, futures: Mapping[str, "Future[Any]"], doubt_s: float | None = None) -> list[Any]:
    """Return the results of tasks that may run on one worker each, by its address; release them.

    Raises
    ------
    BrokenOffError
        When a worker has left before its result was here, for which Dask would wait for ever; and when this process
        will never hear of an end, see :meth:`TaskResult.within`.
    """
    install_fits(client)  # which is asked in doubt
    results = []
    try:
        for address, future in futures.items():
            task = TaskResult(client, future, f"a measurement of worker {address}", doubt_s)
            while True:
                try:
                    results.append(task.within(_LOOK_S))
                    break
                except TimeoutError:
                    if address not in live_workers(client):
                        raise BrokenOffError(f"worker {address} left while it was measured") from None
    finally:
        for future in futures.values():
            future.release()
    return results


def _raise_own(future: "Future[Any]", error: TimeoutError, what: str) -> None:
    """Raise ClusterError where `error` is that of the task itself, and not of waiting for it."""
    if future.status == "error":
        raise ClusterError(f"{what} failed with a timeout: {error}".rstrip(": ")) from error


def _cut_off(future: "Future[Any]", what: str) -> BrokenOffError:
    """Return the error of a wait for `future`, which Dask has cancelled: a task was lost, or the whole scheduler."""
    try:
        future.result(timeout=FETCH_S)
    except CancelledError as error:
        if getattr(error, "reason", None) == _LOST:
            return LostTaskError(
                f"a message between this process and the scheduler was lost: this process waits for {what}, and the "
                "scheduler does not know what that depends on; fit again"
            )
    return BrokenOffError(f"the connection to the scheduler was lost while this process waited for {what}")
