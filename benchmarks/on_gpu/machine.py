"""What the figures belong to: the device, its driver and libraries, the machine."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from on_gpu.sizes import Sizes

_PACKAGES = (
    "daskkern",
    "numpy",
    "scipy",
    "dask",
    "distributed",
    "zarr",
    "torch",
    "pykeops",
    "nvidia-nccl-cu13",
    "kvikio-cu13",
)


def device(
    xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield machine, versions and device."""
    del sizes, where, ceilings
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    yield "machine", {"cpu": _processor(), "n_cores": os.cpu_count(), "memory_gb": round(pages * size / 1e9, 1)}
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if not hasattr(xp, "cuda"):
        yield "versions", found
        yield "card", {"name": "CPU: not a measurement of a GPU"}
        return
    runtime = xp.cuda.runtime
    found |= {
        "cupy": str(xp.__version__),
        "cuda": str(runtime.runtimeGetVersion()),
        "driver_cuda": str(runtime.driverGetVersion()),
    }
    yield "versions", found
    about = runtime.getDeviceProperties(runtime.getDevice())
    name = about["name"]
    free, total = runtime.memGetInfo()
    yield (
        "card",
        {
            "name": name.decode() if isinstance(name, bytes) else str(name),
            "n_processors": int(about["multiProcessorCount"]),
            "memory_gb": round(total / 1e9, 2),
            "free_memory_gb": round(free / 1e9, 2),
        },
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
