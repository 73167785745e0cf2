"""Fit a store many times larger than the memory of the workers, compared with rows that fit in their memory.

    python -m benchmarks bigger_than_memory --folder /with/25/GB --out benchmarks/results-bigger-than-memory.json

EigenPro with landmarks and delayed projections, one pass over the store, by worker processes with a memory limit each.
The same model is fitted to a store of some of the rows before and after, with the same batches and by workers with
enough memory: after the first pass they hold those rows, and rates are of the later passes. Rates are rows per second
of a pass, without set-up. Kernel blocks are never cached. Peak memory is the highest resident size of each worker's
process, sampled ten times a second, during the whole fit and before its first step; the plan is that of `daskkern plan`
for one rank. The store stays in the folder, and is reused if it has the requested size.
"""

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask.utils import parse_bytes
from distributed import Client, LocalCluster
from figures import Run, add, today
from products.machine import describe_machine, sgemm_rate, versions

from daskkern.basis import Landmarks
from daskkern.data.storage.store import open_store
from daskkern.errors import StoreError
from daskkern.events import BatchFinished, Event, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
from out_of_core import Watch, write_store

WANTED_SHARE = 0.85


def store_in(folder: Path, n_rows: int, n_features: int) -> tuple[Path, float | None]:
    """Return the store of this size in `folder`, and the seconds that writing it took, if it did not exist."""
    path = folder / f"rows-{n_rows}-{n_features}.zarr"
    try:
        info = open_store(path).info
        if (info.n_rows, info.n_features) == (n_rows, n_features):
            return path, None
    except StoreError:
        pass
    needed, free = 4 * n_rows * n_features, shutil.disk_usage(folder).free
    if needed * 1.05 > free:
        sys.exit(
            f"the store needs {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB free; choose another --folder"
        )
    begun = time.perf_counter()
    write_store(path, n_rows, n_features, seed=1)
    return path, time.perf_counter() - begun


def rate(result: FitResult, n_rows: int, first: int) -> float:
    """Return rows per second, the median of the epochs from `first` on."""
    return n_rows / statistics.median(epoch.seconds for epoch in result.epochs[first:])


@contextmanager
def workers(options: argparse.Namespace, limit: str) -> Iterator[Client]:
    """Start the workers, of one thread each, with this memory limit."""
    with (
        LocalCluster(
            n_workers=options.workers, threads_per_worker=1, memory_limit=limit, dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


def held_rate(store: Path, options: argparse.Namespace, settings: FitSettings) -> float:
    """Return rows per second of passes over rows that workers with enough memory hold."""
    few = StoreSource.at(str(store_in(store.parent, options.slice, options.features)[0]))
    with workers(options, "8GB") as client:
        found = rate(fit(few, replace(settings, max_epochs=4), client=client), options.slice, 1)
    print(f"in memory: {found:,.0f} rows/s", flush=True)
    return found


def measure(store: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the fits."""
    settings = FitSettings(
        Gaussian(options.features**0.5), SquaredHinge(), Landmarks(options.landmarks), EigenPro(), max_epochs=1,
        batch_size=options.batch_size, device="cpu", keep_blocks="never",
    )  # fmt: skip
    source = StoreSource.at(str(store))
    limit = parse_bytes(options.memory_limit)
    plan = upper_bound_plan(source, settings, options.workers, 1, limit)
    before = held_rate(store, options, settings)
    with workers(options, options.memory_limit) as client, Watch(list(client.run(os.getpid).values())) as watch:
        lost: list[WorkersLost] = []
        before_steps: list[int] = []

        def listen(event: Event) -> None:
            if isinstance(event, WorkersLost):
                lost.append(event)
            elif isinstance(event, BatchFinished) and not before_steps:
                before_steps.append(watch.peak)

        begun = time.perf_counter()
        result = fit(source, settings, client=client, listener=listen)
        seconds = time.perf_counter() - begun
    streamed = rate(result, source.info.n_rows, 0)
    print(f"from the store: {streamed:,.0f} rows/s; {seconds:.0f} s in all", flush=True)
    after = held_rate(store, options, settings)
    return {
        "store_gb": round(sum(file.stat().st_size for file in store.rglob("*") if file.is_file()) / 1e9, 2),
        "n_rows": source.info.n_rows,
        "n_features": source.info.n_features,
        "n_workers": options.workers,
        "limit_of_a_worker_gb": limit / 1e9,
        "n_workers_lost": len(lost),
        "peak_of_a_worker_gb": round(watch.peak / 1e9, 3),
        "peak_of_setup_gb": round(max(before_steps, default=0) / 1e9, 3),
        "planned_gb": round(plan.total / 1e9, 3),
        "setup_seconds": round(seconds - result.epochs[0].seconds, 1),
        "epoch_seconds": round(result.epochs[0].seconds, 1),
        "fit_seconds": round(seconds, 1),
        "rows_rate_per_s": round(streamed),
        "rows_rate_per_s_in_memory_before_after": [round(before), round(after)],
        "share_of_rate_in_memory": round(streamed / statistics.mean((before, after)), 3),
        "mean_loss_error": round(result.epochs[0].loss, 4),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of the store (default: a temporary folder)")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--landmarks", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=768)
    parser.add_argument("--slice", type=int, default=60_000, help="rows that are held in memory")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="1GB", help="of each worker")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--tiny", action="store_true", help="a few thousand rows, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.rows, options.features, options.landmarks, options.slice, options.batch_size = 6000, 20, 60, 2000, 256
    with tempfile.TemporaryDirectory(prefix="daskkern-rows-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        store, writing = store_in(folder, options.rows, options.features)
        first = sgemm_rate(300 if options.tiny else 3000)
        found = measure(store, options)
    found["writing_seconds"] = None if writing is None else round(writing, 1)
    found["sgemm_gflops_before_after"] = [round(first), round(sgemm_rate(300 if options.tiny else 3000))]
    settings = {
        "solver": "eigenpro", "loss": "squared_hinge", "kernel": "gaussian",
        "n_landmarks": options.landmarks, "batch_size": options.batch_size, "n_slice_rows": options.slice,
        "tiny": options.tiny,
    }  # fmt: skip
    run = Run("bigger_than_memory", today(), describe_machine(), versions(), settings, {"fits": [found]})
    add(run, options.out)
    print(found)
    within = found["peak_of_a_worker_gb"] <= found["planned_gb"] <= found["limit_of_a_worker_gb"]
    good = within and not found["n_workers_lost"]
    if options.check and not (good and found["share_of_rate_in_memory"] >= WANTED_SHARE):
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
