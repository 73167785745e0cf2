"""The CUDA devices of this machine: those the driver shows, and those CuPy can use in this process."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar, TypeVarTuple

_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version", "--format=csv,noheader,nounits")
_QUERY_S = 20.0
_MIB = 1 << 20

Arguments = TypeVarTuple("Arguments")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Gpu:
    """One GPU of the machine as its driver shows it; `memory` and currently `free` memory in bytes."""

    name: str
    memory: int
    free: int
    driver: str


@dataclass(frozen=True)
class CupyDevices:
    """The devices and libraries that CuPy finds in this process.

    Attributes
    ----------
    usable : int
        Devices that this process may use; fewer than the machine has if ``CUDA_VISIBLE_DEVICES`` limits them.
    cuda : str
        Version of the CUDA libraries that CuPy uses, or "".
    driver_cuda : str
        The newest CUDA version that the driver supports, or "".
    nccl : str
        Version of NCCL, or "".
    problem : str
        Why no device can be used, or "".
    """

    usable: int
    cuda: str
    driver_cuda: str
    nccl: str
    problem: str


def compiled_once(compiles: Callable[[*Arguments], Made]) -> Callable[[*Arguments], Made]:
    """Cache what a function compiles; threads that need one at the same time wait until the first has made it.

    Otherwise all of Dask's threads compile the first kernel that they launch, one after the other.
    """
    cached, lock = cache(compiles), RLock()

    @wraps(compiles)
    def made(*arguments: *Arguments) -> Made:
        with lock:
            return cached(*arguments)

    return made


def gpus(query: tuple[str, ...] = _QUERY) -> tuple[Gpu, ...]:
    """Return the GPUs of this machine, from the driver's own tool; none without a driver."""
    try:
        requested = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line.rsplit(",", 3) for line in requested.stdout.splitlines()]
    return tuple(
        Gpu(name.strip(), _mebibytes(memory), _mebibytes(free), driver.strip())
        for name, memory, free, driver in (line for line in lines if len(line) == 4)
    )


def _mebibytes(text: str) -> int:
    """Return the bytes of a number of MiB; 0 for a word, such as that of a device that does not report it."""
    return int(text) * _MIB if text.strip().isdigit() else 0


def cupy_devices() -> CupyDevices:
    """Return what CuPy can use. Imports CuPy if it is installed, which takes seconds."""
    try:
        import cupy  # optional package

        usable = int(cupy.cuda.runtime.getDeviceCount())
    except ModuleNotFoundError:
        return CupyDevices(0, "", "", "", "CuPy is not installed")
    except Exception as error:  # CuPy raises its own types for a missing driver
        return CupyDevices(0, "", "", "", f"{type(error).__name__}: {error}")
    runtime = cupy.cuda.runtime
    versions = _version(runtime.runtimeGetVersion), _version(runtime.driverGetVersion), _nccl()
    return CupyDevices(usable, *versions, "" if usable else "CuPy found no CUDA device")


@cache
def _is_absent(folders: tuple[str, ...]) -> bool:
    """Return whether CuPy is in none of the `folders` of modules: a fit asks several times, 0.3 ms each."""
    del folders
    return find_spec("cupy") is None


def cupy_problem() -> str:
    """Return why CuPy cannot use a CUDA device in this process, and what to do; "" if it can."""
    absent = "CuPy is not installed; install daskkern[cuda12] or daskkern[cuda13]"
    if "cupy" not in sys.modules and _is_absent(tuple(sys.path)):
        return absent
    try:
        import cupy  # optional package

        runtime, refusal = cupy.cuda.runtime, ""
    except ModuleNotFoundError:
        return absent
    except Exception as error:  # libraries that do not load raise exceptions of any type
        why = " ".join(str(error.__cause__ or error).split())  # CuPy's message is a page around that of the linker
        return f"CuPy cannot be loaded ({why}); install daskkern[cuda12] or daskkern[cuda13] in a new environment"
    try:
        if int(runtime.getDeviceCount()) > 0:
            return ""
    except Exception as error:  # CuPy raises its own types
        refusal = f"{type(error).__name__}: {error}"
    has, needs = _version(runtime.driverGetVersion), _version(runtime.runtimeGetVersion)
    if has in ("", "0.0"):
        return "there is no NVIDIA driver here; install one, or run on a machine with a GPU"
    if _major(has) < _major(needs):
        return (
            f"CuPy is built for CUDA {_major(needs)} and the driver supports CUDA {has}; "
            f"install daskkern[cuda{_major(has)}] in its place, or a newer driver"
        )
    if refusal and has.split(".") != needs.split(".") and "InsufficientDriver" in refusal:
        return f"the driver supports CUDA {has}, which is too old for CuPy's CUDA {needs}; install a newer driver"
    why = f" ({refusal})" if refusal else ""
    return f"the driver shows no CUDA device{why}; look at nvidia-smi and at CUDA_VISIBLE_DEVICES"


def _major(version: str) -> int:
    return int(version.partition(".")[0] or 0)


def _version(ask: Callable[[], int]) -> str:
    """Return a version that CUDA encodes as 1000 major + 10 minor."""
    try:
        number = int(ask())
    except Exception:  # missing libraries: CuPy raises its own types
        return ""
    return f"{number // 1000}.{number % 1000 // 10}"


def _nccl() -> str:
    try:
        from cupy.cuda import nccl  # optional package
    except ImportError:
        return ""
    return _nccl_version(nccl)


def _nccl_version(nccl: ModuleType | Any) -> str:
    if not getattr(nccl, "available", False):
        return ""
    try:
        number = int(nccl.get_version())  # 10000 major + 100 minor + patch
    except Exception:  # CuPy raises its own types for a library that does not load
        return ""
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
