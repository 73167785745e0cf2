"""Inspection of the machine of this process, which also runs on the workers of a cluster."""

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
import psutil
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from threadpoolctl import threadpool_info

from daskkern import __version__
from daskkern.backend.devices import CupyDevices, Gpu, cupy_devices, gpus
from daskkern.data.remote.file_systems import is_in_memory
from daskkern.doctor.packages import Package, inspect_packages
from daskkern.kernels import Gaussian
from daskkern.kernels.engines.native import processor


@dataclass(frozen=True)
class Folder:
    """A folder that a fit may write to. `in_memory`: its files take memory, not disk space."""

    path: str
    free: int
    writable: bool
    in_memory: bool


@dataclass(frozen=True)
class Machine:
    """The report of one process on its machine.

    Attributes
    ----------
    host, system, python, executable, daskkern : str
    cores, threads : int
        Processors that this process may use: physical cores of the machine at most, and hardware threads.
    memory, memory_free : int
        Bytes that this process may use, at most, and that are free on the machine.
    blas : tuple of str
        Loaded libraries of linear algebra, with the threads that they use.
    processor : str
        The instruction set of compiled kernel products; "" if they cannot be compiled.
    product_error : float
        Largest difference of a small kernel product from NumPy's.
    gpus, cuda
        As the driver shows them, and what CuPy can use of them.
    scratch, folder : Folder
        For temporary files, and the current one.
    packages : tuple of Package
    """

    host: str
    system: str
    python: str
    executable: str
    daskkern: str
    cores: int
    threads: int
    memory: int
    memory_free: int
    blas: tuple[str, ...]
    processor: str
    product_error: float
    gpus: tuple[Gpu, ...]
    cuda: CupyDevices
    scratch: Folder
    folder: Folder
    packages: tuple[Package, ...]

    def version(self, name: str) -> str:
        """Return the installed version of a package, or "" for none."""
        return next((package.version for package in self.packages if package.name == name), "")


def inspect_machine(scratch: str | None = None) -> Machine:
    """Inspect this machine. Takes about a second, and a few more if CuPy is installed.

    `scratch` is the folder for temporary files, by default the system's.
    """
    threads = int(CPU_COUNT)
    return Machine(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        executable=sys.executable,
        daskkern=__version__,
        cores=min(psutil.cpu_count(logical=False) or threads, threads),
        threads=threads,
        memory=int(MEMORY_LIMIT),
        memory_free=min(int(psutil.virtual_memory().available), int(MEMORY_LIMIT)),
        blas=_blas(),
        processor=processor(),
        product_error=_try_a_product(),
        gpus=gpus(),
        cuda=cupy_devices(),
        scratch=_folder(scratch or tempfile.gettempdir()),
        folder=_folder(os.getcwd()),
        packages=inspect_packages(),
    )


def _blas() -> tuple[str, ...]:
    found = {
        f"{library['internal_api']} {library['version']}, {library['num_threads']} threads"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return tuple(sorted(found))


def _try_a_product() -> float:
    """Return the largest error of a small kernel product, float32, by the compiled code on this processor."""
    rng = np.random.default_rng(0)
    X, Z, A = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 9), (40, 9), (40, 3)))
    squared = ((X[:, None, :].astype(float) - Z[None, :, :]) ** 2).sum(axis=2)
    kernel = Gaussian(2.0)
    points = kernel.points(Z)
    found = kernel.matvec(kernel.left(X, points), points, A)
    return float(np.abs(found - np.exp(-squared / 8) @ A).max())


def _folder(path: str) -> Folder:
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        free = 0
    return Folder(path, free, os.access(path, os.W_OK | os.X_OK), is_in_memory(path))
