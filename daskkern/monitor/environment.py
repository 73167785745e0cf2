"""The software and hardware of a fit, without names of people, hosts or folders."""

import functools
import os
import platform
from contextlib import suppress
from importlib import metadata
from typing import Any

import psutil

_PACKAGES = (
    *("daskkern", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr", "llvmlite"),
    *("cupy-cuda12x", "cupy-cuda13x", "dask-cuda"),
)


def environment() -> dict[str, Any]:
    """Return versions and the kind of machine of this process as JSON values, a new dictionary."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": int(psutil.virtual_memory().total),
        "versions": dict(_versions()),
    }


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)


@functools.cache
def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
