"""A small network of hosts with addresses of their own, made of network namespaces, whose links can be cut."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_ENDING_S = 10.0


class NoNetworkError(Exception):
    """Why namespaces cannot be made here, and what would help. A test skips with it."""


@dataclass
class Host:
    """A namespace with one link to the others.

    Attributes
    ----------
    name : str
    address : str
    link : str
        The end of its link that is at the switch: what is cut is the cable, and nobody is told.
    """

    name: str
    address: str
    link: str
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, module: str, *words: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start ``python -m module words`` on this host. It is killed at the end of the network."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, "-m", module, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        self._processes.append(process)
        return process

    def cut(self) -> None:
        """Let everything that is sent from and to this host be lost in silence."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """Connect the host again."""
        _ip("link", "set", self.link, "up")

    def limit(self, megabits: int) -> None:
        """Let its link carry at most so many megabits a second, in each direction."""
        shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256k", "latency", "50ms")
        for command in (("tc", "-n", self.name, "qdisc", "replace", "dev", "eth0"),
                        ("tc", "qdisc", "replace", "dev", self.link)):  # fmt: skip
            _command(*command, *shape)

    def processes(self) -> list[int]:
        """Return the ids of the processes that run on this host."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def end(self) -> None:
        """Kill everything that runs on this host."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(timeout=_ENDING_S)
        self._processes.clear()


@dataclass(frozen=True)
class Network:
    """Hosts on one switch. This process is on it, too, at `address`."""

    address: str
    hosts: tuple[Host, ...]


@contextmanager
def network(n_hosts: int) -> Iterator[Network]:
    """Make a switch and `n_hosts` hosts, and remove all of it at the end, with the processes on it.

    Raises
    ------
    NoNetworkError
        When this process may not make namespaces, or iproute2 is missing.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NoNetworkError("network namespaces are made by root on Linux only; run this test as root")
    if shutil.which("ip") is None:
        raise NoNetworkError("'ip' is not on PATH; install iproute2")
    mark = f"{os.getpid() % 100_000}"
    prefix = _free_prefix()
    with ExitStack() as stack:
        switch = f"dkb{mark}"
        try:
            _ip("link", "add", switch, "type", "bridge")
            stack.callback(_ip, "link", "del", switch)
            hosts = tuple(_host(stack, mark, number, prefix, switch) for number in range(1, n_hosts + 1))
            _ip("addr", "add", f"{prefix}.254/24", "dev", switch)
            _ip("link", "set", switch, "up")
        except subprocess.CalledProcessError as error:
            raise NoNetworkError(
                f"'{' '.join(error.cmd)}' failed ({error.stderr.decode().strip()}); give this process "
                "CAP_NET_ADMIN and CAP_SYS_ADMIN, or run it in a privileged container"
            ) from error
        yield Network(f"{prefix}.254", hosts)


def _host(stack: ExitStack, mark: str, number: int, prefix: str, switch: str) -> Host:
    host = Host(f"dk{mark}-{number}", f"{prefix}.{number}", f"dkv{mark}-{number}")
    _ip("netns", "add", host.name)
    stack.callback(_ip, "netns", "del", host.name)
    _ip("link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    stack.callback(_ip, "link", "del", host.link)  # a namespace takes its time to go, and its links with it
    stack.callback(host.end)
    _ip("link", "set", host.link, "master", switch, "up")
    _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", host.name, "link", "set", "eth0", "up")
    _ip("-n", host.name, "link", "set", "lo", "up")
    return host


def _free_prefix() -> str:
    """Return the first three numbers of a private network that no interface here is on."""
    taken = Path("/proc/net/fib_trie").read_text()
    for number in range(1, 250):
        prefix = f"10.203.{(number + os.getpid()) % 250}"
        if f"{prefix}." not in taken:
            return prefix
    raise NoNetworkError("all networks 10.203.x.0/24 are in use here; remove those that an earlier run has left")


def _ip(*words: str) -> None:
    _command("ip", *words)


def _command(*words: str) -> None:
    subprocess.run(words, capture_output=True, check=True)


def dask_commands(
    scheduler: Host, workers: Sequence[Host], port: int = 8786, environment: dict[str, str] | None = None
) -> str:
    """Start ``dask scheduler`` on one host and ``dask worker`` with one thread on the others; return the address.

    Workers are named by their place in `workers`.
    """
    here = {"PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
    address = f"tcp://{scheduler.address}:{port}"
    scheduler.run(
        "distributed.cli.dask_scheduler", "--host", scheduler.address, "--port", str(port), "--no-dashboard",
        "--dashboard-address", ":0", environment=here,
    )  # fmt: skip
    for number, host in enumerate(workers):
        host.run(
            "distributed.cli.dask_worker", address, "--host", host.address, "--nthreads", "1", "--no-dashboard",
            "--name", str(number), environment=here,
        )  # fmt: skip
    return address
