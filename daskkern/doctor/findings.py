"""Problems that would affect a fit, with the commands that fix them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from daskkern import __version__
from daskkern.backend.devices import CupyDevices, Gpu
from daskkern.doctor.cluster import ClusterReport, WorkerReport
from daskkern.doctor.machine import Folder, Machine
from daskkern.doctor.packages import Package
from daskkern.monitor.formatting import format_bytes

_LEAST_MEMORY = 700_000_000
_LEAST_DISK = 1_000_000_000
_MOST_ERROR = 1e-3
_NAMED = 3
"""Most workers that a shared finding names."""
_SPARED = frozenset({"llvmlite", "bokeh", "pyarrow"})
"""Required packages without which a fit still runs."""
_COMPARED = ("dask", "distributed", "numpy", "scipy", "zarr", "llvmlite", "cupy")


@dataclass(frozen=True)
class Finding:
    """A problem: something that is wrong or missing.

    Attributes
    ----------
    where : str
        "" for this machine, else the worker or the scheduler.
    what : str
    mend : str
        A command or an action that fixes it; "" if nothing can.
    stops : bool
        Whether no fit can run before it is fixed.
    """

    where: str
    what: str
    mend: str
    stops: bool = False

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.what}{f'; {self.mend}' if self.mend else ''}"


def judge(machine: Machine, where: str = "") -> tuple[Finding, ...]:
    """Return the findings about a machine; those that stop a fit come first."""
    found = [
        *_of_packages(machine.packages, where),
        *_of_engine(machine, where),
        *_of_gpus(machine.gpus, machine.cuda, machine.version("dask-cuda"), where),
        *_of_room(machine, where),
    ]
    return tuple(sorted(found, key=lambda finding: not finding.stops))


def judge_cluster(cluster: ClusterReport, here: Machine) -> tuple[Finding, ...]:
    """Return the findings about a cluster, compared with this machine; those that stop a fit come first."""
    found = [] if cluster.workers else [_without_workers(cluster)]
    for worker in cluster.workers:
        found += _of_worker(worker, here)
    if cluster.problem:
        what = f"the scheduler cannot report its packages: {cluster.problem}"
        found.append(Finding("scheduler", what, _same_daskkern(), stops=True))
    else:
        versions = {package.name: package.version for package in cluster.packages}
        found += _differences("scheduler", versions, here)
    usable = [worker.machine.cuda.usable > 0 for worker in cluster.workers if worker.machine is not None]
    if any(usable) and not all(usable):
        what = f"{sum(usable)} of {len(usable)} workers can use a GPU: the others hold a fit up"
        found.append(Finding("cluster", what, "start workers of one kind, or fit with --device cpu"))
    return tuple(sorted(_together(found), key=lambda finding: not finding.stops))


def _together(findings: list[Finding]) -> list[Finding]:
    """Return the findings with those that several workers share merged into one."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    return [replace(finding, where=_names(where)) for finding, where in places.items()]


def _names(places: list[str]) -> str:
    named = ", ".join(places[:_NAMED])
    return named if len(places) <= _NAMED else f"{named} and {len(places) - _NAMED} more"


def _without_workers(cluster: ClusterReport) -> Finding:
    return Finding(
        "cluster", "it has no workers", f"start some: dask worker {cluster.scheduler} --nthreads 4", stops=True
    )


def _of_worker(worker: WorkerReport, here: Machine) -> Iterator[Finding]:
    where = f"worker {worker.name}"
    if worker.machine is None:
        remedy = "see its log and the network between it and the scheduler, and restart it"
        yield Finding(where, worker.problem, remedy if worker.unreachable else _same_daskkern(), stops=True)
        return
    machine = worker.machine
    if machine.daskkern != here.daskkern:
        what = f"it has daskkern {machine.daskkern}, and this process has {here.daskkern}"
        yield Finding(where, what, _same_daskkern(), stops=True)
    if _minor(machine.python) != _minor(here.python):
        what = f"it runs Python {machine.python}, and this process {here.python}"
        yield Finding(where, what, "use the same Python in both, or Python functions as kernels will not work")
    yield from _differences(where, {package.name: package.version for package in machine.packages}, here)
    yield from judge(machine, where)
    if 0 < worker.memory_limit < _LEAST_MEMORY:
        what = f"its memory limit is {format_bytes(worker.memory_limit)}, and a rank needs about 700 MB on large stores"
        yield Finding(where, what, "raise --memory-limit of the worker")


