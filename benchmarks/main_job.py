"""Time the main job on a store: set-up, epochs, error, peak memory, with the machine's matrix product rate.

    python benchmarks/main_job.py train.zarr test.zarr --out results.json -- --kernel gaussian:5 --landmarks 10000

Everything after ``--`` goes to ``daskkern fit``. The rate is measured before and after, in this process with all cores,
because shared machines drift; compare times per unit of that rate. Runs are collected in one file.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from contest.data import tiny_data
from figures import Run, add, names_its_unit, today
from products.machine import describe_machine, sgemm_rate, versions

import daskkern


def watch(process: subprocess.Popen[str], peaks: dict[int, int]) -> None:
    """Record the largest resident size of every descendant of `process`, in bytes, until it ends."""
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
    parser.add_argument("train", nargs="?")
    parser.add_argument("test", nargs="?")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="200 generated rows, to check that it runs")
    words = sys.argv[1:] if argv is None else argv
    cut = words.index("--") if "--" in words else len(words)
    options, fit_words = parser.parse_args(words[:cut]), words[cut + 1 :]
    if options.test is None and not options.tiny:
        parser.error("name the stores: train and test")
    before = sgemm_rate(300 if options.tiny else 3000)
    with tempfile.TemporaryDirectory() as folder:
        if options.tiny:
            options.workers, options.train, options.test = 0, f"{folder}/train.zarr", f"{folder}/test.zarr"
            made = tiny_data(Path(folder) / "tiny.npz")
            daskkern.ingest([str(made)], options.train, out_test=options.test, task="classification")
            fit_words = ["--landmarks", "50", "--epochs", "2"]
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
    scores = json.loads(score.stdout)
    row = {
        "fit": " ".join(fit_words),
        "store": Path(options.train).name,
        "n_workers": options.workers,
        **{f"setup_{name}_seconds": seconds for name, seconds in stages.items()},
        "epoch_seconds": epochs,
        "wall_seconds": round(wall, 1),
        "peak_rss_of_processes_gb": sorted((round(peak / 1e9, 2) for peak in peaks.values()), reverse=True)[:4],
        "sgemm_gflops_before_after": [round(before), round(sgemm_rate(300 if options.tiny else 3000))],
        "n_rows_scored": scores["n_rows"],
        **{name: value for name, value in scores.items() if isinstance(value, float) and names_its_unit(name)},
    }
    print(json.dumps(row))
    run = Run("main_job", today(), describe_machine(), versions(), {"tiny": options.tiny}, {"fits": [row]})
    add(run, options.out, keep=True)


if __name__ == "__main__":
    main()
