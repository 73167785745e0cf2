"""Time the main job on a store: set-up, epochs, error, peak memory, beside the machine's matrix product rate.

    python benchmarks/main_job.py train.zarr test.zarr --out results.json -- --kernel gaussian:5 --landmarks 10000

Everything after ``--`` goes to ``daskkern fit``. The rate is measured before and after, in this process with all cores,
because shared machines drift; times are to be compared per unit of that rate. Results are one JSON object.
"""

import argparse
import datetime
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil


def sgemm_rate(n: int = 3000, repeats: int = 7) -> float:
    """Return the median rate of a float32 matrix product of n x n matrices, in GFLOP/s."""
    a = np.random.default_rng(0).random((n, n), np.float32)
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - begun)
    return 2 * n**3 / statistics.median(seconds) / 1e9


def watch(process: subprocess.Popen[str], peaks: dict[int, int]) -> None:
    """Note the largest resident size of every descendant of `process`, in bytes, until it ends."""
    while process.poll() is None:
        try:
            children = psutil.Process(process.pid).children(recursive=True)
        except psutil.Error:
            return
        for child in children:
            try:
                peaks[child.pid] = max(peaks.get(child.pid, 0), child.memory_info().rss)
            except psutil.Error:
                continue
        time.sleep(0.2)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    words = sys.argv[1:] if argv is None else argv
    cut = words.index("--") if "--" in words else len(words)
    options, fit_words = parser.parse_args(words[:cut]), words[cut + 1 :]
    before = sgemm_rate()
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model.zarr")
        command = [sys.executable, "-m", "daskkern", "fit", options.train, "--workers", str(options.workers)]
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--out", model, *fit_words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        peaks: dict[int, int] = {}
        watcher = threading.Thread(target=watch, args=(process, peaks))
        watcher.start()
        output = process.communicate()[0]
        wall = time.perf_counter() - begun
        watcher.join()
        if process.returncode:
            sys.exit(output)
        score = subprocess.run(
            [sys.executable, "-m", "daskkern", "score", model, options.test, "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    epochs = [float(seconds) for seconds in re.findall(r"epoch +\d+/\d+ +([0-9.]+) s", output)]
    stages = {
        name: float(seconds)
        for name, seconds in re.findall(r"^  (targets|landmarks|spectrum|columns) +([0-9.]+) s", output, re.M)
    }
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB",
        "train": Path(options.train).name,
        "fit": fit_words,
        "workers": options.workers,
        "sgemm_gflops_before_after": [round(before), round(sgemm_rate())],
        "setup_seconds": stages,
        "epoch_seconds": epochs,
        "wall_seconds": round(wall, 1),
        "peak_rss_of_processes_gb": sorted((round(peak / 1e9, 2) for peak in peaks.values()), reverse=True)[:4],
        "score": json.loads(score.stdout),
    }
    print(json.dumps(result))
    if options.out is not None:
        history = json.loads(options.out.read_text()) if options.out.exists() else []
        options.out.write_text(json.dumps([*history, result], indent=1) + "\n")


if __name__ == "__main__":
    main()
