"""The faults of a soak: what happens to its cluster while fits run on it."""

import os
import random
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psutil
from distributed import Client
from distributed.core import Status

from tests.support.cluster import local_cluster, worker_pids

_PATIENCE_S = 60.0
_PAUSE_S, _FULL_S, _GAP_S = 10.0, 10.0, 2.0


class Home:
    """The cluster of a soak and the clients of its fits. It may be replaced by another one.

    Parameters
    ----------
    workers, clients : int
        Of the cluster, and clients that submit fits, besides the one of the faults.
    """

    def __init__(self, workers: int, clients: int) -> None:
        self.workers, self.generation = workers, 0
        self._n_clients = clients
        self._stack = ExitStack()
        self._ready = threading.Condition()
        self._begin()

    def _begin(self) -> None:
        self.client = self._stack.enter_context(local_cluster(self.workers))
        worker_pids(self.client)
        address = self.client.scheduler.address
        self._others = [
            self._stack.enter_context(Client(address, timeout=_PATIENCE_S, set_as_default=False))
            for _ in range(self._n_clients)
        ]

    @property
    def cluster(self) -> Any:
        return self.client.cluster

    def of(self, number: int) -> tuple[int, Client]:
        """Return the generation of the cluster, and one of the clients of its fits."""
        with self._ready:
            return self.generation, self._others[number % len(self._others)]

    def after(self, generation: int, number: int) -> tuple[int, Client] | None:
        """Return what :meth:`of` returns for a later cluster; None where it is still the same."""
        found = self.of(number)
        return found if found[0] > generation else None

    def restart(self) -> None:
        """Close the scheduler with all connections and workers, and start another one."""
        with self._ready:
            self.generation += 1
            with suppress(Exception):  # of clients whose scheduler is gone
                self._stack.close()
            self._stack = ExitStack()
            self._begin()

    def close(self) -> None:
        self._stack.close()

    def pids(self) -> list[int]:
        """Return the processes of running workers without sending them a request, since one may hang.

        Workers that are still starting are spared, since a nanny gives up a worker that dies meanwhile.
        """
        processes = [worker.process for worker in self.cluster.workers.values()]
        return [process.pid for process in processes if process is not None and process.status == Status.running]

    def pid_of(self, address: str | None) -> int:
        """Return the process of the worker at `address`, also without a request. Raises StopIteration for none."""
        workers = [worker for worker in self.cluster.workers.values() if worker.worker_address == address]
        return next(int(worker.process.pid) for worker in workers if worker.process is not None)


Fault = Callable[[Home, random.Random], None]


def _signal(number: int) -> Fault:
    def send(home: Home, rng: random.Random) -> None:
        os.kill(rng.choice(home.pids()), number)

    return send


def pause(home: Home, rng: random.Random) -> None:
    """Let a worker be paused for a while, as if its memory were full."""

    def paused(dask_worker: Any, seconds: float) -> None:
        dask_worker.status = Status.paused
        dask_worker.loop.call_later(seconds, lambda: setattr(dask_worker, "status", Status.running))

    address = rng.choice([worker.worker_address for worker in home.cluster.workers.values() if worker.worker_address])
    home.client.run(paused, _PAUSE_S, workers=[address], on_error="ignore")


def keep_the_scheduler_busy(home: Home, rng: random.Random) -> None:
    home.client.run_on_scheduler(time.sleep, rng.uniform(2.0, 15.0))


def fill_the_disk(home: Home, rng: random.Random) -> None:
    """Let no process of a worker write files of more than 2 kB for a while: no commit of a checkpoint."""
    processes = [psutil.Process(pid) for pid in home.pids()]
    everything = resource.RLIM_INFINITY
    for process in processes:
        process.rlimit(resource.RLIMIT_FSIZE, (2000, everything))
    time.sleep(_FULL_S)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(resource.RLIMIT_FSIZE, (everything, everything))


def restart_the_scheduler(home: Home, rng: random.Random) -> None:
    del rng
    home.restart()


def let_workers_trickle_in(home: Home, rng: random.Random) -> None:
    """Retire all workers, and start new ones one after the other."""
    home.cluster.scale(0)
    for number in range(1, home.workers + 1):
        time.sleep(rng.uniform(0.5, 2) * _GAP_S)
        home.cluster.scale(number)


def adapt_from_none(home: Home, rng: random.Random) -> None:
    """Retire all workers, and let an adaptive cluster start what fits ask for; then make it a fixed one again."""
    home.cluster.scale(0)
    adaptive = home.cluster.adapt(minimum=0, maximum=home.workers, interval="500ms")
    time.sleep(rng.uniform(5, 10) * _GAP_S)
    adaptive.stop()
    home.cluster.scale(home.workers)


FAULTS: dict[str, tuple[float, Fault]] = {
    "kill": (0.4, _signal(signal.SIGKILL)),
    "hang": (0.1, _signal(signal.SIGSTOP)),
    "drain": (0.1, _signal(signal.SIGTERM)),
    "paused worker": (0.08, pause),
    "busy scheduler": (0.08, keep_the_scheduler_busy),
    "full disk": (0.08, fill_the_disk),
    "trickling workers": (0.06, let_workers_trickle_in),
    "adaptive from none": (0.05, adapt_from_none),
    "scheduler restart": (0.05, restart_the_scheduler),
}
"""How often each happens, and what it does."""


@contextmanager
def faults(
    home: Home, seconds: float, every_s: float, names: Mapping[str, float], seed: int, counts: Counter[str]
) -> Iterator[None]:
    """Let a fault happen every `every_s` seconds, for `seconds`: each of `names` once, and then by their weights."""
    rng, stop, begun = random.Random(seed), threading.Event(), time.monotonic()
    first = rng.sample(list(names), len(names))

    def haunt() -> None:
        while names and not stop.wait(every_s) and time.monotonic() - begun < seconds:
            name = first.pop() if first else rng.choices(list(names), list(names.values()))[0]
            # What is asked of a worker that hangs is not waited for.
            deed = threading.Thread(target=_attempt, args=(name, home, rng, counts), daemon=True)
            deed.start()
            deed.join(_PATIENCE_S)

    thread = threading.Thread(target=haunt, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _attempt(name: str, home: Home, rng: random.Random, counts: Counter[str]) -> None:
    try:
        FAULTS[name][1](home, rng)
        counts[name] += 1
    except (OSError, IndexError, ValueError, TimeoutError, RuntimeError, psutil.Error):
        with suppress(Exception):  # a deed that failed half-way may have left a cluster without workers
            home.cluster.scale(home.workers)
