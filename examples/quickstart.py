"""Fit scikit-learn's digits in this process, predict lazily with dask, save the model and load it again.

Run it with ``python examples/quickstart.py``; it takes a few seconds.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import dask.array as da
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.kernels import Gaussian


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landmarks", type=int, default=500, help="columns of the model (default: 500)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the rows (default: 10)")
    parser.add_argument("--out", type=Path, help="folder for the model (default: a temporary one)")
    options = parser.parse_args(argv)

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.25, random_state=0)
    print(f"{len(X_train):,} rows to train on, {len(X_test):,} to test on, {X.shape[1]} features")

    model = KernelClassifier(Gaussian("median"), basis=Landmarks(options.landmarks), max_epochs=options.epochs)
    model.fit(X_train, y_train)
    print(f"fitted in {model.n_iter_} epochs: {model.dual_coef_.shape[0]} landmarks, {model.model_.kernel}")
    print(f"accuracy on the test rows: {model.score(X_test, y_test):.2%}")

    lazy = model.predict(da.from_array(X_test, chunks=(100, -1)))  # nothing is computed yet
    print(f"dask in, dask out: {lazy.numblocks[0]} blocks, computed now: {lazy.compute()[:10]}")

    with tempfile.TemporaryDirectory() as temporary:
        path = (options.out or Path(temporary)) / "digits-model.zarr"
        model.save(path)
        predictor = daskkern.load(path)  # needs NumPy and Zarr, no scikit-learn and no Dask
        same = np.array_equal(predictor.predict(X_test), model.predict(X_test))
        print(f"saved to {path}, loaded again: the same predictions: {same}")


if __name__ == "__main__":
    main()
