"""Processes of tests: each ends with the test that started it, and none is left at the end of a run."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_RUN = "DASKKERN_TEST_RUN"
_HELPERS = ("resource_tracker", "forkserver")  # a process that is forked keeps the command line of the server

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, on the path of children that import ``daskkern`` or ``tests``."""


def mark_run() -> None:
    """Let all processes that are started from now on carry the name of this run in their environment."""
    os.environ[_RUN] = uuid.uuid4().hex


def share_cores() -> None:
    """Let BLAS use one thread in the processes that are started from now on, unless the environment says otherwise.

    Two processes of tests whose BLAS has a thread on each core wait for each other's: products take several times as
    long. What daskkern computes with several threads sets their number itself.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_bytecode() -> None:
    """Let this process and those that it starts keep the bytecode of modules, even where the environment forbids it.

    A run starts hundreds of interpreters, each of which would compile the 750 modules of the package for itself.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def let_interrupts_through() -> None:
    """Handle SIGINT as a terminal's process does, where it is ignored from the start (``nohup``, ``&`` in a script).

    Processes that tests start inherit the handling: without this, their Ctrl-C would do nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def started(command: Sequence[object], **how: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Yield a process in a session of its own. At the end it is killed, with all that it has started."""
    child = subprocess.Popen([str(word) for word in command], start_new_session=True, **how)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()


def ended(words: Sequence[object], timeout: float, **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end and return what it printed. It is killed, with all that it has started, when it is late.

    Raises
    ------
    subprocess.TimeoutExpired
        When it runs for more than `timeout` seconds.
    """
    with started(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how) as child:
        out, err = child.communicate(timeout=timeout)
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Return what a process wrote to its standard error up to the line with `words`. Raises EOFError without one."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if words in line:
            return seen
    raise EOFError(f"the process ended without writing {words!r}; there was: {seen}")


def marked_processes() -> list[psutil.Process]:
    """Return the live processes that this run has started, children of dead ones included."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _is_of_run(process)]


def _is_of_run(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_RUN) == os.environ[_RUN]:
            return not is_helper(process)
    return False


def is_helper(process: psutil.Process) -> bool:
    """Return whether a process is one of multiprocessing's own. Raises psutil.NoSuchProcess when it has ended."""
    helper = next((helper for helper in _HELPERS if helper in " ".join(process.cmdline())), None)
    if helper is None:
        return False
    parent = process.parent()
    return parent is None or helper not in " ".join(parent.cmdline())


def described(process: psutil.Process) -> str:
    """Return a process with its command line and the test that ran when it was started."""
    with suppress(psutil.Error):
        test = process.environ().get("PYTEST_CURRENT_TEST", "outside a test")
        return f"{process} {' '.join(process.cmdline())}, from {test}"
    return f"{process}"


def end(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, stopped ones included."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
