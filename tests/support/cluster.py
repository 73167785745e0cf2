"""Small clusters of real worker processes for tests."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster, Nanny
from distributed.core import Status

from daskkern.cluster.connect.local import PATIENT

_SETTLE_S = 15.0
_MARK = "DASKKERN_TEST_CLUSTER"
_SETTINGS = {
    **PATIENT,
    "distributed.comm.timeouts.connect": "10s",
    "distributed.admin.tick.interval": "200ms",  # idle workers leave the cores to the test
    "distributed.scheduler.work-stealing": False,
}


@contextmanager
def local_cluster(
    n_workers: int, threads_per_worker: int = 1, *, profiled: bool = False, **worker_settings: Any
) -> Iterator[Client]:
    """Yield the client of a cluster of `n_workers` processes on the loopback interface, and close both.

    Dask's statistical profile is taken where it is asked for only.

    Raises
    ------
    TimeoutError
        When the workers do not start within 60 s.
    """
    mark = uuid.uuid4().hex
    with (
        dask.config.set({**_SETTINGS, "distributed.worker.profile.enabled": profiled}),
        _no_strays(mark),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            processes=True,
            worker_class=_marking(mark),
            # Without a dashboard, but not on its port: Dask leaks a socket when that is taken.
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            silence_logs=50,
            **worker_settings,
        ) as cluster,
        Client(cluster, timeout=60, set_as_default=False) as client,
    ):
        if n_workers > 0:
            client.wait_for_workers(n_workers, timeout=60)
        try:
            yield client
        finally:
            _settle(cluster)


def _marking(mark: str) -> type[Nanny]:
    """Return a kind of nanny whose worker processes carry `mark` in the environment that they are started with."""

    class MarkingNanny(Nanny):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.pre_spawn_env = {**self.pre_spawn_env, _MARK: mark}

    return MarkingNanny


@contextmanager
def _no_strays(mark: str) -> Iterator[None]:
    """End the worker processes of a closed cluster that Dask has lost sight of.

    A nanny that closes while it replaces a worker knows one of the two processes only.
    """
    try:
        yield
    finally:
        for process in child_processes():
            with suppress(psutil.Error):
                if "spawn_main" in " ".join(process.cmdline()) and process.environ().get(_MARK) == mark:
                    process.kill()


def _settle(cluster: Any) -> None:
    """Wait, for a short time, until no nanny is restarting its worker; end workers that are stopped by a signal.

    Dask leaves a process behind that starts, or does not hear of its end, while its cluster closes.
    """
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        if all(_is_steady(nanny) for nanny in list(cluster.workers.values())):
            return
        time.sleep(0.05)


def _is_steady(nanny: Any) -> bool:
    if nanny.status in (Status.closed, Status.failed, Status.stopped):
        return True
    if nanny.status != Status.running or nanny.process is None or nanny.process.status != Status.running:
        return False
    try:
        process = psutil.Process(nanny.process.pid)
        if process.status() == psutil.STATUS_STOPPED:
            process.kill()
            return False
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0, what: str = "the condition") -> None:
    """Return once `condition()` is true.

    Raises
    ------
    TimeoutError
        When it is still false after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} was not true after {timeout_s:g} s")
        time.sleep(0.02)


def worker_pids(client: Client) -> dict[str, int]:
    """Return the process id of each worker, by address."""
    pids: dict[str, int] = client.run(_pid)
    return pids


def _pid() -> int:
    return os.getpid()


def child_processes() -> list[psutil.Process]:
    """Return the live processes below this one, without multiprocessing's own helpers."""
    children = []
    for process in psutil.Process().children(recursive=True):
        try:
            helper = any("resource_tracker" in word for word in process.cmdline())
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            continue
        if alive and not helper:
            children.append(process)
    return children
