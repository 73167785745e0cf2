"""Overhead of two ranks over one process with two threads, and where the time of their epochs goes.

    python -m benchmarks overhead /path/to/fashion_mnist.npz --out benchmarks/results-overhead.json --check

Starting the cluster is not timed, and each variant fits once beforehand, so that its products are compiled. Variants
take turns. Shares are from the fit's own breakdown (EpochTimed), of all epochs of all rounds.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from contest.data import tiny_data
from distributed import Client
from figures import Run, add, today
from products.machine import OthersLoad, describe_machine, versions

import daskkern
from daskkern.backend.concurrency import cpu_count
from daskkern.basis import Landmarks
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster

ALLOWED_RATIO, ALLOWED_EXCHANGE = 1.10, 0.03


def timed(source: StoreSource, settings: FitSettings, client: Client | None) -> tuple[float, FitResult]:
    begun = time.perf_counter()
    result = fit(source, settings, client=client)
    return time.perf_counter() - begun, result


def rounds(
    source: StoreSource, settings: FitSettings, client: Client, repeats: int
) -> tuple[list[dict[str, float]], list[FitResult]]:
    """Return the seconds of both variants, round by round, and the fits of the ranks."""
    found, fits, load = [], [], OthersLoad()
    warm = replace(settings, max_epochs=1)
    for side in (None, client):
        fit(source, warm, client=side)
    for number in range(repeats):
        taken: dict[str, tuple[float, FitResult]] = {}
        for name, side in sorted({"ranks": client, "process": None}.items(), reverse=bool(number % 2)):
            taken[name] = timed(source, settings, side)
        record = {"others_load_cores": round(load.cores(), 2)}
        for name, (seconds, result) in taken.items():
            record[f"{name}_wall_seconds"] = round(seconds, 2)
            record[f"{name}_epoch_seconds"] = round(statistics.median(e.seconds for e in result.epochs), 3)
        print(record, flush=True)
        found.append(record)
        fits.append(taken["ranks"][1])
    return found, fits


def shares(fits: Sequence[FitResult]) -> dict[str, Any]:
    """Return where the time of the ranks' epochs went."""
    times = [epoch for result in fits for epoch in result.times]
    total = sum(epoch.seconds for epoch in times)
    return {
        "exchange_share": round(sum(epoch.exchanging for epoch in times) / total, 4),
        "waiting_share": round(sum(epoch.waiting for epoch in times) / total, 4),
        "work_share": round(sum(epoch.computing + epoch.reading + epoch.checkpointing for epoch in times) / total, 4),
        "exchange_ms_per_collective": round(
            1e3 * sum(epoch.exchanging for epoch in times) / sum(epoch.collectives for epoch in times), 3
        ),
        "n_collectives_per_epoch": times[0].collectives,
        "sums": times[0].ways,
        "n_epochs": len(times),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="npz with X_train and y_train")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--landmarks", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, help="the first rows only, for a quick look")
    parser.add_argument("--keep-blocks", default="never", help="auto, memory, disk or never")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--tiny", action="store_true", help="200 generated rows, one round, to check that it runs")
    options = parser.parse_args(argv)
    if options.data is None and not options.tiny:
        parser.error("name the npz file of the data")
    if options.tiny:
        options.landmarks, options.batch_size, options.epochs, options.repeats = 50, 64, 2, 1
    settings = FitSettings(
        Gaussian("median"), SquaredHinge(), Landmarks(options.landmarks), EigenPro(), max_epochs=options.epochs,
        batch_size=options.batch_size, device="cpu", keep_blocks=options.keep_blocks,
    )  # fmt: skip
    threads = cpu_count() // 2
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            options.data = tiny_data(Path(folder) / "tiny.npz")
        with np.load(options.data) as data:
            X, y = data["X_train"][: options.rows], data["y_train"][: options.rows].astype(int)
        np.savez(Path(folder) / "d.npz", X=X, y=y)
        daskkern.ingest([str(Path(folder) / "d.npz")], Path(folder) / "d.zarr", scale="minmax")
        source = StoreSource.at(str(Path(folder) / "d.zarr"))
        with local_cluster(2, threads_per_worker=max(1, threads)) as client:
            records, fits = rounds(source, settings, client, options.repeats)
    ratios = {
        f"{what}_ratio": round(
            statistics.median(r[f"ranks_{what}_seconds"] for r in records)
            / statistics.median(r[f"process_{what}_seconds"] for r in records),
            3,
        )
        for what in ("wall", "epoch")
    }
    summary = {
        "n_rows": len(y),
        "n_landmarks": options.landmarks,
        "batch_size": options.batch_size,
        "keep_blocks": options.keep_blocks,
        "n_ranks": 2,
        "threads_per_rank": max(1, threads),
        "allowed_wall_ratio": ALLOWED_RATIO,
        "allowed_exchange_share": ALLOWED_EXCHANGE,
    }
    result = {**ratios, **shares(fits)}
    print(json.dumps({**summary, **result}, indent=1))
    tables = {"rounds": records, "whole": [result]}
    add(Run("overhead", today(), describe_machine(), versions(), summary, tables), options.out)
    if options.check and (ratios["wall_ratio"] > ALLOWED_RATIO or result["exchange_share"] >= ALLOWED_EXCHANGE):
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
