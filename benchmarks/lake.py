"""From a lake to predictions: partitioned Parquet files on an S3 server, a store, a model and predictions there, too.

    python -m benchmarks lake --files 40 --rows 5000 --out benchmarks/results-lake.json

The server runs in this process and answers every n-th request with 500. Each stage is a command of its own, and its
seconds are those of the whole process, with imports and the workers' start. A worker is killed in the ingestion by two
workers and in the prediction. Then rows are counted: every row must be in the store, and be predicted, exactly once.
Raw rates are those of pyarrow reading all columns of the same files, from the disk and from the server, one by one.
The files on the disk are also ingested in this process, whose start does not count. A large lake keeps only some files
there (`--local-files`), and runs some stages only (`--stages`). Where other programs run, compare
processor seconds: `n_other_running_threads_before` is the system's load, the mean of five minutes before. Ranks of fits
plan for 1 GB each.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
from figures import Run, add, today
from products.machine import describe_machine, versions

from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from tests.support.object_server import ObjectServer, object_server

_DAYS = 8
STAGES = ("ingest, 1 worker", "ingest, 2 workers", "ingest, 2 workers, one killed", "check", "fit", "fit, from Parquet",
          "predict, one killed")  # fmt: skip


@dataclass
class Stage:
    """What was measured of a command: wall and CPU seconds, and the peak memory of its largest process."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    kills: int


def table_of(part: int, rows: int, columns: int) -> pa.Table:
    """Return a table of floats, a quarter of them with gaps, whole numbers, categories, dates, an id and a target."""
    rng = np.random.default_rng(part)
    floats, whole, texts = columns * 5 // 8, columns // 5, columns // 10
    made: dict[str, Any] = {"id": np.arange(part * rows, (part + 1) * rows)}
    for j in range(floats):
        values = rng.normal(size=rows).astype(np.float32 if j % 2 else np.float64)
        made[f"f{j}"] = pa.array(values, mask=rng.random(rows) < 0.05 if j % 4 == 0 else None)
    for j in range(whole):
        made[f"n{j}"] = rng.integers(0, 1000 * (j + 1), rows)
    for j in range(texts):
        names = np.array([f"kind {k}" for k in range(3 + j % 6)])
        made[f"c{j}"] = pa.array(names[rng.integers(0, len(names), rows)], mask=rng.random(rows) < 0.02)
    for j in range(columns - floats - whole - texts):
        made[f"d{j}"] = np.datetime64("2024-01-01", "D") + rng.integers(0, 700, rows)
    made["y"] = np.asarray(made["f1"]) + 0.5 * np.asarray(made["f3"]) + 0.1 * rng.normal(size=rows)
    return pa.table(made)


def make_lake(folder: Path, server: ObjectServer, options: argparse.Namespace) -> int:
    """Write the files, copy them to the server, keep some of them on the disk, and return the bytes of all."""
    from obstore.fsspec import FsspecStore

    system = FsspecStore("s3", client_options={"allow_http": True})
    n_bytes = 0
    for part in range(options.files):
        place = folder / f"day={part % _DAYS}" / f"part-{part}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table_of(part, options.rows, options.columns), place)
        system.pipe_file(f"{server.bucket}/lake/{place.relative_to(folder)}", place.read_bytes())
        n_bytes += place.stat().st_size
        if part >= options.local_files:
            place.unlink()
    return n_bytes


