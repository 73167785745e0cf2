"""Dask workers in whose environment daskkern cannot be imported, and a record of which task ran where."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin

from daskkern.cluster.connect.membership import live_workers
from tests.support.processes import started

_ABSENT = 'raise ModuleNotFoundError("No module named \'daskkern\'", name="daskkern")\n'


@contextmanager
def bare_worker(client: Client, folder: Path) -> Iterator[str]:
    """Yield the address of a further worker process of the cluster, which cannot import daskkern."""
    (folder / "daskkern.py").write_text(_ABSENT)
    before = live_workers(client).keys()
    command = (
        *(sys.executable, "-m", "distributed.cli.dask_worker", client.scheduler.address, "--name", "bare"),
        *("--no-nanny", "--no-dashboard", "--nthreads", "1", "--local-directory", str(folder)),
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(command, cwd="/", env={**os.environ, "PYTHONPATH": str(folder)}, **quiet):
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
