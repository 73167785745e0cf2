"""Command-line options for where a command runs, and their conversion to a cluster."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from distributed import Client

from daskkern.cli.console import say
from daskkern.cluster.connect.clients import Certificates, certificates
from daskkern.cluster.connect.local import Connection, DevicePool, check_running, connect
from daskkern.errors import SpecError


@dataclass(frozen=True)
class ClusterRequest:
    """The requested cluster: a running scheduler, or local workers (on GPUs where "auto" finds some)."""

    scheduler: str | None
    workers: int | None
    gpus: str | None
    debug: bool
    scheduler_file: str | None = None
    tls: Certificates | None = None

    @property
    def named(self) -> bool:
        """Whether the options name a running cluster."""
        return self.scheduler is not None or self.scheduler_file is not None

    @property
    def words(self) -> str:
        """The command-line options that name the same cluster."""
        tls = [] if self.tls is None else [f"--tls-{name} {value}" for name, value in asdict(self.tls).items()]
        place = (
            f"--scheduler {self.scheduler}"
            if self.scheduler_file is None
            else f"--scheduler-file {self.scheduler_file}"
        )
        return " ".join([place, *tls])

    @contextmanager
    def attached(self) -> Iterator[Client]:
        """Yield a client of the named running cluster, for commands that only query it."""
        if not self.named:
            raise SpecError("no cluster was named; give --scheduler or --scheduler-file")
        with connect(self.scheduler, scheduler_file=self.scheduler_file, tls=self.tls, debug=self.debug) as connection:
            yield connection.client

    @contextmanager
    def requested(self) -> Iterator[Client | None]:
        """Yield a client of the cluster or local workers that the options request; None where they request none."""
        if not (self.named or self.workers or self.tls):
            yield None
            return
        with self.client() as client:
            yield client

    @contextmanager
    def client(self, device_pool: DevicePool | None = None) -> Iterator[Client | None]:
        """Yield a client of the cluster, closed on exit, or None to run in this process."""
        if self.workers == 0:
            say("running in this process")
            yield None
            return
        with self.connection(device_pool) as connection:
            what = {"attached": "cluster", "cpu": "local cluster", "gpu": "local GPU cluster"}[connection.kind]
            say(f"{what} {_address(connection.client)}   dashboard {connection.dashboard_link or 'not served'}")
            yield connection.client

    @contextmanager
    def connection(self, device_pool: DevicePool | None = None) -> Iterator[Connection]:
        """Yield a connection to the named cluster or to local workers, without printing anything."""
        with connect(
            self.scheduler,
            self.workers,
            self._gpus(),
            device_pool=device_pool,
            scheduler_file=self.scheduler_file,
            tls=self.tls,
            debug=self.debug,
        ) as connection:
            yield connection

    def _gpus(self) -> Any:
        if self.gpus is None:
            return None if self.named or self.workers is not None else "auto"
        if self.gpus in ("all", "auto"):
            return self.gpus
        try:
            numbers = tuple(int(word) for word in self.gpus.split(","))
        except ValueError:
            raise SpecError(f"got --gpus {self.gpus!r}; give 'all', a number, or devices such as 0,2") from None
        return numbers if "," in self.gpus else numbers[0]


def _address(client: Client) -> str:
    return str(client.scheduler_info(n_workers=0)["address"])


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a running cluster to a command, which receives them as one `running`."""

    @click.option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler, such as tcp://host:8786.")
    @click.option(
        "--scheduler-file", metavar="FILE", help="The scheduler file of a running scheduler, with its address."
    )
    @click.option("--tls-ca", metavar="FILE", help="For tls://: CA certificate that signed the cluster's certificate.")
    @click.option("--tls-cert", metavar="FILE", help="For tls://: certificate of this client.")
    @click.option("--tls-key", metavar="FILE", help="For tls://: private key of this client.")
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        scheduler: str | None,
        scheduler_file: str | None,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        **others: Any,
    ) -> Any:
        tls = certificates(tls_ca, tls_cert, tls_key)
        debug = bool(click.get_current_context().find_root().params.get("debug"))
        running = ClusterRequest(scheduler, None, None, debug, scheduler_file, tls)
        return command(*args, running=running, **others)

    return wrapped


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a running cluster and ``--workers``, which the command receives as one `running`."""

    @scheduler_options
    @click.option("--workers", type=click.IntRange(1), metavar="N", help="Start N local workers that share the work.")
    @functools.wraps(command)
    def wrapped(*args: Any, running: ClusterRequest, workers: int | None, **others: Any) -> Any:
        if running.named and workers is not None:
            raise SpecError(
                "got both --workers and a running cluster; give one of --scheduler, --scheduler-file and --workers"
            )
        return command(*args, running=replace(running, workers=workers), **others)

    return wrapped


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the cluster options to a command, which receives them as one `where` of type ClusterRequest."""

    @scheduler_options
    @click.option("--workers", type=int, metavar="N", help="Start N local worker processes; 0 runs in this process.")
    @click.option(
        "--gpus", metavar="all|N|0,2", help="Start one local worker per GPU: all of them, N, or the listed ones."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, running: ClusterRequest, workers: int | None, gpus: str | None, **others: Any) -> Any:
        if sum(value is not None for value in (running.scheduler, running.scheduler_file, workers, gpus)) > 1:
            raise SpecError("give one of --scheduler, --scheduler-file, --workers and --gpus")
        if workers is not None and workers < 0:
            raise SpecError(f"got --workers {workers}; give a whole number of 0 or more")
        if workers == 0 and running.tls is not None:
            raise SpecError("got TLS certificates with --workers 0, which uses no cluster; leave them out")
        check_running(running.scheduler, running.scheduler_file, running.tls)
        return command(*args, where=replace(running, workers=workers, gpus=gpus), **others)

    return wrapped
