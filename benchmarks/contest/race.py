"""Contenders one after the other, each in a process of its own that is ended at its time limit."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]


def ran(data: Path, contender: str, n_landmarks: int, budget_s: float) -> dict[str, Any]:
    """Return the results of the contender, with the seconds of its whole process, and how it ended."""
    paths = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "contest.one", str(data), contender, str(n_landmarks)]
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=budget_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return {"whole_seconds": round(time.perf_counter() - begun, 2), "ended": f"ended after {budget_s:g} s"}
    except BaseException:  # Ctrl-C does not reach a session of its own
        _kill(process)
        raise
    whole = round(time.perf_counter() - begun, 2)
    if process.returncode:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        return {"whole_seconds": whole, "ended": f"failed ({process.returncode}): {last[:160]}"}
    found = json.loads(output.strip().splitlines()[-1])
    if not math.isfinite(found["error"]):
        return {"whole_seconds": whole, "ended": f"failed: its error is {found.pop('error')}", **found}
    return {"whole_seconds": whole, "ended": "done", **found}


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):  # it has already ended
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
