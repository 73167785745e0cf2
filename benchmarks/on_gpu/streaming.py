"""Rows from a store on the disk to the device, as an epoch reads them."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.backend.concurrency import reading_threads
from daskkern.backend.uploads import Uploads, begun_ahead
from daskkern.data.rows.batches import BatchPlan, iter_batches
from daskkern.data.rows.rows import Fields
from daskkern.data.storage.writer import StoreWriter
from daskkern.training.feeding.sources import StoreSource
from on_gpu.clock import wait
from on_gpu.sizes import Sizes

_WRITTEN_ROWS = 50_000


def streaming(
    xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Write a store, and read it twice to the device in batches; the second time it is in the page cache."""
    del where
    n, d, batch = sizes.streamed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.zarr"
        rng = np.random.default_rng(0)
        begun = time.perf_counter()
        with StoreWriter(path, n_features=d, task="regression") as writer:
            for start in range(0, n, _WRITTEN_ROWS):
                m = min(_WRITTEN_ROWS, n - start)
                writer.append(rng.standard_normal((m, d), np.float32), np.zeros((m, 1)))
        written = time.perf_counter() - begun
        rows = StoreSource.at(str(path)).open("float32")
        plan, uploads = BatchPlan.for_rows(rows, batch), Uploads(xp)
        for epoch in (0, 1):
            begun, total = time.perf_counter(), 0
            reading = reading_threads(xp)
            stream = iter_batches(rows, plan, epoch, fields=Fields.X, readers=reading, empty=uploads.empty)
            for arrived in begun_ahead((uploads.begin(item.block.X) for item in stream), uploads.ahead):
                total += int(arrived()[0].nbytes)
            wait(xp)
            rate = round(total / (time.perf_counter() - begun) / 1e9, 3)
            record = {"n": n, "d": d, "batch": batch, "n_pass": epoch + 1, "gb_per_s": rate}
            if "host_to_device_gb_per_s" in ceilings:
                record["share_of_copies"] = round(rate / ceilings["host_to_device_gb_per_s"], 3)
            yield "streaming", record | {"written_in_s": round(written, 2)}
