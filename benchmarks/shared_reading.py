"""An epoch of a fit whose workers each read all rows, and of one that reads them once and sends them.

    python -m benchmarks shared_reading --out benchmarks/results-shared-reading.json

Rows are compressed images of bytes, in a store on the local disk (in its cache, after the first epoch). Few landmarks
leave a step that is short beside reading, as on many workers. Bytes, CPU seconds and wall seconds are those of an epoch
after the first one, over all workers; `each` and `once` take turns.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import zarr
from figures import Run, add, today
from products.machine import OthersLoad, describe_machine, versions
from sklearn.datasets import load_digits
from zarr.codecs import ZstdCodec
from zarr.storage import LocalStore

from daskkern.backend.communicator import Communicator
from daskkern.basis import Landmarks
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.data.storage.writer import StoreWriter
from daskkern.events import EpochFinished, EpochTimed, Event, StageFinished
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import RankTask, run_rank
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepare import prepare
from tests.support.cluster import local_cluster

PATIENT = GangSettings(collective_timeout_s=300.0, silence_s=120.0)
_NO_CACHE = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
_CHUNK = 160  # rows: a window has whole chunks, which are decompressed once an epoch


def measure(comm: Communicator, task: RankTask, context: RankContext) -> list[tuple[float, float, int]]:
    """Run a rank; return wall clock, CPU seconds of the process and bytes read of chunks of X, after each epoch."""
    passed: list[tuple[float, float, int]] = []
    sizes: list[int] = []
    get = LocalStore.get

    async def counted(self: LocalStore, key: str, *arguments: Any, **named: Any) -> Any:
        found = await get(self, key, *arguments, **named)
        if found is not None and key.startswith("X/c/"):
            sizes.append(len(found))
        return found

    def listen(event: Event) -> None:
        context.emit(event)
        if isinstance(event, EpochFinished):
            passed.append((time.perf_counter(), time.process_time(), sum(sizes)))

    with mock.patch.object(LocalStore, "get", counted):
        run_rank(comm, task, replace(context, emit=listen))
    return passed


def images(place: Path, n: int) -> Path:
    """Write a store of `n` images of 28 x 28 bytes, compressed by Zstandard, and return it."""
    digits, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    classes = tuple(range(10))
    with StoreWriter(
        place, n_features=784, task="classification", classes=classes, chunk_rows=_CHUNK, dtype="uint8"
    ) as writer:
        for start in range(0, n, _CHUNK):
            drawn = rng.integers(0, len(digits), min(_CHUNK, n - start))
            large = np.kron(digits[drawn].reshape(-1, 8, 8), np.ones((4, 4)))[:, 2:30, 2:30].reshape(-1, 784)
            noise = rng.integers(0, 16, large.shape)
            writer.append((np.minimum(large, 15) * 16 + noise * (large > 0)).astype(np.uint8), labels[drawn])
    group = zarr.open_group(place, mode="r+", zarr_format=3)
    raw = np.asarray(group["X"][:])
    del group["X"]
    group.create_array("X", data=raw, chunks=(_CHUNK, 784), compressors=ZstdCodec(level=3))
    return place


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--landmarks", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3, help="of a fit, of which the first is left out")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tiny", action="store_true", help="two workers and few rows, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.rows, options.workers, options.epochs, options.repeats = 4000, [2], 2, 1
    records: list[dict[str, Any]] = []
    folder = Path(tempfile.mkdtemp(prefix="daskkern-bench-"))
    try:
        store = images(folder / "images", options.rows)
        size = sum(path.stat().st_size for path in (store / "X" / "c").rglob("*") if path.is_file())
        source = StoreSource.at(str(store))
        settings = FitSettings(
            Gaussian(2000.0), Squared(), Landmarks(options.landmarks), EigenPro(), 1e-6, options.epochs, 1000
        )
        settings = replace(settings, device="cpu")
        prepared = prepare(source, settings, False)
        load = OthersLoad()
        for workers in options.workers:
            with local_cluster(workers) as client:
                for reading in ("each", "once", "auto") * options.repeats:
                    heard: list[Event] = []
                    task = RankTask(FitJob(source, replace(settings, reading=reading)), prepared, _NO_CACHE, 1)
                    found = run_gang(client, measure, task, name=reading, settings=PATIENT, listener=heard.append)
                    records.append(_record(workers, reading, np.array(found), size, heard))
                    print(records[-1], flush=True)
    finally:
        shutil.rmtree(folder)
    if options.out is not None:
        tables = {"epochs": records, "whole": [{"others_load_cores": round(load.cores(), 2)}]}
        shown = {"n_rows": options.rows, "n_features": 784, "n_landmarks": options.landmarks, "store_mb": size / 1e6}
        add(Run("shared_reading", today(), describe_machine(), versions(), shown, tables), options.out)


def _record(workers: int, reading: str, passed: np.ndarray, size: int, heard: list[Event]) -> dict[str, Any]:
    """Return the means of the epochs after the first: `passed` is (workers, epochs, 3)."""
    taken = np.diff(passed, axis=1).mean(axis=1)
    timed = [event.reading / event.seconds for event in heard if isinstance(event, EpochTimed)][1:]
    said = [event.detail for event in heard if isinstance(event, StageFinished) and event.stage == "reading"]
    return {
        "n_workers": workers,
        "reading": reading,
        "epoch_seconds": round(float(taken[:, 0].max()), 3),
        "epoch_cpu_seconds": round(float(taken[:, 1].sum()), 3),
        "read_share_of_store": round(float(taken[:, 2].sum()) / size, 3),
        "share_waiting_for_rows": round(float(np.mean(timed)), 3),
        "said": said[0] if said else "",
    }


if __name__ == "__main__":
    main()
