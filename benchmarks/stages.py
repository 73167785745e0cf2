"""Rows per second of each stage from files to predictions: ingest, shuffle, fit, score, predict.

    python benchmarks/stages.py flights.npz --out benchmarks/results-stages.json

The arrays of the npz (X_train, y_train, X_test, y_test) are first written to eight Parquet files, which is not timed.
Each stage is a command of its own; its seconds are those of the whole process, with imports and the workers' start.
Peak memory is that of the largest of its processes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from figures import Run, add, today
from products.machine import describe_machine, sgemm_rate, versions

FILES = 8


def write_parquet(X: np.ndarray, y: np.ndarray, folder: Path) -> None:
    """Write rows to files of columns x0, x1, ... and y."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(y)), FILES)):
        columns = {f"x{k}": X[part, k] for k in range(X.shape[1])} | {"y": y[part]}
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet")


def timed(words: Sequence[str], folder: Path) -> tuple[float, float, str]:
    """Run a command of daskkern in `folder`; return its seconds, the peak memory in GB, and its output."""
    begun, peak = time.perf_counter(), 0
    with open(folder / "output", "w+") as output, open(folder / "errors", "w+") as errors:
        process = psutil.Popen([sys.executable, "-m", "daskkern", *words], cwd=folder, stdout=output, stderr=errors)
        while process.poll() is None:
            peak = max(peak, _largest(process))
            time.sleep(0.1)
        seconds = time.perf_counter() - begun
        output.seek(0), errors.seek(0)
        if process.returncode:
            sys.exit(output.read() + errors.read())
        return seconds, peak / 1e9, output.read()


def _largest(process: psutil.Process) -> int:
    """Return the largest resident size of the process and its descendants, in bytes."""
    peak = 0
    with suppress(psutil.Error):
        for each in [process, *process.children(recursive=True)]:
            peak = max(peak, each.memory_info().rss)
    return peak


def stages(folder: Path, n_train: int, n_test: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all stages; return a row for each."""
    workers = ["--workers", str(options.workers)]
    fit = ["--kernel", "gaussian:median", "--landmarks", str(options.landmarks), "--epochs", str(options.epochs)]
    commands: list[tuple[str, int, list[str]]] = [
        ("ingest", n_train, ["ingest", "train", "--out", "train.zarr", "--target", "y", "--task", "regression",
                             "--scale", "standard"]),
        ("ingest, held-out rows", n_test, ["ingest", "test", "--out", "test.zarr", "--target", "y", "--task",
                                           "regression"]),
        ("shuffle", n_train, ["shuffle", "train.zarr", "--out", "shuffled.zarr"]),
        ("fit", n_train * options.epochs, ["fit", "shuffled.zarr", "--loss", "squared", *fit, *workers, "--out",
                                           "model.zarr"]),
        ("score", n_test, ["score", "model.zarr", "test.zarr", "--json"]),
        ("predict", n_test, ["predict", "model.zarr", "test.zarr", "--out", "predictions.zarr"]),
    ]  # fmt: skip
    rows = []
    for name, n_rows, words in commands:
        seconds, peak, output = timed(words, folder)
        row: dict[str, Any] = {
            "stage": name, "n_rows": n_rows, "wall_seconds": round(seconds, 2),
            "rows_rate_per_s": round(n_rows / seconds), "peak_of_a_process_gb": round(peak, 2),
        }  # fmt: skip
        if name == "score":
            found = json.loads(output)
            row |= {key: found[key] for key in ("rmse", "mae") if key in found}
        print(row, flush=True)
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="npz with X_train, y_train, X_test and y_test")
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="a few hundred generated rows, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.landmarks, options.epochs, options.workers = 20, 1, 0
        X = np.random.default_rng(0).standard_normal((600, 4)).astype(np.float32)
        data = {"X_train": X[:500], "y_train": X[:500, 0] * X[:500, 1], "X_test": X[500:], "y_test": X[500:, 0]}
    elif options.data is None:
        parser.error("name an npz file with X_train, y_train, X_test and y_test")
    else:
        with np.load(options.data) as arrays:
            data = {name: arrays[name] for name in ("X_train", "y_train", "X_test", "y_test")}
    with tempfile.TemporaryDirectory(prefix="daskkern-stages-") as temporary:
        folder = Path(temporary)
        write_parquet(data["X_train"], data["y_train"], folder / "train")
        write_parquet(data["X_test"], data["y_test"], folder / "test")
        first = sgemm_rate(300 if options.tiny else 3000)
        rows = stages(folder, len(data["y_train"]), len(data["y_test"]), options)
    settings = {
        "data": "made" if options.data is None else options.data.stem, "n_features": data["X_train"].shape[1],
        "n_landmarks": options.landmarks, "n_epochs": options.epochs, "n_workers": options.workers,
        "tiny": options.tiny,
    }  # fmt: skip
    whole = [{"sgemm_gflops_before_after": [round(first), round(sgemm_rate(300 if options.tiny else 3000))]}]
    tables = {"stages": rows, "whole": whole}
    add(Run("stages", today(), describe_machine(), versions(), settings, tables), options.out)


if __name__ == "__main__":
    main()