def seconds_of(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall seconds, and the processor seconds of this process, that some work takes."""
    begun, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begun, time.process_time() - used


def read_raw(files: Sequence[str], system: pyarrow.fs.FileSystem) -> None:
    """Read all columns of files by pyarrow, one after the other, with one thread."""
    for file in files:
        pq.read_table(file, filesystem=system, use_threads=False, partitioning=None)


def ingest_here(lake: Path, out: Path) -> None:
    """Ingest files on the disk into a store on the disk, in this process."""
    ingest([lake], out, target="y", task="regression", drop=("id",), scale="standard", overwrite=True)


def server_system(server: ObjectServer) -> pyarrow.fs.FileSystem:
    """Return pyarrow's own file system for the server."""
    return pyarrow.fs.S3FileSystem(
        endpoint_override=server.endpoint.removeprefix("http://"), scheme="http", access_key="key",
        secret_key="secret", region="us-east-1",
    )  # fmt: skip


def run_stage(words: Sequence[str], kill_when: Callable[[], bool] | None) -> Stage:
    """Run a command of daskkern, and kill a worker of it once, with SIGKILL, when `kill_when` says so."""
    begun, peak, kills = time.perf_counter(), 0, 0
    cpu: dict[int, float] = {}
    with tempfile.TemporaryFile("w+") as output:
        process = psutil.Popen([sys.executable, "-m", "daskkern", *words], stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            with suppress(psutil.Error):
                family = [process, *process.children(recursive=True)]
                for each in family:
                    times = each.cpu_times()
                    cpu[each.pid] = times.user + times.system
                    peak = max(peak, each.memory_info().rss)
                workers = [each for each in family[1:] if "spawn_main" in " ".join(each.cmdline())]
                if kill_when is not None and not kills and workers and kill_when():
                    max(workers, key=lambda each: cpu[each.pid]).kill()
                    kills += 1
            time.sleep(0.05)
        if process.returncode:
            output.seek(0)
            sys.exit(f"daskkern {' '.join(words)} failed:\n{output.read()}")
    return Stage(time.perf_counter() - begun, sum(cpu.values()), peak, kills)


def after_puts(server: ObjectServer, n: int) -> Callable[[], bool]:
    """Return whether so many objects were written from now on, as a function."""
    before = server.faults.counts.get("PUT", 0)
    return lambda: server.faults.counts.get("PUT", 0) >= before + n


def stages(server: ObjectServer, n_rows: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all stages; return a row for each."""
    lake, found = server.url("lake"), []
    fit = ["--kernel", "gaussian:median", "--landmarks", str(options.landmarks), "--epochs", str(options.epochs),
           "--loss", "squared", "--set", "memory=1GB"]  # fmt: skip
    two, table = ["--workers", "2"], ["--target", "y", "--task", "regression", "--drop", "id"]
    ingest = ["ingest", lake, *table, "--scale", "standard"]
    store, model, out = server.url("store.zarr"), server.url("model.zarr"), server.url("predictions.parquet")
    commands: list[tuple[str, list[str], int]] = [
        ("ingest, 1 worker", [*ingest, "--workers", "1", "--out", server.url("one.zarr")], 0),
        ("ingest, 2 workers", [*ingest, *two, "--out", server.url("two.zarr")], 0),
        ("ingest, 2 workers, one killed", [*ingest, *two, "--out", store], 12),
        ("check", ["check", store, *two], 0),
        ("fit", ["fit", store, *fit, *two, "--out", model], 0),
        ("fit, from Parquet", ["fit", lake, *table, "--scale", "standard", *fit, *two, "--out",
                               server.url("direct.zarr")], 0),
        ("predict, one killed", ["predict", model, lake, "--keep", "id,day", "--partition-by", "day", *two, "--out",
                                 out], 2),
    ]  # fmt: skip
    for name, words, puts in [each for each in commands if each[0] in options.stages]:
        server.faults.fail_every = options.fail_every
        stage = run_stage(words, after_puts(server, puts) if puts else None)
        server.faults.fail_every = 0
        row = {
            "stage": name, "n_rows": n_rows, "wall_seconds": round(stage.seconds, 2),
            "cpu_seconds": round(stage.cpu_seconds, 2), "rows_rate_per_s": round(n_rows / stage.seconds),
            "peak_of_a_process_gb": round(stage.peak_bytes / 1e9, 3), "n_killed_workers": stage.kills,
        }  # fmt: skip
        print(row, flush=True)
        found.append(row)
    return found


def count_rows(server: ObjectServer, n_rows: int, compared: bool) -> dict[str, Any]:
    """Return how many rows the store and the predictions have; exit unless every row is there exactly once.

    `compared`: the store must also be that of the ingestion by one worker.
    """
    store = open_store(server.url("store.zarr"))
    predicted = ds.dataset(f"{server.bucket}/predictions.parquet", filesystem=server_system(server))
    ids = np.sort(predicted.to_table(columns=["id"]).column("id").to_numpy())
    counts = {"n_rows_of_the_store": store.info.n_rows, "n_rows_predicted": len(ids)}
    if compared:
        one = open_store(server.url("one.zarr"))
        counts["is_the_store_of_one_worker"] = store.info.checksums == one.info.checksums
    if store.info.n_rows != n_rows or not np.array_equal(ids, np.arange(n_rows)) or not all(counts.values()):
        sys.exit(f"rows are missing or repeated: {counts}; expected {n_rows}")
    return counts


def ratios(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the ratios of stages that were both run."""
    pairs = {
        "two_workers_to_one_ratio": ("ingest, 1 worker", "ingest, 2 workers", "wall_seconds"),
        "fit_from_parquet_to_store_rows_ratio": ("fit", "fit, from Parquet", "wall_seconds"),
        "fit_from_parquet_to_store_cpu_ratio": ("fit", "fit, from Parquet", "cpu_seconds"),
    }
    return {
        name: round(rows[one][field] / rows[other][field], 2)
        for name, (one, other, field) in pairs.items()
        if one in rows and other in rows
    }


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Make the lake, run all stages, and return the tables of figures."""
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = "1000000"  # larger objects are files, one open file each
    n_rows, others = options.files * options.rows, round(os.getloadavg()[1], 1)
    with object_server() as server, tempfile.TemporaryDirectory(prefix="daskkern-lake-") as temporary:
        os.environ.update(server.environment())
        folder = Path(temporary)
        n_bytes = make_lake(folder, server, options)
        local = sorted(str(path) for path in folder.rglob("*.parquet"))
        remote = [f"{server.bucket}/lake/{Path(path).relative_to(folder)}" for path in local]
        disk, far = pyarrow.fs.LocalFileSystem(), server_system(server)
        place = folder.with_name(f"{folder.name}.zarr")
        ingest_here(folder, place)  # what is imported and compiled once does not count
        passes: list[tuple[str, Callable[[], object]]] = [
            ("pyarrow, local files", partial(read_raw, local, disk)),
            ("ingest, local files, this process", partial(ingest_here, folder, place)),
            ("pyarrow, from the server", partial(read_raw, remote, far)),
        ]
        taken = [(name, *seconds_of(work)) for name, work in passes]
        shutil.rmtree(place)
        server.faults.counts.clear()
        rows = stages(server, n_rows, options)
        failed = server.faults.counts.get("failed", 0)
        whole = {"lake_mb": round(n_bytes / 1e6, 1), "n_failed_requests": failed,
                 **count_rows(server, n_rows, set(options.stages) == set(STAGES))}  # fmt: skip
        left = [thread.name for thread in threading.enumerate() if "daskkern" in thread.name]
        assert not left, left
    n_read = min(options.files, options.local_files) * options.rows
    reading = [
        {"reader": name, "n_rows": n_read, "wall_seconds": round(wall, 2), "cpu_seconds": round(cpu, 2),
         "rows_rate_per_s": round(n_read / wall), "rows_rate_per_cpu_s": round(n_read / cpu)}
        for name, wall, cpu in taken
    ]  # fmt: skip
    whole["n_other_running_threads_before"] = others
    whole["ingestion_to_pyarrow_cpu_ratio"] = round(taken[0][2] / taken[1][2], 2)
    whole.update(ratios({row["stage"]: row for row in rows}))
    return {"reading": reading, "stages": rows, "whole": [whole]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rows", type=int, default=5000, help="of a file")
    parser.add_argument("--local-files", type=int, default=1000, help="that stay on the disk for the raw rates")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--fail-every", type=int, default=40, help="answer every n-th request of a kind with 500")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="a few small files, to check that it runs")
    options = parser.parse_args(argv)
    if options.tiny:
        options.files, options.rows, options.columns, options.landmarks = 8, 1500, 20, 30
    tables = measure(options)
    settings = {
        "n_files": options.files, "n_rows_of_a_file": options.rows, "n_columns": options.columns,
        "n_landmarks": options.landmarks, "n_epochs": options.epochs, "n_requests_to_a_failure": options.fail_every,
        "tiny": options.tiny,
    }  # fmt: skip
    add(Run("lake", today(), describe_machine(), versions(), settings, tables), options.out)


if __name__ == "__main__":
    main()
