"""Set-up, epochs and memory of a fit as rows, landmarks, features and processes grow, one at a time.

    python -m benchmarks scaling --out benchmarks/results-scaling.json

EigenPro with the squared hinge on generated rows in a store, kernel blocks never cached, so that memory is that of the
method. Each size is a process of its own, which compiles by a small fit first. Planned memory is the estimate of
`daskkern plan` for one process, without interpreter and libraries; measured is the peak of its resident size during the
fit, minus the resident size before. Processes are the workers of a local cluster that share the cores; the largest of
them counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client
from figures import Run, read, today, write
from products.machine import describe_machine, forget_peak, peak_bytes, sgemm_rate, versions

import daskkern
from daskkern.backend.concurrency import cpu_count
from daskkern.basis import Landmarks
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.memory_plan import available_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster


@dataclass(frozen=True)
class Size:
    """One fit. `n_processes` 0 is this process, without a cluster."""

    n_rows: int = 200_000
    n_landmarks: int = 4000
    n_features: int = 50
    n_processes: int = 0
    n_epochs: int = 4


VARIED: dict[str, tuple[int, ...]] = {
    "n_rows": (50_000, 200_000, 800_000),
    "n_landmarks": (1000, 4000, 12_000),
    "n_features": (10, 50, 250, 784),
    "n_processes": (1, 2),
}
TINY: dict[str, tuple[int, ...]] = {"n_rows": (400, 800), "n_landmarks": (20,)}


def sizes(varied: dict[str, tuple[int, ...]], base: Size) -> Iterator[tuple[str, Size]]:
    """Yield the varied parameter, and the size."""
    for name, values in varied.items():
        for value in values:
            yield name, replace(base, **{name: value})


def made(size: Size, folder: Path) -> StoreSource:
    """Write generated rows to a store, 50,000 rows at a time."""
    parts = []
    for number, start in enumerate(range(0, size.n_rows, 50_000)):
        rng = np.random.default_rng(number)
        X = rng.standard_normal((min(50_000, size.n_rows - start), size.n_features)).astype(np.float32)
        parts.append(str(folder / f"part-{number:03}.npz"))
        np.savez(parts[-1], X=X, y=(np.sin(X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int64))
    daskkern.ingest(parts, folder / "made.zarr", task="classification")
    return StoreSource.at(str(folder / "made.zarr"))


def settings_for(size: Size) -> FitSettings:
    """Return the settings of the fit."""
    return FitSettings(
        Gaussian(size.n_features**0.5), SquaredHinge(), Landmarks(size.n_landmarks), EigenPro(),
        max_epochs=size.n_epochs, device="cpu", keep_blocks="never",
    )  # fmt: skip


def one(size: Size) -> dict[str, Any]:
    """Return the figures of one size, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        source, settings = made(size, Path(folder)), settings_for(size)
        if not size.n_processes:
            return _timed(source, settings, 1, cpu_count(), None)
        threads = max(1, cpu_count() // size.n_processes)
        with local_cluster(size.n_processes, threads_per_worker=threads) as client:
            return _timed(source, settings, size.n_processes, threads, client)


def _timed(
    source: StoreSource, settings: FitSettings, ranks: int, threads: int, client: Client | None
) -> dict[str, Any]:
    # Compiles; the batch is given, because the automatic batch of few landmarks is small and an epoch with it long.
    fit(source, replace(settings, basis=Landmarks(20), max_epochs=1, batch_size=1000), client=client)
    before = [forget_peak()] if client is None else list(client.run(forget_peak).values())
    begun = time.perf_counter()
    result: FitResult = fit(source, settings, client=client)
    wall = time.perf_counter() - begun
    peaks = [peak_bytes()] if client is None else list(client.run(peak_bytes).values())
    plan = upper_bound_plan(source, settings, ranks, threads, available_memory(ranks))
    epochs = [epoch.seconds for epoch in result.epochs]
    return {
        "setup_seconds": round(wall - sum(epochs), 3),
        "epoch_seconds": round(statistics.median(epochs), 3),
        "fit_seconds": round(wall, 3),
        "planned_gb": round((plan.total - dict(plan.items)["interpreter and libraries"]) / 1e9, 4),
        "peak_gb": round(max(peak - then for peak, then in zip(peaks, before, strict=True)) / 1e9, 4),
        "resident_before_gb": round(max(before) / 1e9, 4),
    }


def alone(size: Size) -> dict[str, Any]:
    """Return the figures of one size from a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(asdict(size))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vary", nargs="+", choices=list(VARIED), default=list(VARIED), help="some of them")
    parser.add_argument("--out", type=Path, help="JSON file; runs are added to it, and the last of a size counts")
    parser.add_argument("--tiny", action="store_true", help="hundreds of rows, in this process, to check that it runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        print("\n" + json.dumps(one(Size(**json.loads(options.one)))))
        return
    varied = TINY if options.tiny else {name: VARIED[name] for name in options.vary}
    base = Size(n_rows=400, n_landmarks=50, n_features=5, n_epochs=2) if options.tiny else Size()
    rows, rate = [], sgemm_rate(300 if options.tiny else 3000)
    settings = {"solver": "eigenpro", "loss": "squared_hinge", "kernel": "gaussian", "tiny": options.tiny}
    before = read(options.out) if options.out is not None and options.out.exists() else []

    def write_run(rates: list[int]) -> None:
        tables = {"sizes": rows, "whole": [{"sgemm_gflops_before_after": rates}]}
        if options.out is not None:
            run = Run("scaling", today(), describe_machine(), versions(), settings, tables)
            write([*before, run], options.out)

    for name, size in sizes(varied, base):
        rows.append({"varied": name, **asdict(size), **(one(size) if options.tiny else alone(size))})
        print(rows[-1], flush=True)
        write_run([round(rate)])  # results so far survive later failures
    write_run([round(rate), round(sgemm_rate(300 if options.tiny else 3000))])


if __name__ == "__main__":
    main()
