"""The cluster of the command line: one that already runs, or worker processes on this machine."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import logging
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import dask
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster, Worker
from distributed.diagnostics.plugin import WorkerPlugin

from daskkern.backend.current import current
from daskkern.cluster.connect.clients import Certificates, client_at, scheduler_file_address
from daskkern.cluster.connect.protection import Protection
from daskkern.errors import ClusterError, SpecError

_CLOSE_S = 15.0
_NOISY = ("distributed", "tornado.application", "bokeh", "asyncio")


Kind: TypeAlias = Literal["attached", "cpu", "gpu"]
_ATTACHED: Kind = "attached"


@dataclass(frozen=True)
class Connection:
    """A client of a cluster, the link to its dashboard ("" if it has none), and the kind of its workers."""

    client: Client
    dashboard_link: str
    kind: Kind


@dataclass(frozen=True)
class Pool:
    """Bytes of GPU memory that a worker reserves when it starts, and at most."""

    initial: int
    most: int


DevicePool: TypeAlias = Callable[[Sequence[int | str]], Pool]
"""Maps GPUs, as CUDA names them, to the memory pool of the worker on each."""


PATIENT = {"distributed.deploy.lost-worker-timeout": "1 day"}
"""Dask's local clusters give up a worker that has not returned this long after its loss, by default 15 s: even one that
was lost again meanwhile and is being restarted by its nanny."""


@contextmanager
def connect(
    scheduler: str | None = None,
    workers: int | None = None,
    gpus: int | tuple[int, ...] | Literal["all", "auto"] | None = None,
    memory_limit: str | int | None = "auto",
    threads_per_worker: int | None = None,
    *,
    device_pool: DevicePool | None = None,
    scheduler_file: str | None = None,
    tls: Certificates | None = None,
    timeout_s: float = 10.0,
    debug: bool = False,
) -> Iterator[Connection]:
    """Attach to a scheduler, or start a cluster on this machine and close it at the end.

    Other users of the machine can neither connect to a cluster that is started here, nor open its dashboard.

    Parameters
    ----------
    scheduler
        Address of a running scheduler, such as ``tcp://host:8786``, which has its own workers.
    workers
        Worker processes to start; by default one for each core, at most four.
    gpus
        How many GPUs, or the numbers of the GPUs, to start one worker on each. "auto" takes all that are found, and
        starts `workers` when there are none or dask-cuda is missing; None does not look for GPUs.
    memory_limit
        Memory of one worker, as Dask understands it.
    threads_per_worker
        By default the cores divided by the workers.
    device_pool
        Returns the initial and the largest size of the RMM pool that CuPy uses on a worker's GPU. With None, or without
        RMM, CuPy uses its own pool.
    scheduler_file
        Path of the file that a running scheduler wrote, instead of its address.
    tls
        Certificates for a running scheduler with TLS; None takes those of Dask's configuration, if any.
    timeout_s
        How long a running scheduler may take to answer.
    debug
        Show Dask's own log lines.

    Raises
    ------
    ClusterError
        When the scheduler does not answer, or the cluster cannot be started.
    SpecError
        When the settings contradict each other.
    """
    running = scheduler if scheduler_file is None else f"the file {scheduler_file}"
    _check(running, workers, gpus, threads_per_worker)
    check_running(scheduler, scheduler_file, tls)
    security = None if tls is None else tls.security()
    with ExitStack() as stack:
        if not debug:
            stack.enter_context(_quiet())
        if running is not None:
            address = scheduler if scheduler_file is None else scheduler_file_address(scheduler_file)
            client, kind = stack.enter_context(client_at(str(address), timeout_s, security)), _ATTACHED
        else:
            silent = {"memory_limit": memory_limit, "silence_logs": logging.WARNING if debug else logging.CRITICAL}
            start = partial(_start, workers, gpus, threads_per_worker, device_pool)
            client, kind = stack.enter_context(_protected_cluster(start, silent, timeout_s))
        yield Connection(client, str(client.dashboard_link or ""), kind)


@contextmanager
def _protected_cluster(
    start: Callable[[dict[str, Any]], tuple[Any, Kind]], settings: dict[str, Any], timeout_s: float
) -> Iterator[tuple[Client, Kind]]:
    """Yield the client of a cluster that `start` makes, closed at the end, and the kind of its workers."""
    protection = Protection.new()
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({**PATIENT, **protection.dask_settings()}))
        cluster, kind = start({**settings, **protection.cluster_settings()})
        stack.callback(_close, cluster)
        protection.guard(cluster)
        client = stack.enter_context(Client(cluster, timeout=max(timeout_s, 30.0), set_as_default=False))
        stack.enter_context(current(client))
        client.register_plugin(_IgnoreInterrupt())
        yield client, kind


def _check(scheduler: str | None, workers: int | None, gpus: Any, threads_per_worker: int | None) -> None:
    if scheduler is not None and not (workers is gpus is threads_per_worker is None):
        raise SpecError(
            f"a running cluster ({scheduler}) has its own workers; give either its address, "
            "or the number of workers or GPUs to start here"
        )
    for name, number in (("workers", workers), ("gpus", gpus), ("threads_per_worker", threads_per_worker)):
        if isinstance(number, int) and number < 1:
            raise SpecError(f"got {name}={number}; expected at least 1")
    if isinstance(gpus, tuple) and (len(set(gpus)) < len(gpus) or not gpus or min(gpus) < 0):
        raise SpecError(f"got the GPUs {gpus}; expected different numbers from 0 on, such as 0,2")
    if isinstance(gpus, str) and gpus not in ("all", "auto"):
        raise SpecError(f"got gpus={gpus!r}; expected a number, 'all' or 'auto'")
    if workers is not None and gpus not in (None, "auto"):
        raise SpecError("got both workers and gpus; expected one of them: each GPU has one worker")


def check_running(scheduler: str | None, scheduler_file: str | None, tls: Certificates | None) -> None:
    """Raise SpecError for two ways to name a running cluster, and for certificates without one."""
    if scheduler is not None and scheduler_file is not None:
        raise SpecError(f"give one of --scheduler, {scheduler}, and --scheduler-file, {scheduler_file}")
    if tls is not None and scheduler is None and scheduler_file is None:
        raise SpecError(
            "TLS certificates were given without a running cluster; give its tls:// address, or leave them out"
        )


def _start(
    workers: int | None,
    gpus: Any,
    threads_per_worker: int | None,
    device_pool: DevicePool | None,
    common: dict[str, Any],
) -> tuple[Any, Kind]:
    if gpus is not None:
        cluster = _gpu_cluster(gpus, threads_per_worker, device_pool, common)
        if cluster is not None:
            return cluster, "gpu"
    n_workers = workers or min(CPU_COUNT, 4)
    threads = threads_per_worker or max(1, CPU_COUNT // n_workers)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Port .* is already in use")  # another process took it: any other will do
            cluster = LocalCluster(n_workers=n_workers, threads_per_worker=threads, processes=True, **common)
    except (OSError, RuntimeError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"a cluster of {n_workers} worker processes could not be started ({type(error).__name__}: {error})"
        ) from error
    return cluster, "cpu"


def _gpu_cluster(
    gpus: Any, threads_per_worker: int | None, device_pool: DevicePool | None, common: dict[str, Any]
) -> Any:
    """Return a LocalCUDACluster, or None when `gpus` is "auto" and no GPU can be used."""
    try:
        from dask_cuda import LocalCUDACluster  # optional package
        from dask_cuda.utils import get_n_gpus

        devices = _devices(gpus, get_n_gpus)
    except Exception as error:  # dask-cuda without a driver raises the types of several libraries
        if gpus == "auto":
            return None
        raise _refusal(gpus, error) from error
    memory = _device_memory(device_pool, devices)
    try:
        return LocalCUDACluster(
            CUDA_VISIBLE_DEVICES=devices, threads_per_worker=threads_per_worker or 1, **memory, **common
        )
    except Exception as error:
        raise _refusal(gpus, error) from error


def _devices(gpus: Any, get_n_gpus: Callable[[], int]) -> list[int | str]:
    """Return the requested devices, as CUDA names them. Raises ClusterError if there are fewer."""
    visible = _visible() if "CUDA_VISIBLE_DEVICES" in os.environ else list(range(get_n_gpus()))
    if not visible:
        raise ClusterError("no GPU was found")
    wanted = gpus if isinstance(gpus, tuple) else range(gpus if isinstance(gpus, int) else len(visible))
    if max(wanted) >= len(visible):
        raise ClusterError(f"{len(visible)} GPUs were found")
    return [visible[number] for number in wanted]


def _refusal(gpus: Any, error: Exception) -> ClusterError:
    if gpus == "auto":
        return ClusterError(
            f"GPUs were found, but their workers could not be started ({type(error).__name__}: {error}); run "
            "daskkern doctor, or give a number of workers to run on the CPU"
        )
    return ClusterError(
        f"{_words(gpus)} were requested but cannot be used ({type(error).__name__}: {error}); install daskkern[cuda12] "
        "or daskkern[cuda13] on a machine with GPUs, or leave out the GPUs to run on the CPU"
    )


def _device_memory(device_pool: DevicePool | None, devices: list[int | str]) -> dict[str, Any]:
    """Return the settings of dask-cuda for the memory of each GPU.

    No task of daskkern leaves its result on the device, so dask-cuda has nothing to spill there. For other work on the
    cluster, dask-cuda's own limit applies, four fifths of the device.
    """
    pool = None if device_pool is None or find_spec("rmm") is None else device_pool(devices)
    if pool is None or not pool.initial:
        return {}
    return {
        "rmm_pool_size": pool.initial,
        "rmm_maximum_pool_size": pool.most,
        "rmm_allocator_external_lib_list": ["cupy"],
        "rmm_track_allocations": True,  # what of the pool is in use counts when a later fit is planned
    }


def _visible() -> list[int | str]:
    """Return the devices that this process may use, as the environment names them: numbers, or parts of a UUID."""
    words = [word.strip() for word in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
    return [int(word) if word.isdecimal() else word for word in words if word and word != "-1"]


def _words(gpus: Any) -> str:
    return f"the GPUs {', '.join(map(str, gpus))}" if isinstance(gpus, tuple) else f"{gpus} GPUs"


def _close(cluster: Any) -> None:
    with suppress(TimeoutError, OSError, RuntimeError):  # what does not end in time is killed with this process
        cluster.close(timeout=_CLOSE_S)


class _IgnoreInterrupt(WorkerPlugin):
    """Makes workers ignore the Ctrl-C that the terminal sends them, too: only the command handles it."""

    name = "daskkern_ignore_interrupt"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        del worker
        with suppress(ValueError):  # the worker's event loop is not in the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log lines off the terminal: problems that matter are raised as exceptions."""
    names = [
        name for name in logging.root.manager.loggerDict if name.split(".")[0] in {n.split(".")[0] for n in _NOISY}
    ]
    levels = {name: logging.getLogger(name).level for name in {*names, *_NOISY}}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
