"""Data frames of pandas, polars, Arrow and dask: encoded as the command line encodes tables, by a recorded rule."""

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import daskkern
from daskkern import AllRows, KernelClassifier, KernelFeatures, KernelKMeans, KernelPCA, KernelRegressor, Landmarks
from daskkern.data.ingest import ingest
from daskkern.data.schema.encoding import Encoding
from daskkern.errors import DataError
from daskkern.estimators import frame_codes

N = 120


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    towns = np.array(["Bonn", "Ulm", "Graz"])[np.arange(N) % 3]
    frame = pd.DataFrame({"x": rng.normal(size=N), "town": towns, "ok": np.arange(N) % 2 == 0, "age": np.arange(N) / 9})
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "town"] = None
    return frame


FRAME = _frame()
DATES = FRAME.assign(day=pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(N) % 9, unit="D"))
Y = np.where((FRAME["town"] == "Ulm") | (FRAME["x"] > 0.5), "a", "b")
X = np.column_stack([
    FRAME["x"], *(FRAME["town"].fillna("missing") == town for town in ("Bonn", "Graz", "Ulm", "missing")), FRAME["ok"],
    FRAME["age"].fillna(FRAME["age"].mean()), 20454.0 + np.arange(N) % 9,
])  # fmt: skip


def _classifier() -> KernelClassifier:
    return KernelClassifier("gaussian:2", "squared", AllRows(), solver="direct", alpha=1e-3, device="cpu")


def _alike(found: Encoding | None, expected: Encoding | None) -> None:
    """Means are summed in another order where rows come in parts."""
    assert found is not None
    assert expected is not None
    for one, other in zip(found, expected, strict=True):
        assert replace(one, fill=None) == replace(other, fill=None)
        assert one.fill == (other.fill if one.kind != "number" else pytest.approx(other.fill, rel=1e-6))


def test_a_fit_to_a_frame_is_that_to_its_features() -> None:
    model, by_hand = _classifier().fit(DATES, Y), _classifier().fit(X, Y)
    np.testing.assert_allclose(model.decision_function(DATES), by_hand.decision_function(X), rtol=0, atol=1e-4)
    assert model.feature_names_in_.tolist() == list(DATES)
    assert model.n_features_in_ == 5
    assert model.model_.feature_names is not None
    assert model.model_.feature_names[1:5] == ("town=Bonn", "town=Graz", "town=Ulm", "town=missing")
    assert model.score(DATES, Y) > 0.95


def test_frames_of_all_kinds_are_equal() -> None:
    model = _classifier().fit(DATES, Y)
    arrow = pa.Table.from_pandas(DATES, preserve_index=False)
    polars = pytest.importorskip("polars", reason="pip install polars to try its data frames")
    days = arrow["day"].cast(pa.timestamp("s")).cast(pa.date32())
    others = [arrow, polars.from_arrow(arrow), arrow.set_column(4, "day", days)]
    for other in others:
        np.testing.assert_array_equal(model.predict(other), model.predict(DATES))
        again = _classifier().fit(other, Y)
        assert again.model_.encoding == model.model_.encoding
        assert again.feature_names_in_.tolist() == list(DATES)
    plain = polars.DataFrame({"a": FRAME["x"].to_numpy(), "b": np.arange(N) / N})
    numbers = _classifier().fit(plain, Y)
    assert numbers.model_.encoding is None
    np.testing.assert_array_equal(numbers.predict(plain.to_arrow()), numbers.predict(plain.to_pandas()))


def test_the_encoding_is_that_of_the_command_line(tmp_path: Path) -> None:
    FRAME.assign(label=Y).to_parquet(tmp_path / "t.parquet", index=False)
    ingest(tmp_path / "t.parquet", tmp_path / "t.zarr", target="label", shuffle=False)
    stored, model = _classifier().fit(tmp_path / "t.zarr"), _classifier().fit(FRAME, Y)
    _alike(stored.model_.encoding, model.model_.encoding)
    np.testing.assert_array_equal(stored.predict(FRAME), model.predict(FRAME))
    model.save(tmp_path / "m")
    found = daskkern.predict_table(daskkern.load(tmp_path / "m"), str(tmp_path / "t.parquet"))
    assert found["prediction"].to_pylist() == model.predict(FRAME).tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"town": "Rome"}, "'Rome' in column 'town', a category that the training data do not have"),
        ({"x": "q"}, "column 'x' of X holds texts where the training rows had numbers"),
        ({"z": 1.0}, "X has a column 'z', which the training rows did not have; leave it out"),
    ],
)
def test_other_columns_are_refused_in_a_sentence(change: dict[str, object], words: str) -> None:
    model = _classifier().fit(FRAME, Y)
    with pytest.raises(DataError, match=words):
        model.predict(FRAME.assign(**change))
    with pytest.raises(DataError, match="X has no column 'age', which the model was trained with; add it"):
        model.predict(FRAME.drop(columns="age"))
    with pytest.raises(DataError, match="X has column 'town' where the training rows had 'x'; keep the order"):
        model.predict(FRAME[["town", "x", "ok", "age"]])


