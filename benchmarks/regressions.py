"""Three fixed sizes, timed in turns with np.matmul and compared with the last recorded figures.

    python benchmarks/regressions.py --check                                   # compare
    python benchmarks/regressions.py --out benchmarks/results-regressions.json # compare, and record

The compared quantity is the ratio of medians: seconds of the product, the epoch or the set-up relative to those of a
float32 np.matmul of 2,000 x 2,000, taken in turn with it. The ratio drifts less than the speed of the machine. A ratio
that has grown by more than a factor of `--allowed` (1.25) is a regression; `--check` then exits with 1. The reference
is the last run with the same processor and number of cores; without one, the last run of another machine is shown but
not judged.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Run, add, read, today
from products.machine import OthersLoad, describe_machine, versions

import daskkern
from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.basis import Landmarks
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

KEPT = Path(__file__).resolve().parent / "results-regressions.json"
SIZES = {"small": (4000, 500, 10), "middling": (16_000, 2000, 50), "wide": (8000, 2000, 784)}
"""Rows, landmarks, features."""
TINY = {"small": (200, 20, 5)}
_SPIN_SECONDS = 0.3
"""BLAS threads occupy their cores for a while after a product."""
Times = dict[str, float]


def matmul_seconds(n: int) -> float:
    """Return the seconds of one product of n x n matrices, float32."""
    a = np.random.default_rng(0).random((n, n), np.float32)
    begun = time.perf_counter()
    a @ a
    return time.perf_counter() - begun


def product(n: int, p: int, d: int) -> Callable[[], Times]:
    """Return the timed function of K(X, Z) A with 10 outputs."""
    rng = np.random.default_rng(0)
    X, A = rng.standard_normal((n, d)).astype(np.float32), rng.standard_normal((p, 10)).astype(np.float32)
    kernel = Gaussian(d**0.5)
    points = kernel.points(X[:p])

    def run() -> Times:
        with compute_threads(cpu_count()):
            begun = time.perf_counter()
            kernel.matvec(X, points, A)
            return {"kernel product": time.perf_counter() - begun}

    return run


def fitted(n: int, p: int, d: int, folder: Path) -> Callable[[], Times]:
    """Return the timed functions of the set-up and the epochs of EigenPro on a store."""
    X = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    np.savez(folder / "rows.npz", X=X, y=(np.sin(X[:, 0]) + X[:, 1] > 0).astype(np.int64))
    daskkern.ingest([str(folder / "rows.npz")], folder / "rows.zarr", task="classification")
    source = StoreSource.at(str(folder / "rows.zarr"))
    settings = FitSettings(
        Gaussian(d**0.5), SquaredHinge(), Landmarks(p), EigenPro(), max_epochs=3, device="cpu", keep_blocks="never"
    )

    def run() -> Times:
        begun = time.perf_counter()
        result = fit(source, settings)
        wall, epochs = time.perf_counter() - begun, [epoch.seconds for epoch in result.epochs]
        return {"EigenPro epoch": statistics.median(epochs), "set-up": wall - sum(epochs)}

    return run


def measured(name: str, size: tuple[int, int, int], turns: int, matmul: int) -> list[dict[str, Any]]:
    """Return a row for each timed part of one size: its name, its median, and the ratio to np.matmul."""
    with tempfile.TemporaryDirectory() as folder:
        ways = [product(*size), fitted(*size, Path(folder))]
        for way in ways:
            way()  # compiles, and reads the rows once
        taken: dict[str, list[float]] = {"np.matmul": []}
        load = OthersLoad()
        for _ in range(turns):
            for way in ways:
                taken["np.matmul"].append(min(matmul_seconds(matmul) for _ in range(3)))
                time.sleep(_SPIN_SECONDS)
                for what, seconds in way().items():
                    taken.setdefault(what, []).append(seconds)
    yardstick = statistics.median(taken.pop("np.matmul"))
    n, p, d = size
    return [
        {
            "what": f"{what}, {name}",
            "n_rows": n,
            "n_landmarks": p,
            "n_features": d,
            "median_seconds": round(statistics.median(seconds), 5),
            "matmul_seconds": round(yardstick, 5),
            "ratio_to_matmul": round(statistics.median(seconds) / yardstick, 3),
            "n_turns": turns,
            "others_load_cores": round(load.cores(), 2),
        }
        for what, seconds in taken.items()
    ]


def compared(run: Run, earlier: Run | None, allowed: float) -> list[tuple[str, str, bool]]:
    """Return for each timed part its name, a sentence, and whether it is a regression."""
    before = {} if earlier is None else {row["what"]: row["ratio_to_matmul"] for row in earlier.tables["times"]}
    alike = earlier is not None and _alike(run, earlier)
    found = []
    for row in run.tables["times"]:
        now, then = row["ratio_to_matmul"], before.get(row["what"])
        sentence = f"{now:.3g} x np.matmul ({1e3 * row['median_seconds']:.3g} ms)"
        if then is None:
            found.append((row["what"], f"{sentence}, not recorded before", False))
            continue
        sentence += f", was {then:.3g} x on {earlier.date if earlier else ''}: {now / then:.2f} times that"
        if not alike:
            sentence += ", on another machine"
        found.append((row["what"], sentence, alike and now > allowed * then))
    return found


def latest(run: Run, kept: Sequence[Run]) -> Run | None:
    """Return the last recorded run of the same sizes, preferably on the same machine."""
    same = [each for each in kept if each.settings.get("tiny") == run.settings.get("tiny")]
    here = [each for each in same if _alike(run, each)]
    return next(iter(reversed(here or same)), None)


def _alike(run: Run, kept: Run) -> bool:
    return all(run.machine.get(key) == kept.machine.get(key) for key in ("cpu", "n_cores"))


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--against", type=Path, default=KEPT, help="figures to compare with (default: the recorded ones)"
    )
    parser.add_argument("--allowed", type=float, default=1.25, help="largest allowed growth of a ratio")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="exit with 1 on a regression")
    parser.add_argument("--out", type=Path, help="JSON file; runs are added to it")
    parser.add_argument("--tiny", action="store_true", help="one tiny size, one turn, to check that it runs")
    options = parser.parse_args(argv)
    sizes, turns, matmul = (TINY, 1, 200) if options.tiny else (SIZES, options.turns, 2000)
    rows = [row for name, size in sizes.items() for row in measured(name, size, turns, matmul)]
    run = Run("regressions", today(), describe_machine(), versions(), {"tiny": options.tiny}, {"times": rows})
    kept = None
    with contextlib.suppress(FileNotFoundError):
        kept = latest(run, read(options.against))
    verdicts = compared(run, kept, options.allowed)
    for what, sentence, worse in verdicts:
        print(f"{'SLOWER' if worse else 'ok':7s} {what}: {sentence}")
    add(run, options.out, keep=True)
    if options.check and any(worse for _, _, worse in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
