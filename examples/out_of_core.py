"""Fit a classifier on a store that is larger than the memory limit of the workers that train it.

The store is written chunk by chunk, so that this process never holds it either. The fit runs on local worker
processes with a memory limit each, and at the end their peak memory is printed with the limit and the store's size. The
default is a store of 1.8 GB and two workers with a limit of 900 MB each. A rank reads ahead windows of 64 MiB, so a
limit below about 850 MB is refused for stores of this size.

Run it with ``python examples/out_of_core.py``.
"""

import argparse
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
from dask.utils import parse_bytes
from distributed import Client, LocalCluster

from daskkern import KernelClassifier, Landmarks
from daskkern.data.storage.writer import StoreWriter

CLASSES = 10
BLOCK = 8192
LATENT = 8
NOISE = 0.3


def blocks(rows: int, features: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows (m, features) and class codes (m,): noisy mixtures of latent points, labelled by nearest centre."""
    shared = np.random.default_rng(0)
    mixing = shared.standard_normal((LATENT, features), dtype=np.float32)
    centres = shared.standard_normal((3 * CLASSES, LATENT), dtype=np.float32)
    rng = np.random.default_rng(seed)
    for start in range(0, rows, BLOCK):
        hidden = rng.standard_normal((min(BLOCK, rows - start), LATENT), dtype=np.float32)
        nearest = (hidden @ centres.T - 0.5 * (centres**2).sum(axis=1)).argmax(axis=1)
        X = rng.standard_normal((len(hidden), features), dtype=np.float32)
        X *= NOISE
        X += hidden @ mixing
        yield X, nearest % CLASSES


def write_store(path: Path, rows: int, features: int, seed: int) -> int:
    """Write a store of generated rows, one block in memory at a time, and return its bytes on disk."""
    writer = StoreWriter(path, n_features=features, task="classification", classes=range(CLASSES), overwrite=True)
    with writer:
        for X, y in blocks(rows, features, seed):
            writer.append(X, y)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


class Watch:
    """Peak resident memory of processes, sampled ten times a second."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self.peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            for process in self._processes:
                try:
                    self.peak = max(self.peak, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def run(folder: Path, options: argparse.Namespace) -> float:
    """Write the stores, fit, report, and return the accuracy on the held-out store."""
    train, test = folder / "train.zarr", folder / "test.zarr"
    limit = parse_bytes(options.memory_limit)
    size = write_store(train, options.rows, options.features, seed=1)
    write_store(test, max(1000, min(10_000, options.rows // 10)), options.features, seed=2)
    print(f"store: {options.rows:,} rows x {options.features} features, {size / 1e6:,.0f} MB in {train}")
    print(f"workers: {options.workers} processes with a limit of {limit / 1e6:,.0f} MB each")

    with (
        LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit=limit,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        model = KernelClassifier(
            "gaussian:median",
            basis=Landmarks(options.landmarks),
            max_epochs=options.epochs,
            client=client,
            verbose=sys.stderr.isatty(),
        )
        begun = time.perf_counter()
        with Watch(pids) as watch:
            model.fit(str(train))
        seconds = time.perf_counter() - begun
        accuracy = model.score(str(test))
    print(f"fit: {options.epochs} epochs in {seconds:.1f} s, {model.dual_coef_.shape[0]:,} landmarks")
    print(
        f"highest memory of a worker: {watch.peak / 1e6:,.0f} MB of {limit / 1e6:,.0f} MB; "
        f"the store is {size / limit:.2f} times one worker's limit, "
        f"{size / (limit * options.workers):.2f} times that of all workers together"
    )
    print(f"accuracy on {test.name}: {accuracy:.2%}")
    return accuracy


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=450_000, help="default: 450,000")
    parser.add_argument("--features", type=int, default=1000, help="default: 1,000")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of one thread (default: 2)")
    parser.add_argument("--memory-limit", default="900MB", help="memory limit of each worker (default: 900MB)")
    parser.add_argument("--landmarks", type=int, default=500, help="columns of the model (default: 500)")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the rows (default: 2)")
    parser.add_argument("--out", type=Path, help="folder for the stores (default: a temporary one)")
    options = parser.parse_args(argv)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        run(options.out, options)
        return
    with tempfile.TemporaryDirectory(prefix="daskkern-out-of-core-") as folder:
        run(Path(folder), options)


if __name__ == "__main__":
    main()
