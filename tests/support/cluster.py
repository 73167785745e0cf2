"""Small clusters of real worker processes for tests."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster, Worker
from distributed.core import Status
from distributed.utils import get_mp_context

from daskkern.cluster.connect.local import PATIENT
from tests.support.processes import is_helper
from tests.support.runs.steady_clock import use_steady_clock
from tests.support.runs.stuck_clusters import known, tell_stacks_on_a_signal

_SETTLE_S = 15.0
PIDS = "DASKKERN_TESTPIDS"
_PRELOADED = ["distributed", "tests.support.cluster", "tests.support.ranks", "daskkern.training.run.on_cluster"]
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

    Dask's statistical profile is taken only if `profiled`.

    Raises
    ------
    TimeoutError
        When the workers do not start within 60 s.
    """
    with (
        dask.config.set({**_SETTINGS, "distributed.worker.profile.enabled": profiled}),
        _no_strays() as pids,
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            processes=True,
            worker_class=_marking(pids),
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
            with known(cluster, pids):
                yield client
        finally:
            _settle(cluster)


@contextmanager
def mixed_cluster(
    workers: Sequence[tuple[int, int]], hosts: Sequence[str] = (), later: tuple[int, int] | None = None
) -> Iterator[Client]:
    """Yield the client of a cluster of worker processes with these threads and bytes of memory, and close both.

    The workers listen at `hosts`, addresses of the loopback interface: 127.0.0.1 unless given. Those that are started
    by ``client.cluster.scale`` are like `later`.
    """
    addresses = hosts or ["127.0.0.1"] * len(workers)
    with dask.config.set({**_SETTINGS, "distributed.worker.profile.enabled": False}), _no_strays() as pids:
        kind = _marking(pids)

        def spec_of(threads: int, limit: int, host: str = "127.0.0.1") -> dict[str, Any]:
            options = {"nthreads": threads, "memory_limit": limit, "host": host, "silence_logs": 50}
            return {"cls": kind, "options": options}

        spec = {number: spec_of(*worker, addresses[number]) for number, worker in enumerate(workers)}
        scheduler = {
            "cls": Scheduler,
            "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
        }
        with (
            SpecCluster(spec, scheduler, None if later is None else spec_of(*later), silence_logs=50) as cluster,
            Client(cluster, timeout=60, set_as_default=False) as client,
        ):
            client.wait_for_workers(len(workers), timeout=60)
            try:
                yield client
            finally:
                _settle(cluster)


@contextmanager
def one_process_cluster(n_workers: int, protocol: str = "tcp") -> Iterator[Client]:
    """Yield the client of a cluster whose `n_workers` workers share this process, and talk over sockets."""
    quiet = {"distributed.admin.system-monitor.interval": "1h", "distributed.worker.profile.enabled": False}
    with (
        dask.config.set({**_SETTINGS, **quiet}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            protocol=protocol,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},  # as in `local_cluster`
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        Client(cluster, timeout=60, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_workers, timeout=60)
        yield client


@contextmanager
def by_messages(client: Client) -> Iterator[None]:
    """Let the ranks of the workers send each other messages for all sums, as those of several hosts do."""
    client.run(dask.config.set, {"daskkern.shared-memory": False})
    try:
        yield
    finally:
        client.run(dask.config.set, {"daskkern.shared-memory": True})


def fork_workers() -> None:
    """Let Dask fork its workers from a process that has imported what they need, instead of 3 s of imports for each.

    That process has one thread: what another one holds while it forks would be held in the worker for ever.
    """
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # that of Arrow's jemalloc
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(_PRELOADED)


class _MarkedWorker(Worker):
    """Worker that leaves its process id in the folder of its cluster, and goes by the steady clock."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        use_steady_clock()
        leave_pid(os.environ[PIDS])
        super().__init__(*args, **settings)


def leave_pid(folder: str) -> None:
    """Leave the number of this process where its cluster finds it, and the stacks of its threads on a signal."""
    tell_stacks_on_a_signal(folder)  # before anybody sends it
    Path(folder, str(os.getpid())).touch()


def _marking(pids: str) -> type[Nanny]:
    """Return a kind of nanny whose workers leave their process ids in a folder.

    They get the environment of this process as it is now: they are forked from one that was started earlier.
    """

    class MarkingNanny(Nanny):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, worker_class=_MarkedWorker, **settings)
            self.env = {**os.environ, **self.env, PIDS: pids}

    return MarkingNanny


@contextmanager
def _no_strays() -> Iterator[str]:
    """Yield a folder for process ids, and end the worker processes of a closed cluster that Dask has lost sight of.

    A nanny that closes while it replaces a worker knows one of the two processes only.
    """
    with TemporaryDirectory() as folder:
        try:
            yield folder
        finally:
            pids = set(os.listdir(folder))
            for process in child_processes():
                if str(process.pid) in pids:
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


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0, what: str = "the condition") -> None:
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
            alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            if alive and not is_helper(process):
                children.append(process)
        except psutil.NoSuchProcess:
            continue
    return children
