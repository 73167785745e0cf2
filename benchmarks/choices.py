"""Effect of the choice of kernel, landmarks or solver on the error on held-out rows.

Each choice is varied alone, from one starting point: Gaussian kernel with the median distance, 1,000 uniform landmarks,
and for kernels and landmarks the solver `falkon` (squared loss, alpha 1e-6), which converges, so that differences are
due to the choice and not to incomplete convergence. Seconds are of the whole fit in one process.

    python benchmarks/choices.py magic.npz adult.npz --out benchmarks/results-choices.json
"""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from contest.data import tiny_data
from figures import Run, add, today
from products.machine import describe_machine, versions

from daskkern import KernelClassifier, Landmarks, NystromFeatures, RandomFeatures, ingest
from daskkern.data.storage.store import open_store

KERNELS = ("gaussian", "laplacian", "cauchy", "matern32", "matern52", "rational_quadratic")
SIZES = (125, 250, 500, 1000, 2000, 4000)
SELECTORS = ("uniform", "stratified", "k_means", "rp_cholesky", "ridge_leverage", "incomplete_cholesky")
START = {"kernel": "gaussian:median", "loss": "squared", "solver": "falkon", "alpha": 1e-6, "max_epochs": 15}


def variants() -> Iterator[tuple[str, str, dict]]:
    """Yield question, answer and the parameters of the estimator."""
    for kernel in KERNELS:
        yield "kernel", f"{kernel}:median", {**START, "kernel": f"{kernel}:median", "basis": Landmarks(1000)}
    for factor in (0.25, 0.5, 1, 2, 4):
        yield "length scale", f"{factor:g} x median", {**START, "kernel": factor, "basis": Landmarks(1000)}
    for size in SIZES:
        yield "landmarks", f"{size:,} uniform", {**START, "basis": Landmarks(size)}
    for selector in SELECTORS:
        yield "selector", f"250, {selector}", {**START, "basis": Landmarks(250, selector)}
    kernel = {"kernel": "gaussian:median"}
    yield "columns", "1,000 landmarks", {**START, "basis": Landmarks(1000)}
    linear = {**kernel, "loss": "squared", "solver": "direct", "alpha": 1e-6}
    yield "columns", "1,000 Nystrom features", {**linear, "basis": NystromFeatures(1000)}
    yield "columns", "1,000 random features", {**linear, "basis": RandomFeatures(1000)}
    for solver, more in (
        ("eigenpro", {"loss": "squared"}),
        ("eigenpro", {"loss": "squared_hinge"}),
        ("eigenpro", {"loss": "logistic"}),
        ("nystrom_sgd", {"loss": "squared"}),
        ("falkon", {"loss": "squared", "alpha": 1e-6}),
        ("falkon", {"loss": "logistic", "alpha": 1e-6}),
        ("direct", {"loss": "squared", "alpha": 1e-6}),
    ):
        yield "solver", f"{solver}, {more['loss']}", {**kernel, "solver": solver, "basis": Landmarks(1000), **more}
    for solver in ("sgd", "sdca", "sag"):
        answer = f"{solver}, logistic, 1,000 random features"
        yield (
            "solver",
            answer,
            {**kernel, "solver": solver, "loss": "logistic", "alpha": 1e-6, "basis": RandomFeatures(1000)},
        )


def measured(parameters: dict, train: str, test: str, median: float) -> dict:
    """Fit and score once."""
    if isinstance(parameters["kernel"], int | float):
        parameters = {**parameters, "kernel": f"gaussian:{parameters['kernel'] * median}"}
    model = KernelClassifier(**parameters)
    begun = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - begun
    return {"error": 1 - model.score(test), "seconds": round(seconds, 2), "n_epochs": model.n_iter_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, help="npz with X_train, y_train, X_test, y_test")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="200 generated rows and two kernels, to check that it runs")
    options = parser.parse_args()
    if not options.data and not options.tiny:
        parser.error("name the npz files of the data")
    results = []
    for data in [Path("tiny.npz")] if options.tiny else options.data:
        with tempfile.TemporaryDirectory() as folder:
            if options.tiny:
                data = tiny_data(Path(folder) / data)
            train, test = f"{folder}/train.zarr", f"{folder}/test.zarr"
            ingest(data, train, out_test=test, scale="standard", task="classification", shuffle=True)
            median = KernelClassifier("gaussian:median", basis=Landmarks(100), max_epochs=1).fit(train).model_.kernel
            n_rows, n_features = open_store(train).info.n_rows, open_store(train).info.n_features
            for question, answer, parameters in itertools.islice(variants(), 2 if options.tiny else None):
                one = measured(parameters, train, test, median.length_scale)
                results.append(
                    {"data": data.stem, "n_rows": n_rows, "n_features": n_features, "question": question}
                    | {"answer": answer, "load_average": round(os.getloadavg()[0], 1), **one}
                )
                print(results[-1], flush=True)
    run = Run("choices", today(), describe_machine(), versions(), {"tiny": options.tiny}, {"results": results})
    add(run, options.out)


if __name__ == "__main__":
    main()
