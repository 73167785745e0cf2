"""Check and time daskkern on a GPU in one command, within eight minutes.

    python benchmarks/gpu.py --out benchmarks/results-gpu.json

Results are checked against float64 first, and nothing is timed if they are wrong. Then: ceilings of the device
(matrix products, copies), kernel products compared with them and with torch and KeOps if installed, a fit shaped like
SUSY, a step shaped like EigenPro 4's, all rows of data shaped like Fashion-MNIST, and rows streamed from a
store to the device. All data is generated: times are meaningful, errors are not. A part that would exceed the limit
is skipped, and the results say so. `--tiny --device cpu` runs the same code with NumPy in seconds: it tests the code
and measures nothing.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import figures
from on_gpu.ceilings import measure_ceilings
from on_gpu.clock import Budget
from on_gpu.correctness import check_products
from on_gpu.fits import eigenpro_step, fashion_mnist, susy
from on_gpu.products import time_products
from on_gpu.sizes import FULL, TINY, Sizes
from on_gpu.streaming import time_streaming
from products.machine import describe_machine, versions

from daskkern.backend.namespace import namespace_for
from daskkern.cluster.collectives.gpus import device_name

BUDGET_S = 450.0
_NAMES = {
    "batch": "n_batch_rows",
    "rows": "n_rows",
    "window_batches": "n_window_batches",
    "times_torch": "ratio_to_torch",
}


@dataclass(frozen=True)
class Part:
    """A part of the run: an estimate of its longest time on an H100, and the function that makes its record."""

    name: str
    expected_s: float
    run: Callable[[ModuleType, Sizes, str, Mapping[str, Any]], Any]


PARTS = (
    Part("products", 90.0, lambda xp, sizes, device, so_far: time_products(xp, sizes, so_far["ceilings"])),
    Part("susy", 60.0, lambda xp, sizes, device, so_far: susy(sizes, device)),
    Part("eigenpro_4_small", 60.0, lambda xp, sizes, device, so_far: eigenpro_step(sizes, device, 0)),
    Part("fashion_mnist", 60.0, lambda xp, sizes, device, so_far: fashion_mnist(sizes, device)),
    Part("streaming", 40.0, lambda xp, sizes, device, so_far: time_streaming(xp, sizes)),
    Part("eigenpro_4_large", 100.0, lambda xp, sizes, device, so_far: eigenpro_step(sizes, device, 1)),
)


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    xp = namespace_for(options.device)
    before = figures.read(options.out) if options.out is not None and options.out.exists() else []
    sizes, budget = (TINY if options.tiny else FULL), Budget(options.budget)
    run: dict[str, Any] = {
        "benchmark": "gpu",
        "date": datetime.date.today().isoformat(),
        "device": device_name(xp) if hasattr(xp, "cuda") else "CPU: not a measurement of a GPU",
        "tiny": options.tiny,
        "machine": describe_machine(),
        "versions": versions() | _cuda_versions(xp),
        "correctness": check_products(xp, sizes),
        "skipped": {},
        "failed": {},
    }
    wrong = [record for record in run["correctness"] if not record["right"]]
    if wrong:
        _write(run, options.out, before)
        sys.exit(f"results are wrong, so nothing was timed: {json.dumps(wrong)}")
    run["ceilings"] = measure_ceilings(xp, sizes)
    for part in PARTS:
        if options.parts and part.name not in options.parts:
            continue
        if not options.tiny and part.expected_s > budget.left():
            run["skipped"][part.name] = f"{budget.left():.0f} s were left of {budget.total_s:g}"
            continue
        _run_part(part, run, xp, sizes, options.device)
        print(f"{part.name}: {json.dumps(run.get(part.name, run['failed'].get(part.name)))}", flush=True)
        _write(run, options.out, before)  # results so far survive later failures
    run["wall_seconds"] = round(budget.used(), 1)
    _write(run, options.out, before)
    for name, why in run["skipped"].items():
        print(f"skipped {name}: {why}")
    if run["failed"]:
        sys.exit(f"these parts failed: {', '.join(run['failed'])}")


def _run_part(part: Part, run: dict[str, Any], xp: ModuleType, sizes: Sizes, device: str) -> None:
    """Put the part's record into `run`; a part that fails must not stop the others."""
    try:
        run[part.name] = part.run(xp, sizes, device, run)
    except Exception as error:  # GPU code raises exceptions of several libraries
        if sizes is TINY:
            raise
        run["failed"][part.name] = f"{type(error).__name__}: {error}"
    if hasattr(xp, "cuda"):
        xp.get_default_memory_pool().free_all_blocks()


def _cuda_versions(xp: ModuleType) -> dict[str, str]:
    if not hasattr(xp, "cuda"):
        return {}
    runtime = xp.cuda.runtime
    return {
        "cupy": str(xp.__version__),
        "cuda": str(runtime.runtimeGetVersion()),
        "driver_cuda": str(runtime.driverGetVersion()),
    }


def _write(run: dict[str, Any], out: Path | None, before: Sequence[figures.Run]) -> None:
    """Write this run so far, after the existing ones."""
    if out is not None:
        filled = {name: value for name, value in run.items() if value != {}}
        figures.write([*before, figures.from_plain(filled, ("device", "tiny"), _NAMES)], out)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds")
    parser.add_argument("--parts", nargs="*", choices=[part.name for part in PARTS], help="only these")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds")
    parser.add_argument("--out", type=Path, help="JSON file; existing runs are kept")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