def _differences(where: str, theirs: dict[str, str], here: Machine) -> Iterator[Finding]:
    for name in _COMPARED:
        found, ours = theirs.get(name, ""), here.version(name)
        if found and ours and found != ours:
            what = f"it has {name} {found}, and this process has {ours}"
            yield Finding(where, what, f"in its environment: pip install {name}=={ours}")


def _of_packages(packages: tuple[Package, ...], where: str) -> Iterator[Finding]:
    for package in packages:
        if package.fits or (package.extra and not package.version):
            continue  # a missing optional package is listed, but is not a fault
        found = f"is {package.version} and not {package.wanted}" if package.version else "is missing"
        what = f"{package.name} {found}, which is for {package.purpose}"
        stops = not package.extra and package.name not in _SPARED
        yield Finding(where, what, install_command(package), stops=stops)


def install_command(package: Package) -> str:
    """Return the command that installs a package in a version that meets the bounds."""
    if package.extra == "cuda":
        return 'pip install "daskkern[cuda12]" (or cuda13)'
    return f'pip install "{f"daskkern[{package.extra}]" if package.extra else package.name + package.wanted}"'


def _of_engine(machine: Machine, where: str) -> Iterator[Finding]:
    if not machine.processor and machine.version("llvmlite"):
        yield Finding(
            where, "this processor has no AVX2 and no NEON: kernel products run in NumPy, which is slower", ""
        )
    if not machine.product_error < _MOST_ERROR:
        what = f"a small kernel product was wrong by {machine.product_error:.2g}"
        yield Finding(where, what, "pip install --force-reinstall llvmlite numpy", stops=True)


def _of_gpus(gpus: tuple[Gpu, ...], cuda: CupyDevices, dask_cuda: str, where: str) -> Iterator[Finding]:
    if gpus and not cuda.usable:
        what = f"{len(gpus)} GPUs were found and none can be used: {cuda.problem}"
        yield Finding(where, what, 'pip install "daskkern[cuda12]", or daskkern[cuda13] with a driver of CUDA 13')
    if cuda.usable and not dask_cuda:
        what = "dask-cuda is missing, which starts a worker for each GPU"
        yield Finding(where, what, f'pip install "daskkern[{_cuda_extra(cuda)}]"')
    if cuda.usable > 1 and not cuda.nccl:
        what = "NCCL is missing: sums between GPUs go through the host"
        yield Finding(where, what, f'pip install "daskkern[{_cuda_extra(cuda)}]"')


def _cuda_extra(cuda: CupyDevices) -> str:
    return "cuda13" if cuda.cuda.startswith("13.") else "cuda12"


def _of_room(machine: Machine, where: str) -> Iterator[Finding]:
    if machine.memory_free < _LEAST_MEMORY:
        what = f"{format_bytes(machine.memory_free)} of memory are free, and a rank needs about 700 MB on large stores"
        yield Finding(where, what, "end other programs, or take a machine with more memory")
    if not where:
        yield from _of_folder(where, "the current folder", machine.folder, "give --out elsewhere")
    scratch = "the folder for temporary files"
    elsewhere = "start the worker with --local-directory FOLDER" if where else "set TMPDIR to another one"
    yield from _of_folder(where, scratch, machine.scratch, elsewhere)
    if machine.scratch.in_memory:
        what = f"{scratch}, {machine.scratch.path}, is in memory, not on a disk"
        yield Finding(where, what, elsewhere)


def _of_folder(where: str, name: str, folder: Folder, elsewhere: str) -> Iterator[Finding]:
    if not folder.writable:
        yield Finding(where, f"{name}, {folder.path}, cannot be written to", elsewhere)
    elif folder.free < _LEAST_DISK:
        yield Finding(where, f"{name}, {folder.path}, has {format_bytes(folder.free)} of free disk", elsewhere)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _same_daskkern() -> str:
    return f"install daskkern {__version__} there, from the clone or wheel that this process is of, and restart it"
