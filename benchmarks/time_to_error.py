"""Seconds and test error of fits on one machine: daskkern compared with scikit-learn, libsvm, xRFM and plain torch.

    python benchmarks/time_to_error.py magic.npz adult.npz --budget 60 --out benchmarks/results-time-to-error.json

Every contender runs alone, in a process of its own with all cores, and is ended at its time limit: then its row
says so and has no error. The Gaussian kernel, its length scale (the median distance) and the ridge penalty are the same
for all that have them; xRFM has its own defaults. Fit seconds are those of `fit`, compilation included; whole seconds
those of the process, from its start over imports, reading, fit and prediction to its end. The machine's matrix product
rate is measured before each row. Missing libraries are named and left out.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contest.contenders import CONTENDERS, Contender
from contest.data import load, tiny_data
from contest.race import ran
from figures import Run, read, today, write
from products.machine import describe_machine, sgemm_rate, versions

TINY = ("daskkern auto",)


def measured(
    data: Path, contenders: Sequence[Contender], landmarks: Sequence[int], budget_s: float, rate_size: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender and number of landmarks."""
    about = load(data)
    facts = {"n_rows": len(about.X), "n_features": about.X.shape[1], "measure": about.measure}
    del about
    for contender in contenders:
        for p in landmarks if contender.has_landmarks else landmarks[-1:]:
            rate = sgemm_rate(rate_size, 5)
            found = ran(data, contender.name, p, budget_s)
            row = {"data": data.stem, "contender": contender.name}
            row |= {"n_landmarks": p} if contender.has_landmarks else {}
            yield {**row, **facts, **found, "sgemm_gflops": round(rate)}


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    known = [each.name for each in CONTENDERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, help="npz with X_train, y_train, X_test, y_test")
    parser.add_argument("--landmarks", type=int, nargs="+", default=[500, 2000])
    parser.add_argument(
        "--budget", type=float, default=60.0, metavar="SECONDS", help="time limit of each contender's process"
    )
    parser.add_argument("--contenders", nargs="+", choices=known, default=known, metavar="NAME", help="some of them")
    parser.add_argument("--out", type=Path, help="JSON file; runs are added to it")
    parser.add_argument("--tiny", action="store_true", help="generated rows and one contender, to check that it runs")
    options = parser.parse_args(argv)
    if not options.data and not options.tiny:
        parser.error("name the npz files of the data")
    if options.tiny:
        options.landmarks, options.contenders = [20], TINY
    requested = [each for each in CONTENDERS if each.name in options.contenders]
    missing = [each.name for each in requested if not each.installed]
    for name in missing:
        print(f"{name} is not installed and left out")
    settings = {"budget_s": options.budget, "missing": missing, "tiny": options.tiny}
    machine, rows = describe_machine(), []
    before = read(options.out) if options.out is not None and options.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for data in [tiny_data(Path(folder) / "tiny.npz")] if options.tiny else options.data:
            there = [each for each in requested if each.installed]
            for row in measured(data, there, options.landmarks, options.budget, 300 if options.tiny else 2000):
                print(row, flush=True)
                rows.append(row)
                if options.out is not None:  # results so far survive later failures
                    run = Run("time_to_error", today(), machine, versions(), settings, {"contenders": rows})
                    write([*before, run], options.out)


if __name__ == "__main__":
    main()