def test_columns_that_are_no_categories_are_refused_with_what_to_do_here() -> None:
    with pytest.raises(DataError, match=r"does not look like a category; drop it, or make it a column of categories"):
        _classifier().fit(FRAME.assign(name=[f"n{i}" for i in range(N)]), Y)
    model = _classifier().fit(DATES.dropna(), Y[DATES.notna().all(axis=1)])
    with pytest.raises(DataError, match="X has no value in row 2, column 'x', where no training row missed one"):
        model.predict(DATES.dropna().assign(x=[0.0, 1.0, np.nan] * (len(DATES.dropna()) // 3)))


def test_dates_alone_are_recorded() -> None:
    days = pd.DataFrame({"day": [datetime.date(2026, 1, 1 + i % 28) for i in range(N)], "x": FRAME["x"]})
    model = KernelRegressor("gaussian:2", device="cpu", max_epochs=2).fit(
        days, np.arange(N) % 28, validation=(days, FRAME["x"])
    )
    assert model.predict(days).shape == (N,)


def test_validation_frames_and_unsupervised_estimators_take_texts() -> None:
    fit = KernelClassifier("gaussian:2", basis=Landmarks(30), max_epochs=2, device="cpu", batch_size=64)
    fit.fit(FRAME, Y, validation=(FRAME[:50], Y[:50]))
    assert np.isfinite(fit.history_.rows[-1].validation_loss)
    components = KernelPCA(2, kernel="gaussian:2").set_output(transform="pandas").fit(FRAME)
    assert list(components.transform(FRAME)) == ["kernelpca0", "kernelpca1"]
    assert components.n_features_in_ == 4
    assert KernelKMeans(3, kernel="gaussian:2").fit(FRAME).predict(FRAME).shape == (N,)
    features = KernelFeatures("gaussian:2").set_output(transform="pandas").fit(FRAME)
    assert features.transform(FRAME).shape == (N, 1000)


def test_dask_dataframes_are_read_partition_by_partition() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="pip install 'dask[dataframe]' for dask dataframes")
    lazy = frames.from_pandas(DATES, npartitions=3)
    model = _classifier().fit(lazy, frames.from_pandas(pd.Series(Y), npartitions=3))
    assert model.model_.encoding is not None
    assert [c.kind for c in model.model_.encoding] == ["number", "onehot", "number", "number", "number"]
    found = model.predict(lazy)
    np.testing.assert_array_equal(found.compute(), _classifier().fit(DATES, Y).predict(DATES))


def test_texts_that_look_like_numbers_stay_texts() -> None:
    codes = np.array(["01067", "1067", "D-1"])[np.arange(N) % 3]
    frame = pd.DataFrame({"x": FRAME["x"], "zip": codes})
    plain, coded = _classifier().fit(frame, Y), frame.astype({"zip": "category"})
    few = frame[frame["zip"] != "D-1"]
    np.testing.assert_array_equal(plain.predict(few), plain.predict(frame)[few.index])
    digits = coded.assign(zip=pd.Series(np.array(["1", "2", "3"])[np.arange(N) % 3], dtype="category"))
    model = KernelRegressor("laplacian_l1:2", basis=AllRows(), solver="direct", device="cpu").fit(digits, np.arange(N))
    np.testing.assert_array_equal(model.predict(digits.astype({"zip": object})), model.predict(digits))
    assert [column.kind for column in frame_codes.frame_encoding(frame.iloc[:2]) or ()] == ["number", "onehot"]


def test_categories_of_dates_are_dates() -> None:
    days = DATES.assign(day=DATES["day"].astype("category"))
    np.testing.assert_array_equal(_classifier().fit(days, Y).predict(days), _classifier().fit(DATES, Y).predict(DATES))


def test_dask_dataframes_with_targets_are_treated_as_frames_in_memory() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="pip install 'dask[dataframe]' for dask dataframes")
    whole = FRAME.assign(town=FRAME["town"].fillna("none").astype("category")).rename(columns={"x": "target"})
    lazy, y = frames.from_pandas(whole, npartitions=3), pd.DataFrame({"target": FRAME["x"], "b": -FRAME["x"]})
    weight = pd.Series(1.0 + np.arange(N) % 2)
    settings = {"basis": AllRows(), "solver": "direct", "device": "cpu"}
    expected = KernelRegressor("laplacian_l1:2", **settings).fit(whole, y, weight)
    found = KernelRegressor("laplacian_l1:2", **settings).fit(
        lazy, frames.from_pandas(y, npartitions=3), frames.from_pandas(weight, npartitions=3)
    )
    _alike(found.model_.encoding, expected.model_.encoding)
    assert found.feature_names_in_.tolist() == list(whole)
    assert found.n_features_in_ == 4
    np.testing.assert_allclose(found.predict(lazy).compute(), expected.predict(whole), rtol=1e-4, atol=1e-4)
    one = KernelRegressor("laplacian_l1:2", **settings)
    one.fit(whole, y["b"], validation=(lazy, frames.from_pandas(y["b"], npartitions=3)))
    with pytest.raises(DataError, match="give y, or name its column with target="):
        one.fit(lazy)
    labels, steps = pd.Series(Y), KernelClassifier("laplacian_l1:2", basis=Landmarks(30), device="cpu", batch_size=64)
    for _ in range(2):
        steps.partial_fit(lazy, frames.from_pandas(labels, npartitions=3))
    assert steps.classes_.tolist() == ["a", "b"]


def test_frames_with_dates_reach_models_of_stores(tmp_path: Path) -> None:
    rows = DATES[["x", "day"]].assign(y=FRAME["x"])
    rows.to_parquet(tmp_path / "t.parquet", index=False)
    model = KernelRegressor("gaussian:2", basis=AllRows(), solver="direct", device="cpu")
    model.fit(tmp_path / "t.parquet", target="y")
    assert [column.is_date for column in model.model_.encoding] == [False, True]
    expected = daskkern.predict_table(model.model_, rows)["prediction"].to_numpy()
    for encoding in (model.model_.encoding, None):  # models of earlier versions record none
        model.model_ = replace(model.model_, encoding=encoding)
        for frame in (rows[["x", "day"]], rows[["day", "x"]], pa.Table.from_pandas(rows[["x", "day"]])):
            np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-6)


