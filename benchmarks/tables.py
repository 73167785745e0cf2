"""Test errors of the defaults on raw tables, compared with the defaults of scikit-learn on the same rows.

    python benchmarks/tables.py FOLDER --out benchmarks/results-tables.json

A quarter of each table's rows is held out, stratified by class, once for each seed. The raw table is ingested,
including text and gaps; then the model is fitted and predicts the held-out CSV with its recorded encoding.
`by_hand` is the same model on features that scikit-learn encoded and standardised, without a scaling of its own. Errors
are shares of wrong labels, or for regression of the unexplained variance (1 - R2).
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from figures import Run, add, today
from products.machine import describe_machine, versions
from sklearn.base import is_classifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from daskkern import KernelClassifier, KernelRegressor, ingest
from daskkern.data.storage.store import open_store
from daskkern.evaluation.raw_tables import rows_of

TEST = 0.25
_ROUNDING = 1e-9
RAW, HAND = "daskkern", "by_hand"
PEERS = ("svc", "gradient_boosting", "random_forest")
GAPS = ("?", "")


@dataclass(frozen=True)
class Split:
    """Training and test rows of one table, with the store whose encoding both use."""

    name: str
    target: str
    task: str
    whole: Path
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
            return float(np.mean((found - wanted) ** 2) / np.var(wanted))
        return float(np.mean(found.astype(str) != wanted.astype(str)))


def splits(path: Path, target: str | None, seeds: Sequence[int], folder: Path) -> Iterator[Split]:
    """Yield the splits of the table at `path`, whose encoding is decided once."""
    table = pd.read_csv(path, na_values=list(GAPS))
    target = str(table.columns[-1]) if target is None else target
    whole = folder / f"{path.stem}.zarr"
    ingest(str(path), whole, target=target, shuffle=False)
    task = str(open_store(whole).info.task)
    for seed in seeds:
        by = None if task == "regression" else table[target]
        train, test = train_test_split(table, test_size=TEST, stratify=by, random_state=seed)
        yield Split(path.stem, target, task, whole, train, test, seed)


def from_csv(split: Split, folder: Path) -> float:
    """Return the error of the defaults from the raw table: ingest, fit, predict."""
    train, test, store = folder / "train.csv", folder / "test.csv", folder / "train.zarr"
    split.train.to_csv(train, index=False)
    split.test.to_csv(test, index=False)
    ingest(str(train), store, like=split.whole, overwrite=True)
    model = (KernelRegressor() if split.is_regression else KernelClassifier()).fit(str(store))
    with rows_of(model.model_, str(test), str(folder / "rows"), targets=False) as rows:
        return split.error(model.predict(rows.path))


def by_hand(split: Split, folder: Path) -> float:
    """Return the error of the defaults on features that scikit-learn encoded and standardised."""
    ours = KernelRegressor(scale=None) if split.is_regression else KernelClassifier(scale=None)
    return _fitted(split, ours, standardised=True)


def _peer(name: str, split: Split) -> float:
    regression, seed = split.is_regression, split.seed
    model = {
        "svc": lambda: SVR() if regression else SVC(),
        "gradient_boosting": lambda: (HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier)(
            random_state=seed
        ),
        "random_forest": lambda: (RandomForestRegressor if regression else RandomForestClassifier)(random_state=seed),
    }[name]()
    return _fitted(split, model, standardised=name == "svc")


def _fitted(split: Split, model: Any, *, standardised: bool) -> float:
    """Return the error of `model` on encoded text and filled gaps, standardised where the model needs it."""
    train, test = (rows.drop(columns=split.target) for rows in (split.train, split.test))
    words = [name for name in train if not pd.api.types.is_numeric_dtype(train[name])]
    numbers = [name for name in train if name not in words]
    usual = make_column_transformer(
        (SimpleImputer(), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )
    steps = (usual, StandardScaler(), model) if standardised else (usual, model)
    fitted = make_pipeline(*steps).fit(train, _labels(split, model))
    return split.error(fitted.predict(test))


def _labels(split: Split, model: Any) -> Any:
    y = split.train[split.target].to_numpy()
    return y.astype(str) if is_classifier(model) else y


CONTENDERS: dict[str, Callable[[Split, Path], float]] = {
    RAW: from_csv,
    HAND: by_hand,
    **{name: lambda split, folder, name=name: _peer(name, split) for name in PEERS},
}


def measured(split: Split, names: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return the errors and seconds of the contenders on one split."""
    row: dict[str, Any] = {"data": split.name, "n_rows": len(split.train) + len(split.test), "seed": split.seed}
    for name in names:
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            row[f"{name}_error"] = CONTENDERS[name](split, folder)
        row[f"{name}_seconds"] = round(time.perf_counter() - begun, 2)
    return row


def summary(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the mean error over the seeds of each table, and of all tables in the last row."""
    tables = dict.fromkeys(row["data"] for row in rows)
    found = [
        {
            "data": data,
            **{f"{name}_error": mean(r[f"{name}_error"] for r in rows if r["data"] == data) for name in names},
        }
        for data in tables
    ]
    whole = {"data": "mean", **{f"{name}_error": mean(row[f"{name}_error"] for row in found) for name in names}}
    return [*found, whole]


def shown(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return the means as a table in percent, with a star where the raw table is worse than the best peer."""
    peers = [f"{name}_error" for name in names if name in PEERS]
    lines = [f"{'':12s}" + "".join(f"{name:>20s}" for name in names)]
    for row in rows:
        above = (
            f"{RAW}_error" in row and bool(peers) and row[f"{RAW}_error"] > min(row[name] for name in peers) + _ROUNDING
        )
        lines.append(f"{row['data']:12s}" + "".join(f"{row[f'{n}_error']:20.2%}" for n in names) + " *" * above)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path, help="CSV files, or folders of them")
    parser.add_argument("--target", help="target column (default: the last one)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="80 generated rows and one seed, to check that it runs")
    options = parser.parse_args()
    if not options.data and not options.tiny:
        parser.error("name CSV files, or folders of them")
    seeds, results = options.seeds[: 1 if options.tiny else None], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = [_tiny(folder)] if options.tiny else _files(options.data)
        for path in files:
            for split in splits(path, options.target, seeds, folder):
                results.append(measured(split, options.contenders, folder))
                print(results[-1], flush=True)
    means = summary(results, options.contenders)
    print(shown(means, options.contenders))
    settings = {"tiny": options.tiny, "seed": seeds, "test_share": TEST, "contenders": options.contenders}
    tables = {"means": means, "splits": results}
    add(Run("tables", today(), describe_machine(), versions(), settings, tables), options.out)


def _files(given: Sequence[Path]) -> list[Path]:
    return [path for one in given for path in (sorted(one.glob("*.csv")) if one.is_dir() else [one])]


def _tiny(folder: Path) -> Path:
    """Write a table of 80 rows with text and gaps; return its path."""
    rng = np.random.default_rng(0)
    x, word = rng.standard_normal(80), rng.choice(["a", "b", "c"], 80)
    y = (x + (word == "a") > 0.5).astype(int)
    x[::9] = np.nan
    path = folder / "made.csv"
    pd.DataFrame({"x": x, "word": word, "y": y}).to_csv(path, index=False)
    return path


if __name__ == "__main__":
    main()
