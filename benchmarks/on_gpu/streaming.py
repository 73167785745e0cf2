"""Rows from a store on the disk to the device, as an epoch reads them."""

import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.backend.uploads import Uploads, begun_ahead
from daskkern.data.rows.batches import BatchPlan, iter_batches
from daskkern.data.rows.rows import Fields
from daskkern.data.storage.writer import StoreWriter
from daskkern.training.feeding.sources import StoreSource
from on_gpu.clock import wait
from on_gpu.sizes import Sizes

_WRITTEN_ROWS = 50_000


def time_streaming(xp: ModuleType, sizes: Sizes) -> dict[str, Any]:
    """Write a store, and read it twice to the device in batches; the second time it is in the page cache."""
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
        rates = []
        for epoch in (0, 1):
            begun, total = time.perf_counter(), 0
            stream = iter_batches(rows, plan, epoch, fields=Fields.X)
            for arrived in begun_ahead((uploads.begin(item.block.X) for item in stream), uploads.ahead):
                total += int(arrived()[0].nbytes)
            wait(xp)
            rates.append(round(total / (time.perf_counter() - begun) / 1e9, 3))
    return {"n": n, "d": d, "batch": batch, "written_in_s": round(written, 2), "gb_per_s_of_each_pass": rates}
