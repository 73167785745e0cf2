"""Rows whose columns, or the numbers of whose categories, are not those of the training rows are refused."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import daskkern
from daskkern import KernelRegressor
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.data.schema.same_columns import other_codes
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.score import score_store


def _store(folder: Path, name: str, words: str, like: Path | None = None) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.standard_normal(60), "grade": rng.permutation(list(words) * (60 // len(words)))})
    frame.assign(y=frame["size"]).to_csv(folder / f"{name}.csv", index=False)
    choice = {"like": like} if like else {"categorical": "ordinal"}
    daskkern.ingest([str(folder / f"{name}.csv")], folder / name, target="y", shuffle=False, **choice)
    return folder / name


def test_other_numbers_of_categories_are_refused(tmp_path: Path) -> None:
    train, other = _store(tmp_path, "train", "abc"), _store(tmp_path, "other", "bc")
    model = KernelRegressor("gaussian:2", max_epochs=2, device="cpu").fit(train)
    with pytest.raises(DataError, match="the categories of column 'grade' have other numbers in the store"):
        score_store(model.model_, open_store(other))
    with pytest.raises(DataError, match="the categories of column 'grade' have other numbers in the store"):
        model.predict(other)
    with pytest.raises(DataError, match="the categories of column 'grade' have other numbers in the validation rows"):
        model.fit(train, validation=other)
    alike = _store(tmp_path, "alike", "bc", like=train)
    assert model.fit(train, validation=alike).score(alike) > 0


def test_several_targets_in_another_order_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": np.arange(40.0)}).assign(y=lambda rows: rows["size"], z=1 - np.arange(40.0))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for name, targets in {"train": "y,z", "other": "z,y"}.items():
        daskkern.ingest(tmp_path / "rows.csv", tmp_path / name, target=targets.split(","), shuffle=False)
    train, other = tmp_path / "train", tmp_path / "other"
    model = KernelRegressor("gaussian:2", max_epochs=2, device="cpu", calibrate=False).fit(train)
    with pytest.raises(DataError, match=r"was trained on target 'y' where the store .*other has 'z'"):
        model.score(other)
    with pytest.raises(DataError, match="have target 'y' where the validation rows have 'z'"):
        model.fit(train, validation=other)
    assert model.predict(other).shape == (40, 2)


@pytest.mark.parametrize(
    ("theirs", "column"),
    [
        (None, None),
        ((), None),
        ((ColumnEncoding("k", "ordinal", ("a", "b")), ColumnEncoding("x", fill=2.0)), None),
        ((ColumnEncoding("k", "ordinal", ("b", "a")),), "k"),
        ((ColumnEncoding("k"), ColumnEncoding("x")), "k"),
        ((ColumnEncoding("x", "ordinal", ("1",)),), "x"),
    ],
)
def test_columns_are_compared_by_their_categories(theirs: tuple[ColumnEncoding, ...] | None, column: str) -> None:
    ours = (ColumnEncoding("x", fill=1.0), ColumnEncoding("k", "ordinal", ("a", "b")))
    assert other_codes(ours, theirs) == column
    assert other_codes(theirs, ours) == column


def test_tables_are_predicted_by_estimators_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": np.arange(40.0), "y": np.arange(40.0)})
    estimator = KernelRegressor("gaussian:2", max_epochs=2, device="cpu").fit(frame[["size"]], frame["y"])
    found = daskkern.predict_table(estimator, frame)
    assert found.equals(daskkern.predict_table(estimator.model_, frame))
    assert daskkern.write_predictions(estimator, frame, tmp_path / "p.csv").n_rows == 40
    for nothing in (KernelRegressor(), frame):
        with pytest.raises(SpecError, match="expected a fitted estimator, a KernelModel, or"):
            daskkern.predict_table(nothing, frame)
    cube = SimpleNamespace(data_vars={})
    with pytest.raises(DataError, match="got an xarray Dataset, to which an estimator applies its model"):
        daskkern.predict_table(estimator, cube)
