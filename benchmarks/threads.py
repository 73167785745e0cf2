"""Speed of predictions with several threads relative to one, call by call, on arrays and on stores.

    python -m benchmarks threads --out benchmarks/results-threads.json

Each call is timed in pairs, once with one thread and once with all, in alternating order; figures are medians over
the pairs, and a ratio is the median of the pairs' ratios. Rows are generated, and the model has random coefficients:
the time depends on neither. Pairs in which others used the machine's cores are counted, not excluded.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import Run, add, today
from products.machine import OthersLoad, describe_machine, versions

import daskkern
from daskkern import KernelClassifier
from daskkern.backend.concurrency import compute_threads, cpu_count
from daskkern.data.storage.store import Store, open_store
from daskkern.evaluation.predict import write_predictions
from daskkern.evaluation.score import score_store
from daskkern.kernels import Gaussian
from daskkern.models import KernelModel, save_model

QUIET_CORES = 0.1


@dataclass(frozen=True)
class Call:
    """A call that computes the scores of rows, by its name: where the rows are, and how it is made with n threads."""

    name: str
    rows: str
    run: Callable[[int], Any]


@dataclass(frozen=True)
class Sizes:
    """Rows n, landmarks p, features d and outputs c."""

    n: int = 20_000
    p: int = 5_000
    d: int = 784
    c: int = 10


def made(sizes: Sizes, folder: Path) -> tuple[np.ndarray, np.ndarray, KernelModel]:
    """Return rows, labels and a loaded model of random coefficients."""
    rng = np.random.default_rng(0)
    X, Z = (rng.standard_normal((m, sizes.d), np.float32) for m in (sizes.n, sizes.p))
    coef = rng.standard_normal((sizes.p, sizes.c), np.float32)
    classes = tuple(range(sizes.c))
    kernel = Gaussian(sizes.d**0.5)
    save_model(KernelModel(kernel, Z, coef, "squared_hinge", "classification", classes), folder / "model.zarr")
    return X, rng.integers(sizes.c, size=sizes.n), daskkern.load(folder / "model.zarr")


def calls(X: np.ndarray, y: np.ndarray, model: KernelModel, folder: Path) -> list[Call]:
    """Return all calls; stores are written to `folder`."""
    np.savez(folder / "rows.npz", X=X, y=y)
    daskkern.ingest([str(folder / "rows.npz")], folder / "rows.zarr", shuffle=False)
    shutil.make_archive(str(folder / "rows"), "zip", folder / "rows.zarr")
    stores = {"folder": open_store(folder / "rows.zarr"), "zip": open_store(folder / "rows.zip")}
    points, estimator = model.kernel.points(model.points), fitted(model)
    found = [
        Call("Kernel.matvec", "array", lambda threads: model.kernel.matvec(X, points, model.coef, threads=threads)),
        Call("load(...).predict", "array", lambda threads: model.predict(X, threads=threads)),
        Call("KernelClassifier.predict", "array", lambda threads: within(threads, lambda: estimator.predict(X))),
        Call("KernelClassifier.score", "array", lambda threads: within(threads, lambda: estimator.score(X, y))),
    ]
    for kind, store in stores.items():
        found += on_store(kind, store, model, folder)
    return found


def on_store(kind: str, store: Store, model: KernelModel, folder: Path) -> list[Call]:
    """Return the calls on a store."""

    def written(threads: int | None) -> object:
        return write_predictions(model, store, folder / "predictions.zarr", overwrite=True, threads=threads)

    return [
        Call("score_store", kind, lambda threads: score_store(model, store, threads=threads)),
        Call("write_predictions", kind, written),
    ]


def fitted(model: KernelModel) -> KernelClassifier:
    """Return a classifier with this model, as a fit would leave it."""
    estimator = KernelClassifier()
    estimator.model_, estimator.classes_ = model, model.class_array()
    estimator.n_features_in_ = model.n_features
    return estimator


def within(threads: int, run: Callable[[], Any]) -> Any:
    """Return the result of a call that has no argument for its threads."""
    with compute_threads(threads):
        return run()


def timed(call: Call, threads: int) -> float:
    """Return the seconds of a call."""
    begun = time.perf_counter()
    call.run(threads)
    return time.perf_counter() - begun


def pairs(call: Call, threads: int, repeats: int) -> dict[str, Any]:
    """Return the figures of a call, over `repeats` pairs that follow an untimed call."""
    call.run(threads)
    found: dict[int, list[float]] = {1: [], threads: []}
    others = []
    for number in range(repeats):
        load = OthersLoad()
        for k in (1, threads) if number % 2 else (threads, 1):
            found[k].append(timed(call, k))
        others.append(load.cores())
    one, several = found[1], found[threads]
    ratios = [a / b for a, b in zip(one, several, strict=True)]
    return {
        "call": call.name,
        "rows": call.rows,
        "one_thread_seconds": round(statistics.median(one), 3),
        "all_threads_seconds": round(statistics.median(several), 3),
        "speed_ratio": round(statistics.median(ratios), 3),
        "least_ratio": round(min(ratios), 3),
        "largest_ratio": round(max(ratios), 3),
        "others_load_cores": round(statistics.median(others), 2),
        "n_quiet_pairs": sum(each <= QUIET_CORES for each in others),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="pairs for each call")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="500 rows and one pair, to check that it runs")
    options = parser.parse_args(argv)
    sizes = Sizes(500, 60, 20, 3) if options.tiny else Sizes()
    repeats, threads, rows = 1 if options.tiny else options.repeats, max(2, cpu_count()), []
    with tempfile.TemporaryDirectory(prefix="daskkern-threads-") as temporary:
        X, y, model = made(sizes, Path(temporary))
        for call in calls(X, y, model, Path(temporary)):
            rows.append(pairs(call, threads, repeats))
            print(rows[-1], flush=True)
    settings = {
        "n_rows": sizes.n, "n_landmarks": sizes.p, "n_features": sizes.d, "n_outputs": sizes.c,
        "n_threads": threads, "n_pairs": repeats, "tiny": options.tiny,
    }  # fmt: skip
    add(Run("threads", today(), describe_machine(), versions(), settings, {"calls": rows}), options.out)


if __name__ == "__main__":
    main()
