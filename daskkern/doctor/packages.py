"""The packages that daskkern needs or can use: installed versions, checked against the bounds of its metadata."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PURPOSES = {
    "llvmlite": "compiled kernel products",
    "numpy": "arrays",
    "scipy": "linear algebra",
    "dask": "task graphs",
    "distributed": "clusters",
    "zarr": "stores",
    "scikit-learn": "estimators",
    "threadpoolctl": "threads of BLAS",
    "psutil": "memory and processes",
    "pyarrow": "CSV, Parquet, Arrow",
    "bokeh": "the Dask dashboard",
    "click": "command line",
    "rich": "tables and progress",
    "packaging": "comparing versions",
    "pyyaml": "settings in files",
    "h5py": "HDF5 and .h5ad files",
    "obstore": "s3://, gs://, az://, https://",
    "matplotlib": "daskkern report, daskkern.plot, compare --out",
    "prometheus-client": "the scheduler's /metrics",
    "cupy": "computing on NVIDIA GPUs",
    "dask-cuda": "a worker for each GPU",
    "nccl": "sums between GPUs",
    "rmm": "the memory pool of GPU workers",
    "kvikio": "kernel blocks and rows between disk and GPU",
}
"""The purpose of each package."""
_EXTRAS = {"h5py": "formats", "obstore": "remote", "matplotlib": "plot", "prometheus-client": "metrics"}
_GPU_PACKAGES = {
    "cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
    "dask-cuda": ("dask-cuda",),
    "nccl": ("nvidia-nccl-cu12", "nvidia-nccl-cu13"),
    "rmm": ("rmm-cu12", "rmm-cu13"),
    "kvikio": ("kvikio-cu12", "kvikio-cu13"),
}
"""The distributions of each package, whose names differ with the version of CUDA."""


@dataclass(frozen=True)
class Package:
    """A package that daskkern needs or can use.

    Attributes
    ----------
    name, purpose
    version : str
        The installed one, or "".
    wanted : str
        The version specifier, such as ">=2.0"; "" for any.
    extra : str
        The extra of daskkern that installs it; "" for required packages, "cuda" if it depends on the CUDA version.
    fits : bool
        Whether it is installed in a version that meets the bounds.
    """

    name: str
    purpose: str
    version: str
    wanted: str
    extra: str
    fits: bool

    @property
    def state(self) -> str:
        """Return "ok", "missing" or "too old" for every version out of bounds."""
        return "ok" if self.fits else "too old" if self.version else "missing"


def inspect_packages() -> tuple[Package, ...]:
    """Return the packages that daskkern needs, and then those that it can use."""
    bounds = _bounds()
    others = {*_EXTRAS, *_GPU_PACKAGES}
    always = [_package(name, bounds.get((name, ""), ""), "") for name in PURPOSES if name not in others]
    optional = [_package(name, bounds.get((name, extra), ""), extra) for name, extra in _EXTRAS.items()]
    on_gpus = [_gpu_package(name, bounds) for name in _GPU_PACKAGES]
    return (*always, *optional, *on_gpus)


def _bounds() -> dict[tuple[str, str], str]:
    """Return the specifier of each requirement, by name and extra."""
    try:
        lines = requires("daskkern") or []
    except PackageNotFoundError:  # a source tree that was never installed
        lines = []
    found = {}
    for requirement in map(Requirement, lines):
        marker = str(requirement.marker or "")
        extra = marker.split("extra ==")[-1].strip(" \"'") if "extra ==" in marker else ""
        found[requirement.name.lower(), extra] = str(requirement.specifier)
    return found


def _package(name: str, wanted: str, extra: str, distribution: str = "") -> Package:
    found = installed_version(distribution or name)
    fits = bool(found) and SpecifierSet(wanted).contains(found, prereleases=True)
    return Package(name, PURPOSES[name], found, wanted, extra, fits)


def _gpu_package(name: str, bounds: dict[tuple[str, str], str]) -> Package:
    names = _GPU_PACKAGES[name]
    distribution = next((one for one in names if installed_version(one)), names[0])
    wanted = next((bound for (known, _), bound in bounds.items() if known in names), "")
    return _package(name, wanted, "cuda", distribution)


def installed_version(name: str) -> str:
    """Return the version of an installed distribution, or ""."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
