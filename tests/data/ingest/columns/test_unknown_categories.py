"""Categories that only later rows have: refused where each has a feature, different from all others as codes."""

from functools import partial
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import daskkern
from daskkern import KernelRegressor, ingest
from daskkern.cli.main import main
from daskkern.errors import DataError
from daskkern.evaluation.predict import predict_table
from daskkern.models import load_model

_COLOURS = np.array(["red", "green", "dark blue"])
_FOUND = (
    r"row 5 of .* has 'purple' in column 'colour', a category that the training data do not have \(3 of the 60 rows "
)


def _rows(first: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    codes = rng.integers(3, size=60)
    return pd.DataFrame({"a": rng.standard_normal(60), "colour": _COLOURS[codes], "y": codes + 0.5})


def _new() -> pd.DataFrame:
    frame = _rows(1)
    frame.loc[[5, 9], "colour"] = "purple"
    frame.loc[20, "colour"] = "pink"
    return frame


def _fitted(frame: pd.DataFrame) -> KernelRegressor:
    model = KernelRegressor("laplacian_l1:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    return model.fit(frame[["a", "colour"]], frame["y"])


def test_a_text_of_later_rows_is_refused_with_what_to_do() -> None:
    remedy = (
        r"read from row 0 on have one, 2 different\); .* train with X.astype\(\{'colour': 'category'\}\) and a kernel"
    )
    with pytest.raises(DataError, match=_FOUND + remedy):
        _fitted(_rows()).predict(_new()[["a", "colour"]])


def test_a_text_in_a_single_row_is_not_counted() -> None:
    rows = _new().iloc[18:25].reset_index(drop=True)
    with pytest.raises(DataError, match=r"row 2 of X .* has 'pink' .* do not have; remove"):
        _fitted(_rows()).predict(rows[["a", "colour"]])


def test_unknown_codes_differ_from_all_others() -> None:
    train, new = (frame.astype({"colour": "category"})[["a", "colour", "y"]] for frame in (_rows(), _new()))
    model = _fitted(train)
    found = model.predict(new[["a", "colour"]])
    assert np.isfinite(found).all()
    renamed = new.assign(colour=_new()["colour"].replace({"purple": "other", "pink": "other"}).astype("category"))
    np.testing.assert_array_equal(model.predict(renamed[["a", "colour"]]), found)
    lazy = model.predict(dd.from_pandas(new[["a", "colour"]], npartitions=1))
    np.testing.assert_array_equal(lazy.compute(), found)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("categorical", ["auto", "ordinal", "codes"])
def test_files_are_predicted_and_scored_by_the_same_rule(
    ending: str, categorical: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _rows().to_parquet(tmp_path / "rows.parquet")
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y", categorical=categorical)
    model = KernelRegressor("laplacian_l1:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(tmp_path / "rows.zarr").save(tmp_path / "model.zarr")
    new = str(tmp_path / f"new.{ending}")
    _new().to_csv(new, index=False) if ending == "csv" else _new().to_parquet(new)
    for command in (["predict", "--out", str(tmp_path / "out.csv")], ["score"]):
        with pytest.raises(SystemExit) as stop:
            main([command[0], str(tmp_path / "model.zarr"), new, *command[1:]])
        captured = capsys.readouterr()
        if categorical == "codes":
            assert stop.value.code == 0
            assert "column 'colour': 3 cells have a category that the training data lack" in captured.out + captured.err
        else:
            assert stop.value.code == 1
            assert "has 'purple' in column 'colour'" in captured.err
            assert "(3 of the 60 rows read from row 0 on have one, 2 different)" in captured.err
            assert "--categorical codes" in captured.err
    assert (tmp_path / "out.csv").exists() == (categorical == "codes")


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_unknown_categories_are_ignored_where_that_is_wanted(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _rows().to_parquet(tmp_path / "rows.parquet")
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y")
    model = KernelRegressor("laplacian_l1:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(tmp_path / "rows.zarr").save(tmp_path / "model.zarr")
    frame, new = _new(), tmp_path / f"new.{ending}"
    {"csv": frame.to_csv, "parquet": frame.to_parquet, "jsonl": partial(frame.to_json, orient="records", lines=True)}[
        ending
    ](new, **({"index": False} if ending == "csv" else {}))
    for command in (["predict", "--out", str(tmp_path / "out.csv")], ["score"]):
        with pytest.raises(SystemExit) as stop:
            main([command[0], str(tmp_path / "model.zarr"), str(new), *command[1:], "--unknown", "ignore"])
        assert stop.value.code == 0
        said = capsys.readouterr()
        assert "column 'colour': 3 cells have a category that the training data lack" in said.out + said.err
    features = np.column_stack([frame["a"], *(frame["colour"] == colour for colour in sorted(_COLOURS))])
    assert (features[:, 1:].sum(axis=1) == 0).sum() == 3
    expected = daskkern.load(tmp_path / "model.zarr").predict(features)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["prediction"], expected, rtol=1e-5)
    table = predict_table(load_model(tmp_path / "model.zarr"), frame, unknown="ignore")
    np.testing.assert_allclose(table["prediction"].to_numpy(), expected, rtol=1e-5)


def test_many_features_of_a_column_are_0_for_an_unknown_category(tmp_path: Path) -> None:
    names = [f"c{k:02d}" for k in range(40)]  # more than are compared one by one
    pd.DataFrame({"c": names * 2, "y": np.arange(80.0)}).to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", target="y")
    model = KernelRegressor("gaussian:1", solver="direct", alpha=1e-3, calibrate=False, device="cpu")
    model.fit(tmp_path / "rows.zarr").save(tmp_path / "model.zarr")
    found = predict_table(load_model(tmp_path / "model.zarr"), pd.DataFrame({"c": ["new", "c39"]}), unknown="ignore")
    expected = daskkern.load(tmp_path / "model.zarr").predict(np.eye(41)[[40, 39], :40])
    np.testing.assert_allclose(found["prediction"].to_numpy(), expected, rtol=1e-5)
