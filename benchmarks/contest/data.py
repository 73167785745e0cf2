"""Data of a contest: rows of an npz file, with the same scaling of features for all contenders."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Data:
    """Rows to fit and rows to test, float32, with class codes (int64) or numbers (float32) as targets."""

    name: str
    task: str
    X: Rows
    y: npt.NDArray[Any]
    X_test: Rows
    y_test: npt.NDArray[Any]

    @property
    def measure(self) -> str:
        """The measure of error: the share of wrong labels, or the mean absolute error."""
        return "share of wrong labels" if self.task == "classification" else "mean absolute error"

    def error(self, predicted: npt.NDArray[Any]) -> float:
        """Return the error of predictions for the test rows."""
        if self.task == "classification":
            return float(np.mean(np.asarray(predicted).ravel() != self.y_test))
        return float(np.abs(np.asarray(predicted, np.float64).ravel() - self.y_test).mean())


def load(path: Path, most_rows: int | None = None) -> Data:
    """Return the data of an npz file with X_train, y_train, X_test, y_test.

    Sparse rows, of `X_train_data`, `X_train_indices`, `X_train_indptr` and `X_train_shape`, are CSR matrices. They and
    features between 0 and 1 are unchanged; others are standardised by the mean and standard deviation of the training
    rows. Constant features become 0.
    """
    with np.load(path) as file:
        parts = {name: _part(file, name) for name in ("X_train", "y_train", "X_test", "y_test")}
        task = str(file["task"]) if "task" in file.files else "classification"
    X, y = parts["X_train"][:most_rows].astype(np.float32), parts["y_train"][:most_rows]
    X_test, y_test = parts["X_test"].astype(np.float32), parts["y_test"]
    if not sparse.issparse(X) and (X.min() < 0 or X.max() > 1):
        mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        deviation[deviation == 0] = np.inf
        X, X_test = (((rows - mean) / deviation).astype(np.float32) for rows in (X, X_test))
    if task == "regression":
        return Data(path.stem, task, X, y.astype(np.float32), X_test, y_test.astype(np.float32))
    classes = np.unique(np.concatenate([y, y_test]))
    codes, codes_test = (np.searchsorted(classes, labels).astype(np.int64) for labels in (y, y_test))
    return Data(path.stem, "classification", X, codes, X_test, codes_test)


def _part(file: Mapping[str, npt.NDArray[Any]], name: str) -> Any:
    """Return an array of an npz file, or the CSR matrix of its three parts."""
    if name in file:
        return file[name]
    parts = tuple(file[f"{name}_{each}"] for each in ("data", "indices", "indptr"))
    return sparse.csr_matrix(parts, shape=tuple(file[f"{name}_shape"]))


def median_distance(X: Rows, n: int = 1000) -> float:
    """Return the median distance between `n` rows drawn with seed 0: the length scale that all contenders share."""
    rows = X[np.random.default_rng(0).permutation(len(X))[:n]].astype(np.float64)
    norms = (rows**2).sum(axis=1)
    squared = np.maximum(norms[:, None] + norms - 2 * rows @ rows.T, 0)
    return float(np.sqrt(np.median(squared[np.triu_indices(len(rows), 1)])))


def tiny_data(path: Path, n: int = 200) -> Path:
    """Write `n` generated rows of two classes for training and half as many for testing to `path`; return it."""
    X = np.random.default_rng(0).standard_normal((n + n // 2, 4)).astype(np.float32)
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int64)
    np.savez(path, task="classification", X_train=X[:n], y_train=y[:n], X_test=X[n:], y_test=y[n:])
    return path