@pytest.mark.parametrize("nothing", [np.nan, None, pd.Series([pd.NaT] * 40), pd.Series([pd.NA] * 40, dtype="Int64")])
def test_a_column_without_any_value_changes_nothing(nothing: object) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.standard_normal((40, 2)), columns=["a", "b"])
    settings = {"basis": AllRows(), "solver": "direct", "alpha": 1e-4, "device": "cpu"}
    expected = KernelRegressor("laplacian:median", **settings).fit(frame, frame["a"]).predict(frame)
    found = KernelRegressor("laplacian:median", **settings).fit(frame.assign(e=nothing), frame["a"])
    np.testing.assert_allclose(found.predict(frame.assign(e=nothing)), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.predict(frame.assign(e=7.0)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gap", [False, True])
def test_texts_that_are_all_dates_are_dates(gap: bool) -> None:
    days = pd.Series(pd.date_range("2024-02-27", periods=N, freq="7h"))
    if gap:
        days[7] = pd.NaT
    typed = pd.DataFrame({"day": days, "x": np.random.default_rng(0).normal(size=N)})
    written = typed.assign(day=typed["day"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    y = np.arange(N) / N + typed["x"]
    models = [KernelRegressor(calibrate=False).fit(frame, y) for frame in (typed, written)]
    models += [KernelRegressor(calibrate=False).fit(pa.Table.from_pandas(written), y)]
    for model in models:
        assert model.model_.encoding == models[0].model_.encoding
        for frame in (typed, written):
            np.testing.assert_array_equal(model.predict(frame), models[0].predict(typed))
    other = written.assign(day=[*written["day"][:-1], "unknown"])
    with pytest.raises(DataError, match="column 'day' of X holds dates or times"):
        KernelRegressor().fit(other, y)
    few = written.assign(day=written["day"].astype("category"))
    assert KernelRegressor(max_epochs=1).fit(few, y).model_.encoding[0].kind == "code"


def test_lazy_frames_of_polars_are_refused_in_a_sentence() -> None:
    polars = pytest.importorskip("polars", reason="pip install polars to try its data frames")
    frame = FRAME[["x"]].assign(z=np.arange(N) / N)
    lazy = polars.DataFrame({name: frame[name].to_numpy() for name in frame}).lazy()
    for estimator in (_classifier(), KernelPCA(2), KernelFeatures("gaussian:1", 8)):
        with pytest.raises(DataError, match=r"got a LazyFrame of polars, .*; call its method collect\(\) first"):
            estimator.fit(lazy, Y)
        fitted = estimator.fit(frame, Y)
        with pytest.raises(DataError, match="got a LazyFrame of polars"):
            getattr(fitted, "transform", getattr(fitted, "predict", None))(lazy)
