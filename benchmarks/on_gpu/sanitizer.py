"""compute-sanitizer on small products, where it is installed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from on_gpu.sizes import Sizes

_TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_FOUND = 9  # the exit status by which it tells of errors


def sanitizer(
    xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each of its tools says: "clean", its errors, or that it could not run here."""
    del xp, sizes, ceilings
    program = shutil.which("compute-sanitizer")
    if program is None:
        yield "sanitizer", {"tool": "compute-sanitizer", "result": "not on PATH"}
        return
    for tool in _TOOLS:
        command = [program, "--tool", tool, "--error-exitcode", str(_FOUND)]
        command += [sys.executable, "-m", "on_gpu.correctness", "--device", where]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = [line.strip("= ") for line in run.stdout.splitlines() if line.startswith("=========")]
        if run.returncode == 0:
            result = "clean"
        elif run.returncode == _FOUND:
            result = "; ".join(lines[1:4])
        else:
            last = (run.stderr or run.stdout).strip().splitlines()[-1:]
            result = f"could not run: {' '.join(last)}"
        yield "sanitizer", {"tool": tool, "result": result[:500]}
