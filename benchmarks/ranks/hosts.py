"""Clusters whose workers are processes on hosts of their own, loopback addresses that the relay connects."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker
from distributed.comm.tcp import BaseTCPConnector
from tornado.tcpclient import TCPClient

from daskkern.cluster.connect.local import PATIENT
from ranks.relay import RelayControl, listening, relay, relayed
from tests.support.cluster import fork_workers

_PORT = 9300
_SETTINGS = {
    **PATIENT,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.admin.tick.interval": "200ms",
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
}


def free_net() -> int:
    """Return the second number of loopback addresses that another run is unlikely to use."""
    return 64 + os.getpid() % 128


class HostWorker(Worker):
    """A worker whose connections come from the address of its host."""

    def __init__(self, *args: Any, host: str, **settings: Any) -> None:
        BaseTCPConnector.client = _BoundClient(host)
        super().__init__(*args, host=host, **settings)


class _BoundClient(TCPClient):
    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    async def connect(self, host: str, port: int, *args: Any, **settings: Any) -> Any:
        return await super().connect(host, port, *args, **{**settings, "source_ip": self._source})


@contextmanager
def hosts(n_hosts: int, *, relayed_links: bool) -> Iterator[tuple[Client, RelayControl | None]]:
    """Yield the client of a cluster of `n_hosts` workers, each a process on a host of its own, and the relay's control.

    Without `relayed_links` the workers connect to each other directly, and the control is None.
    """
    fork_workers()
    net = free_net()
    ports = {host: [_PORT] for host in range(1, n_hosts + 1)}
    between = relay(net, ports) if relayed_links else nullcontext()
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    workers = {host: {"cls": Nanny, "options": _options(net, host, relayed_links)} for host in ports}
    with (
        dask.config.set(_SETTINGS),
        between as control,
        SpecCluster(workers, scheduler, silence_logs=50) as cluster,
        Client(cluster, timeout=60, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_hosts, timeout=180)
        yield client, control


def _options(net: int, host: int, relayed_links: bool) -> dict[str, Any]:
    address = listening(net, host)
    return {
        "worker_class": HostWorker,
        "host": address,
        "port": 0,
        "worker_port": _PORT,
        "contact_address": f"tcp://{relayed(net, host)}:{_PORT}" if relayed_links else None,
        "nthreads": 1,
        "memory_limit": 0,
        "silence_logs": 50,
    }
