"""Check whether a process of this machine is still running."""

import os
from contextlib import suppress
from pathlib import Path


def is_running(process: int, proc: Path = Path("/proc")) -> bool:
    """Return whether the process with this number runs: not one that has ended and that its parent has not waited for.

    A process of another user counts as running.

    Parameters
    ----------
    process : int
    proc : Path
        Where Linux describes processes; elsewhere such a process counts as running.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError, IndexError):
        state = (proc / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    return True
