"""Categories that only later rows have: refused where each has a feature, different from all others as codes."""

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from daskkern import KernelRegressor, ingest
from daskkern.cli.main import main
from daskkern.errors import DataError

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
    remedy = r"read from row 0 on have one, 2 in all\); .* train with X.astype\(\{'colour': 'category'\}\), where such"
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
            assert "(3 of the 60 rows read from row 0 on have one, 2 in all)" in captured.err
            assert "--categorical codes" in captured.err
    assert (tmp_path / "out.csv").exists() == (categorical == "codes")
