"""Scaling section: time and peak memory against the number of entries, each size in a process of its own.

``python -m products.scaling N P D BLOCK_ROWS LEAST_SECONDS``, in the folder above this one, is that process.
"""

import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.kernels import Gaussian
from products.sizes import ScalingSizes

_FOLDER = Path(__file__).resolve().parents[1]


def run_scaling(sizes: ScalingSizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Return median seconds and peak memory of each size, and how far they deviate from linear and constant growth."""
    outcomes: dict[int, list[dict[str, float]]] = {n: [] for n in sizes.n_rows}
    for _ in range(sizes.n_repeats):
        for n in sizes.n_rows:
            outcomes[n].append(_in_child(n, sizes))
    records = [_record(n, sizes, outcomes[n]) for n in sizes.n_rows]
    for record in records:
        say(line_of(record))
    per_entry = [record["median_seconds"] / record["n_entries"] for record in records]
    lowest = [record["lowest_seconds"] / record["n_entries"] for record in records]
    peaks = [record["peak_memory_mb"] for record in records]
    return {
        "kernel": "gaussian",
        "n_points": sizes.n_points,
        "n_features": sizes.n_features,
        "n_outputs": 1,
        "n_block_rows": sizes.block_rows,
        "sizes": records,
        "time_per_entry_spread_percent": _spread_percent(per_entry),
        "lowest_time_per_entry_spread_percent": _spread_percent(lowest),
        "peak_memory_spread_percent": _spread_percent(peaks),
    }


def _spread_percent(values: list[float]) -> float:
    return round(100 * (max(values) / min(values) - 1), 1)


def _in_child(n: int, sizes: ScalingSizes) -> dict[str, float]:
    words = (n, sizes.n_points, sizes.n_features, sizes.block_rows, sizes.least_seconds)
    command = [sys.executable, "-m", "products.scaling", *(str(word) for word in words)]
    done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RuntimeError(f"the process of n = {n:,} failed: {reason}")
    outcome: dict[str, float] = json.loads(done.stdout)
    return outcome


def _record(n: int, sizes: ScalingSizes, outcomes: list[dict[str, float]]) -> dict[str, Any]:
    every = [outcome["seconds"] for outcome in outcomes]
    seconds = statistics.median(every)
    entries = n * sizes.n_points
    return {
        "n_rows": n,
        "n_entries": entries,
        "median_seconds": float(f"{seconds:.4g}"),
        "lowest_seconds": float(f"{min(every):.4g}"),
        "ns_per_entry": float(f"{seconds / entries * 1e9:.4g}"),
        "peak_memory_mb": round(max(outcome["peak_bytes"] for outcome in outcomes) / 1e6, 1),
        "n_repeats": len(outcomes),
    }


def line_of(record: dict[str, Any]) -> str:
    """Return the record as one line."""
    return (
        f"{record['n_entries']:.1e} entries: {record['median_seconds']:.3g} s, {record['ns_per_entry']:.3g} ns per "
        f"entry, peak memory {record['peak_memory_mb']:.0f} MB"
    )


def child(n: int, p: int, d: int, block_rows: int, least_seconds: float) -> dict[str, float]:
    """Return the median seconds of the whole product, without generating its rows, and the peak memory in bytes.

    Small products are repeated until they have taken `least_seconds` in all, after one block to warm up.
    """
    kernel = Gaussian(math.sqrt(d))
    rng = np.random.default_rng(0)
    points = kernel.points(rng.standard_normal((p, d), np.float32))
    A = rng.standard_normal((p, 1), np.float32)
    seconds: list[float] = []
    with compute_threads(cpu_count()):
        kernel.matvec(rng.standard_normal((min(n, block_rows), d), np.float32), points, A)
        while not seconds or sum(seconds) < least_seconds:
            spent = 0.0
            for start in range(0, n, block_rows):
                X = rng.standard_normal((min(block_rows, n - start), d), np.float32)
                begun = time.perf_counter()
                kernel.matvec(X, points, A)
                spent += time.perf_counter() - begun
            seconds.append(spent)
    return {"seconds": statistics.median(seconds), "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Return this process's largest resident size as recorded by Linux; ``getrusage`` inherits the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(json.dumps(child(*(int(word) for word in sys.argv[1:5]), float(sys.argv[5]))))
