"""The models that benchmarks/tables.py compares, all with their defaults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from contest.contenders import WithValidation
from sklearn.base import is_classifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR
from table_splits import Split

from daskkern import AutoKernelClassifier, AutoKernelRegressor, KernelClassifier, KernelRegressor, LocalRows, ingest
from daskkern.evaluation.raw_tables import rows_of

RAW, HAND = "daskkern", "by_hand"
PEERS = ("lightgbm", "xgboost", "gradient_boosting", "random_forest", "svc", "xrfm")
_STANDARDISED = ("svc", "xrfm")
_CORES = 2


def _ours(split: Split, folder: Path, **settings: Any) -> float:
    """Return the error of our estimator with `settings`."""
    return _of(split, folder, (KernelRegressor if split.is_regression else KernelClassifier)(**settings))


def _of(split: Split, folder: Path, model: Any) -> float:
    """Return the error of an estimator of ours: a raw table is ingested, and predicted as CSV; numbers are arrays."""
    if split.whole is None:
        return _of_arrays(split, model)
    train, test, store = folder / "train.csv", folder / "test.csv", folder / "train.zarr"
    split.train.to_csv(train, index=False)
    split.test.to_csv(test, index=False)
    ingest(str(train), store, like=split.whole, overwrite=True)
    model.fit(str(store))
    fitted = getattr(model, "best_estimator_", model)
    with rows_of(fitted.model_, str(test), str(folder / "rows"), targets=False) as rows:
        return split.error(model.predict(rows.path))


def _of_arrays(split: Split, model: Any) -> float:
    X, T = (rows.drop(columns=split.target).to_numpy() for rows in (split.train, split.test))
    return split.error(model.fit(X, split.train[split.target].to_numpy()).predict(T))


def searched(split: Split, folder: Path) -> float:
    """Return the error of a search, with its usual time."""
    return _of(split, folder, (AutoKernelRegressor if split.is_regression else AutoKernelClassifier)())


def by_hand(split: Split, folder: Path) -> float:
    """Return the error of the defaults on features that scikit-learn encoded and standardised."""
    ours = KernelRegressor(scale=None) if split.is_regression else KernelClassifier(scale=None)
    return _fitted(split, ours, standardised=True)


def in_leaves(split: Split, folder: Path) -> float:
    """Return the error of models in the leaves of a tree, with learned features."""
    return _ours(split, folder, basis=LocalRows(), loss="squared", learn_features=True)


class Numbered:
    """A model that takes classes as numbers from 0 on."""

    def __init__(self, model: Any) -> None:
        self._model, self._labels = model, LabelEncoder()

    def fit(self, X: Any, y: Any) -> "Numbered":
        self._model.fit(np.asarray(X, np.float32), self._labels.fit_transform(y))
        return self

    def predict(self, X: Any) -> Any:
        found = np.asarray(self._model.predict(np.asarray(X, np.float32))).reshape(len(X))
        return self._labels.inverse_transform(found.astype(np.int64))


class Single:
    """A regressor of float32 rows."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def fit(self, X: Any, y: Any) -> "Single":
        self._model.fit(np.asarray(X, np.float32), np.asarray(y, np.float32))
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(self._model.predict(np.asarray(X, np.float32))).reshape(len(X))


def _lightgbm(split: Split) -> Any:
    import lightgbm

    kind = lightgbm.LGBMRegressor if split.is_regression else lightgbm.LGBMClassifier
    return kind(random_state=split.seed, n_jobs=_CORES, verbose=-1)


def _xgboost(split: Split) -> Any:
    import xgboost

    kind = xgboost.XGBRegressor if split.is_regression else xgboost.XGBClassifier
    model = kind(random_state=split.seed, n_jobs=_CORES)
    return model if split.is_regression else Numbered(model)


def _gradient_boosting(split: Split) -> Any:
    kind = HistGradientBoostingRegressor if split.is_regression else HistGradientBoostingClassifier
    return kind(random_state=split.seed)


def _random_forest(split: Split) -> Any:
    kind = RandomForestRegressor if split.is_regression else RandomForestClassifier
    return kind(random_state=split.seed, n_jobs=_CORES)


def _svc(split: Split) -> Any:
    return SVR() if split.is_regression else SVC()


def _xrfm(split: Split) -> Any:
    return Single(WithValidation()) if split.is_regression else Numbered(WithValidation())


_MODELS: dict[str, Callable[[Split], Any]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "gradient_boosting": _gradient_boosting,
    "random_forest": _random_forest,
    "svc": _svc,
    "xrfm": _xrfm,
}


def _peer(name: str, split: Split) -> float:
    return _fitted(split, _MODELS[name](split), standardised=name in _STANDARDISED)


def _fitted(split: Split, model: Any, *, standardised: bool) -> float:
    """Return the error of `model` on encoded text and filled gaps, standardised where the model needs it."""
    train, test = (rows.drop(columns=split.target) for rows in (split.train, split.test))
    words = [name for name in train if not pd.api.types.is_numeric_dtype(train[name])]
    numbers = [name for name in train if name not in words]
    usual = make_column_transformer(
        (SimpleImputer(), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )
    encoder = make_pipeline(usual, StandardScaler()) if standardised else usual
    X, T = encoder.fit_transform(train), encoder.transform(test)
    return split.error(model.fit(X, _labels(split, model)).predict(T))


def _labels(split: Split, model: Any) -> Any:
    y = split.train[split.target].to_numpy()
    named = not split.is_regression and (isinstance(model, Numbered) or is_classifier(model))
    return y.astype(str) if named else y


CONTENDERS: dict[str, Callable[[Split, Path], float]] = {
    RAW: _ours,
    "auto": searched,
    "learned": lambda split, folder: _ours(split, folder, learn_features=True),
    "in_leaves": in_leaves,
    HAND: by_hand,
    **{name: lambda split, folder, name=name: _peer(name, split) for name in PEERS},
}
