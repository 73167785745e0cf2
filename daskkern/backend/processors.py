"""The number of processors that this process may use, from its affinity and the quota of its control group."""

import math
import os
from functools import cache
from pathlib import Path


def cpu_count(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use, at least 1.

    Counts the affinity mask; fewer if the quota of a control group (containers, batch systems), version 1 or 2,
    allows less time. A fraction of a processor counts as one. Quotas are read once.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *_quotas(root)]))


@cache
def _quotas(root: Path) -> list[int]:
    """Return the processors that each control group allows, rounded up."""
    return [math.ceil(quota) for folder in _groups(root) if (quota := _quota(folder)) is not None]


def _groups(root: Path) -> list[Path]:
    """Return the folders of the CPU controller for this process's group and its ancestors."""
    base = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return []
    found: list[Path] = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        names = controllers.split(",")
        tops = [base, base / "unified"] if controllers == "" else [base / controllers, base / "cpu"]
        if controllers and "cpu" not in names:
            continue
        inside = Path(path.lstrip("/"))
        found += [top / above for top in tops for above in (inside, *inside.parents)]
    return list(dict.fromkeys(found))


def _quota(folder: Path) -> float | None:
    """Return the processors that a group may use on average; None where there is no limit."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        limit = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        return None
    return limit if limit > 0 else None  # version 1 has -1 for no limit
