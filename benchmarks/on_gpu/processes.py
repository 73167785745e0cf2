"""A part in a process of its own: its records as they come, and its end at a deadline."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

_POLL_S = 0.05
_ROOT = Path(__file__).resolve().parents[1]


def records_of(words: Sequence[str], limit_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run ``one.py`` with these arguments and yield each record with the name of its table, as soon as it is there.

    The process and what it has started are ended when the iterator is closed.

    Raises
    ------
    TimeoutError
        When it has not ended after `limit_s` seconds.
    RuntimeError
        When it has failed; the message is the last line that it wrote.
    """
    with tempfile.TemporaryDirectory() as folder:
        records, said = Path(folder) / "records", Path(folder) / "said"
        records.touch()
        command = [sys.executable, "-m", "on_gpu.one", *words, "--records", str(records)]
        places = [str(_ROOT), str(_ROOT.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
        with said.open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        deadline = time.monotonic() + limit_s
        try:
            with records.open() as lines:
                while process.poll() is None:
                    yield from _whole_lines(lines)
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"it did not end in {limit_s:.0f} s; the records above are whole")
                    time.sleep(_POLL_S)
                yield from _whole_lines(lines)
        finally:
            _end(process)
        if process.returncode:
            raise RuntimeError(_last_line(said) or f"the process ended with {process.returncode}")


def _whole_lines(lines: IO[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records of lines that are complete; half of one is read again later."""
    while True:
        place, line = lines.tell(), lines.readline()
        if not line.endswith("\n"):
            lines.seek(place)
            return
        table, record = json.loads(line)
        yield table, record


def _last_line(said: Path) -> str:
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with what it has started: a sanitizer, compilers
    process.wait()
