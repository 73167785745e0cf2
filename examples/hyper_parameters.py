"""Search hyper-parameters with scikit-learn, with dask-ml if it is installed, and with daskkern's own sweep.

The first two refit everything for each candidate and support any parameter. The sweep supports only length scale and
penalty of the squared loss, and reads the rows twice for a grid of any size, because it computes each distance once.

Run it with ``python examples/hyper_parameters.py``; it takes a few seconds.
"""

import argparse
import importlib.util
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import daskkern
from daskkern import KernelClassifier, Landmarks


def searched(name: str, search: Any, X: np.ndarray, y: np.ndarray) -> Any:
    """Run a search with scikit-learn's interface, print its result, and return it."""
    begun = time.perf_counter()
    search.fit(X, y)
    print(f"{name}: {search.best_params_}, accuracy of its folds {search.best_score_:.2%}, ", end="")
    print(f"{time.perf_counter() - begun:.1f} s")
    return search


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landmarks", type=int, default=300, help="columns of the models (default: 300)")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the rows (default: 5)")
    parser.add_argument("--candidates", type=int, default=3, help="length scales to try (default: 3)")
    options = parser.parse_args(argv)

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
    scales = [float(scale) for scale in np.round(np.geomspace(1, 4, options.candidates), 2)]
    model = KernelClassifier(basis=Landmarks(options.landmarks), max_epochs=options.epochs)
    pipeline = make_pipeline(MinMaxScaler(), model)
    grid = {"kernelclassifier__kernel": [f"gaussian:{scale}" for scale in scales]}
    search = searched("scikit-learn", GridSearchCV(pipeline, grid, cv=2), X_train, y_train)
    print(f"  accuracy on the test rows: {search.score(X_test, y_test):.2%}")

    if importlib.util.find_spec("dask_ml") is None:
        print("dask-ml: not installed (pip install dask-ml)")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from dask-ml's own imports
            from dask_ml.model_selection import GridSearchCV as DaskGridSearchCV

            searched("dask-ml", DaskGridSearchCV(pipeline, grid, cv=2, scheduler="sync"), X_train, y_train)

    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "train.npz", X=X_train / 16, y=y_train)
        daskkern.ingest(Path(folder) / "train.npz", Path(folder) / "train.zarr")
        found = daskkern.sweep(str(Path(folder) / "train.zarr"), length_scales=scales, landmarks=options.landmarks)
    best = found.points[0]
    print(f"daskkern.sweep: length scale {best.length_scale:g}, alpha {best.alpha:g}, ", end="")
    print(f"error on held-out rows {best.error:.2%}; {len(found.points)} models in {found.seconds:.1f} s")


if __name__ == "__main__":
    main()
