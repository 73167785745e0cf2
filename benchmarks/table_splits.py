"""Tables for benchmarks/tables.py, cut into training and test rows: raw CSV files, and npz files of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from daskkern import ingest
from daskkern.data.storage.store import open_store

TEST = 0.25
GAPS = ("?", "")


@dataclass(frozen=True)
class Split:
    """Training and test rows of one table. A raw one has a store whose encoding both use."""

    name: str
    target: str
    task: str
    whole: Path | None
    train: pd.DataFrame
    test: pd.DataFrame
    seed: int

    @property
    def is_regression(self) -> bool:
        return self.task == "regression"

    def error(self, predicted: Any) -> float:
        """Return the error of predictions for the test rows."""
        found, wanted = np.asarray(predicted), self.test[self.target].to_numpy()
        if self.is_regression:
            return float(np.mean((found.reshape(len(wanted)) - wanted) ** 2) / np.var(wanted))
        return float(np.mean(found.astype(str) != wanted.astype(str)))


def splits(path: Path, target: str | None, seeds: Sequence[int], folder: Path, most: int | None) -> Iterator[Split]:
    """Yield the splits of the table at `path`, of at most `most` training rows; a raw table's encoding is decided once.

    An npz file holds X_train, y_train, X_test and y_test, which are pooled and split again for each seed,
    with the same number of test rows.
    """
    table, whole, task, test_share = _numbers(path) if path.suffix == ".npz" else _raw(path, target, folder)
    target = str(table.columns[-1])
    for seed in seeds:
        by = None if task == "regression" else table[target]
        train, test = train_test_split(table, test_size=test_share, stratify=by, random_state=seed)
        name = path.stem if most is None or most >= len(train) else f"{path.stem}-{most}"
        yield Split(name, target, task, whole, train[:most], test, seed)


def _raw(path: Path, target: str | None, folder: Path) -> tuple[pd.DataFrame, Path, str, float]:
    table = pd.read_csv(path, na_values=list(GAPS))
    if target is not None:
        table = table[[name for name in table if name != target] + [target]]
    whole = folder / f"{path.stem}.zarr"
    ingest(str(path), whole, target=str(table.columns[-1]), shuffle=False)
    return table, whole, str(open_store(whole).info.task), TEST


def _numbers(path: Path) -> tuple[pd.DataFrame, None, str, float]:
    with np.load(path) as file:
        X = np.concatenate([file["X_train"], file["X_test"]])
        y = np.concatenate([file["y_train"], file["y_test"]]).reshape(len(X))
        share = len(file["X_test"]) / len(X)
        task = "regression" if "task" in file.files and str(file["task"]) == "regression" else "classification"
    if y.dtype.kind == "f" and len(np.unique(y[:1000])) > 50:
        task = "regression"
    names = [f"x{k}" for k in range(X.shape[1])]
    return pd.DataFrame(X, columns=names).assign(target=y), None, task, share
