"""Dask workers in whose environment daskkern is missing or another one, and a record of which task ran where."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.connect.protocol import PROTOCOL
from tests.support.processes import ROOT, started

_ABSENT = 'raise ModuleNotFoundError("No module named \'daskkern\'", name="daskkern")\n'


@contextmanager
def bare_worker(client: Client, folder: Path) -> Iterator[str]:
    """Yield the address of a further worker process of the cluster, which cannot import daskkern."""
    (folder / "daskkern.py").write_text(_ABSENT)
    with _worker(client, folder, "bare", str(folder)) as address:
        yield address


@contextmanager
def other_worker(
    client: Client, folder: Path, *, version: str | None = None, protocol: int = PROTOCOL
) -> Iterator[str]:
    """Yield the address of a further worker process of the cluster, which has another daskkern than this process.

    Parameters
    ----------
    version
        What its package metadata say; None for a source tree without any.
    protocol
        The version of the messages that it speaks.
    """
    if version is not None:
        (folder / f"daskkern-{version}.dist-info").mkdir()
        (folder / f"daskkern-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: daskkern\nVersion: {version}\n"
        )
    shutil.copytree(ROOT / "daskkern", folder / "daskkern", ignore=shutil.ignore_patterns("__pycache__"))
    messages = folder / "daskkern" / "cluster" / "connect" / "protocol.py"
    messages.write_text(re.sub(r"^PROTOCOL = \d+$", f"PROTOCOL = {protocol}", messages.read_text(), flags=re.M))
    with _worker(client, folder, "other", os.pathsep.join((str(folder), str(ROOT)))) as address:
        yield address


@contextmanager
def _worker(client: Client, folder: Path, name: str, path: str) -> Iterator[str]:
    """Yield the address of a further worker process of the cluster, which imports from `path`."""
    before = live_workers(client).keys()
    command = (
        *(sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--name", name),
        *("--no-nanny", "--no-dashboard", "--nthreads", "1", "--local-directory", str(folder)),
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(command, cwd="/", env={**os.environ, "PYTHONPATH": path}, **quiet):
        client.wait_for_workers(len(before) + 1, timeout=30)
        (address,) = live_workers(client).keys() - before
        yield address


class _TaskRecord(SchedulerPlugin):
    name = "task_record"

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        del args
        if start == "processing" and finish in ("memory", "erred"):
            self.ran.append((str(key), str(kwargs.get("worker"))))


def record_tasks(client: Client) -> None:
    """Let the scheduler of a cluster in this process record its tasks from now on."""
    client.cluster.scheduler.add_plugin(_TaskRecord())


def recorded_tasks(client: Client) -> list[tuple[str, str]]:
    """Return the key of each task that has ended since :func:`record_tasks`, and the worker that ran it."""
    return list(client.cluster.scheduler.plugins["task_record"].ran)
