"""A fit with a metric that is learned from rows, compared with one without, by workers with a memory limit.

    python -m benchmarks learned_features --rows 1000000 --features 500 --folder /with/3/GB --check

A table of float32 numbers is written in chunks: the target depends on three of the features, and the others are noise.
Workers of one thread each and this memory limit fit it with the same kernel, landmarks and batches, first without and
then with `FeatureLearning`, from all rows or those of `--metric-rows`. Peak memory is the highest resident size of a
worker's process, sampled ten times a second; the plan is that of `daskkern plan` for one rank. The seconds of the
stages say what learning took.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bigger_than_memory import workers
from dask.utils import parse_bytes
from figures import Run, add, today
from products.machine import describe_machine, versions

from daskkern.basis import Landmarks
from daskkern.data.storage.store import open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import StoreError
from daskkern.events import Event, StageFinished, WorkersLost
from daskkern.feature_learning import FeatureLearning
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
from out_of_core import Watch

MOST_TIMES = 1.3
_BLOCK = 10_000


def store_in(folder: Path, n_rows: int, n_features: int) -> Path:
    """Return the store of this size in `folder`, which is written block by block where it is missing."""
    path = folder / f"learned-{n_rows}-{n_features}.zarr"
    try:
        info = open_store(path).info
        if (info.n_rows, info.n_features) == (n_rows, n_features):
            return path
    except StoreError:
        pass
    rng = np.random.default_rng(1)
    with StoreWriter(path, n_features=n_features, task="regression", overwrite=True) as writer:
        for start in range(0, n_rows, _BLOCK):
            X = rng.standard_normal((min(_BLOCK, n_rows - start), n_features), np.float32)
            y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
            writer.append(X, y[:, None].astype(np.float64))
    return path


def measured(source: StoreSource, settings: FitSettings, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one fit."""
    limit = parse_bytes(options.memory_limit)
    plan = upper_bound_plan(source, settings, options.workers, 1, limit)
    stages: dict[str, float] = {}
    lost: list[WorkersLost] = []

    def listen(event: Event) -> None:
        if isinstance(event, WorkersLost):
            lost.append(event)
        elif isinstance(event, StageFinished) and event.seconds:
            stages[event.stage] = round(stages.get(event.stage, 0.0) + event.seconds, 2)

    with workers(options, options.memory_limit) as client, Watch(list(client.run(os.getpid).values())) as watch:
        begun = time.perf_counter()
        result = fit(source, settings, client=client, listener=listen)
        seconds = time.perf_counter() - begun
    return {
        "learns": settings.learn_features is not None,
        "fit_seconds": round(seconds, 1),
        "stages": list(stages),
        "stage_seconds": list(stages.values()),
        "epoch_seconds": [round(epoch.seconds, 2) for epoch in result.epochs],
        "mean_loss_error": round(result.epochs[-1].loss, 4),
        "peak_of_a_worker_gb": round(watch.peak / 1e9, 3),
        "planned_gb": round(plan.total / 1e9, 3),
        "limit_of_a_worker_gb": limit / 1e9,
        "n_workers_lost": len(lost),
    }


def _learning(options: argparse.Namespace) -> FeatureLearning:
    """Return how the metric is learned."""
    if options.metric_rows == "auto":
        return FeatureLearning(options.metric)
    n_rows = int(options.metric_rows) if options.metric_rows else "all"
    return FeatureLearning(options.metric, n_rows=n_rows, n_landmarks=100 if options.tiny else 1000)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of the store (default: a temporary folder)")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--metric", default="full", help="diagonal or full")
    parser.add_argument("--metric-rows", help="rows that the metric is learned from: a number, or auto (default: all)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="1GB", help="of each worker")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--tiny", action="store_true", help="a few thousand rows, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.rows, options.features, options.landmarks, options.epochs = 3000, 10, 60, 2
    settings = FitSettings(
        Laplacian("median"), Squared(), Landmarks(options.landmarks), EigenPro(), max_epochs=options.epochs,
        device="cpu", keep_blocks="never",
    )  # fmt: skip
    learning = _learning(options)
    with tempfile.TemporaryDirectory(prefix="daskkern-rows-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        source = StoreSource.at(str(store_in(folder, options.rows, options.features)))
        fits = [measured(source, replace(settings, learn_features=one), options) for one in (None, learning)]
    ratio = round(fits[1]["fit_seconds"] / fits[0]["fit_seconds"], 2)
    described = {
        "n_rows": options.rows, "n_features": options.features, "n_landmarks": options.landmarks,
        "n_workers": options.workers, "metric": options.metric, "metric_rows": options.metric_rows or "all",
        "tiny": options.tiny,
    }  # fmt: skip
    found = {"fits": fits, "summary": [{"time_ratio": ratio}]}
    add(Run("learned_features", today(), describe_machine(), versions(), described, found), options.out)
    print(found)
    within = all(one["peak_of_a_worker_gb"] <= one["planned_gb"] and not one["n_workers_lost"] for one in fits)
    if options.check and not (within and ratio <= MOST_TIMES):
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
