"""What the clusters of a test do when it waits in vain: tasks, messages that wait, and the stacks of the workers.

Workers write the stacks of their threads on a signal, whatever they hang in.
"""

import faulthandler
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_ASKED = signal.SIGUSR2
_STACKS = ".stacks"
_WAIT_S = 0.5
_MOST_LINES, _MOST_FRAMES = 80, 12
_LAST = "in <module>"  # the outermost frame of a main thread
_OURS = ("_concurrent_futures_thread.py", "/daskkern/", "/tests/")
_clusters: dict[str, Any] = {}


def tell_stacks_on_a_signal(folder: str) -> None:
    """Let this process write the stacks of its threads into `folder` when it gets the signal."""
    told = Path(folder, f"{os.getpid()}{_STACKS}").open("w")  # noqa: SIM115 - as long as the process lives
    faulthandler.register(_ASKED, file=told, all_threads=True)


@contextmanager
def known(cluster: Any, folder: str) -> Iterator[None]:
    """Within the context, `cluster`, whose workers have left their process ids in `folder`, is described."""
    _clusters[folder] = cluster
    try:
        yield
    finally:
        del _clusters[folder]


def described() -> str:
    """Return what the clusters of this process do, in a few lines; without a word to their event loops."""
    lines = [line for folder, cluster in list(_clusters.items()) for line in _cluster(cluster, folder)]
    return "\n".join(lines[:_MOST_LINES])


def busy_workers() -> list[str]:
    """Return the stacks of tasks that threads of the clusters' workers are in."""
    return [line for folder in list(_clusters) for line in _stacks(folder, only_tasks=True)]


def _cluster(cluster: Any, folder: str) -> Iterator[str]:
    with suppress(Exception):  # its event loop runs meanwhile
        yield from _scheduler(cluster.scheduler)
    yield from _stacks(folder)


def _scheduler(scheduler: Any) -> Iterator[str]:
    states = Counter(task.state for task in list(scheduler.tasks.values()))
    yield f"scheduler {scheduler.address}: tasks {dict(states)}"
    for task in list(scheduler.tasks.values())[:10]:
        yield f"  {task.key}: {task.state}, on {task.processing_on and task.processing_on.address}"
    now = time.time()
    for address, worker in list(scheduler.workers.items()):
        sent = scheduler.stream_comms.get(address)
        waiting = "no stream" if sent is None else _waiting(sent)
        heard = f"heard of {now - worker.last_seen:.1f} s ago"
        yield f"  worker {address}: {worker.status}, {len(worker.processing)} tasks, {waiting}, {heard}"
    for name, sent in list(scheduler.client_comms.items()):
        yield f"  client {name}: {_waiting(sent)}"


def _waiting(sent: Any) -> str:
    return f"{len(sent.buffer)} messages wait, next deadline {sent.next_deadline}"


def _stacks(folder: str, *, only_tasks: bool = False) -> Iterator[str]:
    alive = {process.pid for process in psutil.Process().children(recursive=True)}  # a number may be another's by now
    pids = [int(name) for name in os.listdir(folder) if name.isdigit() and int(name) in alive]
    before = {pid: _size(folder, pid) for pid in pids}
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, _ASKED)
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline and any(not _has_told(folder, pid, before[pid]) for pid in pids):
        time.sleep(0.005)
    for pid in pids:
        path = Path(folder, f"{pid}{_STACKS}")
        text = path.read_text(errors="replace")[before[pid] :] if path.exists() else ""
        threads = [part.splitlines() for part in text.split("\n\n") if part.strip()]
        at_work = [lines for lines in threads if _is_in_a_task(lines)]
        shown = at_work if only_tasks else [lines for lines in threads if any(word in "".join(lines) for word in _OURS)]
        if shown or not only_tasks:
            yield f"process {pid}: {len(threads)} threads, {len(at_work)} in a task"
        for lines in shown:
            yield from (f"    {line.strip()}" for line in lines[: _MOST_FRAMES + 1])


def _is_in_a_task(lines: list[str]) -> bool:
    """Return whether a thread of a worker's executor runs a task, from its innermost frame on."""
    places = [at for at, line in enumerate(lines) if "threadpoolexecutor.py" in line and "_worker" in line]
    return bool(places) and "_concurrent_futures_thread.py" in lines[places[0] - 1]


def _has_told(folder: str, pid: int, before: int) -> bool:
    """Return whether a process has written the stacks of its threads; that of its main thread comes last."""
    size = _size(folder, pid)
    if size <= before:
        return False
    return Path(folder, f"{pid}{_STACKS}").read_text(errors="replace")[before:].rstrip().endswith(_LAST)


def _size(folder: str, pid: int) -> int:
    path = Path(folder, f"{pid}{_STACKS}")
    return path.stat().st_size if path.exists() else 0
