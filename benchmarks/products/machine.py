"""The machine of a measurement: processor, cores, memory, versions."""

import importlib.metadata
import os
import platform
import statistics
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from threadpoolctl import threadpool_info

from daskkern.backend.concurrency import cpu_count

_PACKAGES = ("daskkern", "numpy", "scipy", "scikit-learn", "torch", "pykeops", "xrfm", "lightgbm", "xgboost")


def describe_machine() -> dict[str, str | float]:
    """Return processor, cores, memory and BLAS libraries of this machine, with the unit in every number's name."""
    blas = [
        f"{library.get('internal_api')} {library.get('version')} ({library.get('architecture', 'any')})"
        for library in threadpool_info()
        if library.get("user_api") == "blas"
    ]
    return {
        "cpu": _processor(),
        "n_cores": cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": ", ".join(sorted(set(blas))),
    }


def versions() -> dict[str, str]:
    """Return the version of Python and of each installed package that is involved."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "pykeops" in found:
        found["keops_compiler_flags"] = f"{os.environ.get('CXXFLAGS', '')} -O3 -std=c++11 -fopenmp".strip()
    return found


def sgemm_rate(n: int = 3000, repeats: int = 7) -> float:
    """Return the median rate of a float32 matrix product of n x n matrices, in GFLOP/s, with all cores."""
    a = np.random.default_rng(0).random((n, n), np.float32)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - begun)
    return 2 * n**3 / statistics.median(seconds) / 1e9


def peak_bytes() -> int:
    """Return the largest resident size of this process since it began, or since :func:`forget_peak`."""
    status = Path("/proc/self/status")
    if not status.exists():
        return int(psutil.Process().memory_info().rss)
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def forget_peak() -> int:
    """Reset the peak to the present resident size, and return that. Does nothing where the system cannot."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return int(psutil.Process().memory_info().rss)


class OthersLoad:
    """Load by other processes since creation, or since the last reading."""

    def __init__(self) -> None:
        self._last = self._now()

    def used(self) -> tuple[float, float]:
        """Return the processor seconds that others (processes, guests of the host) used since, and the wall time."""
        before, self._last = self._last, self._now()
        seconds, busy, own = (now - then for now, then in zip(self._last, before, strict=True))
        return max(0.0, busy - own), seconds

    def cores(self) -> float:
        """Return the mean number of cores that others have used since."""
        others, seconds = self.used()
        return others / seconds if seconds > 0 else 0.0

    @staticmethod
    def _now() -> tuple[float, float, float]:
        cpu = psutil.cpu_times()
        waiting = cpu.idle + getattr(cpu, "iowait", 0.0) + getattr(cpu, "guest", 0.0) + getattr(cpu, "guest_nice", 0.0)
        return time.perf_counter(), sum(cpu) - waiting, time.process_time()


def _processor() -> str:
    """Return the name, and family and model number, since clouds often hide the former."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine()
    lines = [line.split(":", 1) for line in path.read_text().splitlines() if ":" in line]
    facts = {key.strip(): value.strip() for key, value in reversed(lines)}
    name = facts.get("model name", platform.machine())
    return f"{name}, family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"
