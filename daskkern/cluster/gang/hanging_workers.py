"""Removal of workers that hang before a fit has started; Dask would mark them dead only after minutes."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client

from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.connect.preflight import check_client, choose_workers
from daskkern.cluster.gang.settings import GangSettings
from daskkern.cluster.gang.worker_plugin import install
from daskkern.cluster.scheduler.client import ask_fits, install_fits
from daskkern.cluster.scheduler.metadata import login
from daskkern.errors import ClusterError
from daskkern.events import Listener, StageFinished, silent

_LAG_S = 5.0
_PER_WORKER_S = 0.02
"""The more workers there are, the longer Dask waits between two heartbeats of one."""
_POLL_S = 0.25
_LOOKS = 5
"""Number of looks at the list of all workers in the time after which a worker counts as silent."""
_OTHERS_S = 90.0
"""How long a worker that hangs and that another fit holds is waited for: that fit or the scheduler removes it."""


def usable_workers(
    client: Client, settings: GangSettings, code: object, listener: Listener = silent
) -> tuple[str, ...]:
    """Return the addresses that a gang can run on, as :func:`choose_workers` does, and remove workers that hang.

    Raises
    ------
    ClusterError
        When a worker cannot be used; the message names the worker and the remedy.
    """
    check_client(client)
    remove_hanging_workers(client, settings.silence_s, listener)
    expected = False

    def patience() -> float:
        nonlocal expected  # a cluster that adapted when the wait began may be scaled by hand since
        expected = _requested(client, settings) or expected
        return settings.idle_s if expected else settings.rejoin_s

    begun = time.monotonic()
    while True:
        try:
            with removing_hung(client, settings.silence_s, listener):
                return choose_workers(client, settings.n_ranks, settings.workers, code, patience, listener)
        except ClusterError:
            if remove_hanging_workers(client, settings.silence_s, listener):
                continue  # with one worker less each time: the loop ends
            if time.monotonic() - begun > _OTHERS_S or not _quiet(live_workers(client), settings.silence_s):
                raise


@contextmanager
def removing_hung(client: Client, silence_s: float, listener: Listener = silent, fit: str = "") -> Iterator[None]:
    """A context in which the scheduler removes workers that hang, while this thread waits for their answers.

    Removed are those that no fit holds, and those that `fit` does. `listener` is informed at the end.
    """
    ended, said = threading.Event(), list[StageFinished]()

    def watch() -> None:
        while not ended.wait(silence_s / _LOOKS):
            with suppress(Exception):  # of a scheduler that is gone, which the waiting thread reports
                alive = live_workers(client)
                if suspects := _quiet(alive, silence_s):
                    install_fits(client)
                    said.extend(_removal(alive, a, silence_s) for a in _removed(client, suspects, silence_s, fit))

    thread = threading.Thread(target=watch, name="daskkern-hung", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LAG_S)  # a busy scheduler may keep it for longer
        for event in said:
            listener(event)


def _requested(client: Client, settings: GangSettings) -> bool:
    """Request the workers of a fit from an adaptive cluster; return whether workers are expected to come."""
    if settings.workers is not None:
        return False
    try:
        install_fits(client)
        user = login() if settings.user is None else settings.user
        return bool(ask_fits(client, "want", asker=client.id, n_ranks=settings.n_ranks, user=user))
    except ClusterError:  # a scheduler without daskkern: reported when the processes are checked
        return False


def equip(client: Client, silence_s: float, listener: Listener = silent) -> None:
    """Install daskkern's handlers on the workers, and remove workers that hang.

    Raises
    ------
    ClusterError
        When a worker is alive but does not accept them.
    """
    if install(client) or remove_hanging_workers(client, silence_s, listener):
        return
    raise ClusterError("a worker does not accept daskkern's handlers; see the workers' logs, and restart the busy one")


def remove_hanging_workers(client: Client, silence_s: float, listener: Listener = silent) -> tuple[str, ...]:
    """Have the scheduler remove the workers without a heartbeat for `silence_s`, and return them.

    Dask would assign them tasks of the set-up, which would never run. Their nannies start others. A worker that a
    fit holds is left to that fit. Returns at once when all are responsive; else waits for the rest of `silence_s`.
    """
    begun = time.monotonic()
    alive = live_workers(client)
    suspects = _quiet(alive, silence_s)
    if not suspects:
        return ()
    install_fits(client)
    gone: list[str] = []
    while suspects and time.monotonic() - begun < silence_s + _LAG_S:
        gone += _removed(client, suspects, silence_s)
        there = live_workers(client)
        gone += [address for address in suspects if address not in there and address not in gone]  # by another fit
        suspects = [address for address in _quiet(there, silence_s) if address not in gone]
        if suspects:
            time.sleep(_POLL_S)
    for address in gone:
        listener(_removal(alive, address, silence_s, time.monotonic() - begun))
    return tuple(gone)


def _removed(client: Client, suspects: Sequence[str], silence_s: float, fit: str = "") -> list[str]:
    """Have the scheduler remove those of the workers that were silent for `silence_s`, and return them."""
    return [a for a in suspects if ask_fits(client, "drop", address=a, silence_s=silence_s, unused=True, fit=fit)]


def _removal(
    workers: Mapping[str, Mapping[str, Any]], address: str, silence_s: float, took_s: float = 0.0
) -> StageFinished:
    name = workers[address]["name"] if address in workers else address
    said = f"worker {address} ({name}) hangs: nothing was heard of it for {silence_s:g} s; it was removed"
    return StageFinished("workers", took_s, said)


def _quiet(workers: Mapping[str, Mapping[str, Any]], silence_s: float) -> Sequence[str]:
    """Return the workers that have been silent for long, while the scheduler received heartbeats of another."""
    heard = {address: float(worker.get("last_seen", 0.0)) for address, worker in workers.items()}
    newest = max(heard.values(), default=0.0)
    lag_s = min(_LAG_S, silence_s) + _PER_WORKER_S * len(workers)
    return [address for address, last in heard.items() if newest - last > lag_s]
