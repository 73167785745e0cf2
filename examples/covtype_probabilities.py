"""Class probabilities: the softmax loss on forest cover types, and the calibration of its probabilities.

``--data`` names an npz with ``X_train``, ``y_train``, ``X_test`` and ``y_test``. Without it rows are generated: seven
classes in 20 features, unrelated to forests. The file becomes two stores; the fit streams the rows.

Measured on 2 shared cores, 2026-11-22, with covtype (464,809 rows of 54 features to train on, 116,203 to test on) and
``--data covtype.npz --scale minmax --landmarks 4000 --epochs 5``: accuracy 84.10%, log loss 0.374. Of the 38,164 test
rows whose largest probability is between 0.9 and 0.99, with a mean of 0.954, a share of 0.959 is predicted correctly.

Run it with ``python examples/covtype_probabilities.py``.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

from daskkern import KernelClassifier, Landmarks, ingest
from daskkern.arrays import FloatArray, IntArray
from daskkern.data.storage.store import open_store, read_array


def generate(path: Path, rows: int) -> None:
    """Write generated rows, a fifth of them for testing."""
    X, y = make_classification(rows, 20, n_informative=8, n_classes=7, flip_y=0.05, random_state=0)
    cut = rows - rows // 5
    np.savez(path, X_train=X[:cut], y_train=y[:cut], X_test=X[cut:], y_test=y[cut:], task="classification")


def calibration(probability: FloatArray, codes: IntArray) -> list[str]:
    """Return a line for each bin of the largest probability: number of rows, mean probability, share correct."""
    confidence, correct = probability.max(axis=1), probability.argmax(axis=1) == codes
    lines = []
    for low, high in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 0.99), (0.99, 1.01)):
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            mean, share = confidence[inside].mean(), correct[inside].mean()
            lines.append(
                f"{low:5.2f} to {min(high, 1):4.2f} {inside.sum():8,} rows   mean {mean:.3f}   correct {share:.3f}"
            )
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="npz (default: generated rows)")
    parser.add_argument("--rows", type=int, default=10_000, help="rows to generate (default: 10,000)")
    parser.add_argument("--scale", default="standard", help="scaling of the features (default: standard)")
    parser.add_argument("--kernel", default="laplacian:median", help="default: laplacian:median")
    parser.add_argument("--landmarks", type=int, default=2000, help="columns of the model (default: 2,000)")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the rows (default: 5)")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data = options.data or folder / "generated.npz"
        if options.data is None:
            generate(data, options.rows)
        report = ingest(
            data, folder / "train.zarr", out_test=folder / "test.zarr", scale=options.scale, task="classification"
        )
        print(f"{report.n_rows:,} rows x {report.n_features} features, {report.n_test_rows:,} to test on")
        model = KernelClassifier(
            options.kernel, loss="multinomial_logistic", basis=Landmarks(options.landmarks), max_epochs=options.epochs
        )
        begun = time.perf_counter()
        model.fit(str(folder / "train.zarr"))
        print(f"fit: {model.n_iter_} epochs in {time.perf_counter() - begun:.0f} s")
        probability = model.predict_proba(str(folder / "test.zarr"))
        held = open_store(folder / "test.zarr")
        codes = read_array(held.group["y"], 0, held.info.n_rows)  # classes are stored as codes from 0
    of_truth = probability[np.arange(len(codes)), codes]
    print(f"accuracy: {np.mean(probability.argmax(axis=1) == codes):.2%} of {len(codes):,} test rows")
    print(f"log loss: {-np.log(np.maximum(of_truth, 1e-15)).mean():.4f}")
    print("the largest probability:", *calibration(probability, codes), sep="\n")


if __name__ == "__main__":
    main()
