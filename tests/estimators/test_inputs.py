"""What can be fitted and predicted: arrays, dask arrays, stores by path and by group."""

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from sklearn.datasets import load_digits

import daskkern
from daskkern import KernelClassifier, KernelFeatures, KernelRegressor, Landmarks
from daskkern.errors import DaskkernError, DataError, SpecError
from daskkern.kernels import Gaussian


@pytest.fixture(scope="module")
def digits():
    X, y = (part[:1000] for part in load_digits(return_X_y=True))
    return (X / 16).astype("float32"), y


@pytest.fixture(scope="module")
def store(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    X, y = digits
    np.savez(folder / "digits.npz", X=X, y=y)
    daskkern.ingest([str(folder / "digits.npz")], folder / "digits.zarr", chunk_rows=256)
    return folder / "digits.zarr"


def _new(**changes):
    return KernelClassifier(**{"kernel": Gaussian(2.0), "basis": Landmarks(200), "max_epochs": 3, **changes})


@pytest.fixture(scope="module")
def of_arrays(digits):
    return _new().fit(*digits)


@pytest.fixture(scope="module")
def of_a_path(store):
    return _new().fit(str(store))


@pytest.mark.long
def test_arrays_dask_arrays_a_path_and_a_group_give_good_models_of_the_same_data(digits, store, of_arrays, of_a_path):
    X, y = digits
    lazy = da.from_array(X, chunks=(500, 30)), da.from_array(y, chunks=700)
    models = [of_arrays, _new().fit(*lazy), of_a_path, _new().fit(zarr.open_group(store, mode="r"))]
    for model in models:
        assert model.score(X, y) > 0.97
        assert model.classes_.tolist() == list(range(10))
    np.testing.assert_allclose(models[2].decision_function(X), models[3].decision_function(X), rtol=0, atol=1e-6)


def test_dask_in_gives_lazy_dask_out(digits):
    X, y = digits
    model = _new(loss="multinomial_logistic").fit(X, y)
    lazy = da.from_array(X, chunks=(500, 20))
    for method in ("predict", "decision_function", "predict_proba"):
        result = getattr(model, method)(lazy)
        assert isinstance(result, da.Array)
        expected = getattr(model, method)(X)
        assert result.shape == expected.shape
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result.compute(), expected, rtol=1e-5, atol=1e-6)
    assert model.score(lazy, da.from_array(y, chunks=300)) == pytest.approx(model.score(X, y))


def test_prediction_of_a_dask_array_computes_nothing_before_it_is_asked(digits, of_arrays):
    X, _ = digits
    requested = []

    def watch(block):
        requested.append(len(block))
        return block

    lazy = da.from_array(X, chunks=(600, 64)).map_blocks(watch, meta=X[:0])
    result = of_arrays.predict(lazy)
    assert requested == []
    result[:10].compute()
    assert len(requested) == 1


def test_a_store_is_predicted_and_scored_in_one_pass(digits, store, of_a_path):
    X, y = digits
    assert (of_a_path.predict(str(store)) == of_a_path.predict(X)).all()
    assert of_a_path.score(str(store)) == pytest.approx(of_a_path.score(X, y))


def test_lazy_regression_matches_arrays():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5))
    y = np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1)
    model = KernelRegressor(Gaussian(2.0), basis=Landmarks(200), max_epochs=20).fit(
        da.from_array(X, chunks=150), da.from_array(y, chunks=(200, 1))
    )
    assert model.predict(X).shape == (600, 2)
    assert model.score(X, y) > 0.9
    assert model.score(da.from_array(X, chunks=100), da.from_array(y, chunks=100)) == pytest.approx(model.score(X, y))


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (da.ones((10, 3)), None, "got no y"),
        (da.ones((10, 3)), da.ones(9), "9 rows, but X has 10"),
        (da.ones((10, 3)), da.ones(10), "at least 2 classes|class"),
        (da.ones((10, 3)), da.arange(10) / 3, "fractions"),
        (da.full((10, 3), np.nan), da.arange(10) % 2, "NaN"),
        ("nowhere.zarr", None, "nowhere.zarr"),
    ],
)
def test_unusable_data_is_one_sentence(X, y, words):
    with pytest.raises(DaskkernError, match=words):
        _new().fit(X, y)


@pytest.mark.parametrize("y", [["barolo", "grignolino", "barolo"], np.array([1.0, "barolo", 2.0], object)])
def test_a_regressor_names_the_estimator_for_classes(y):
    with pytest.raises(DaskkernError, match=r"got 'barolo' among the targets; .* KernelClassifier takes classes"):
        KernelRegressor().fit(np.arange(6.0).reshape(3, 2), y)


def test_a_store_does_not_take_targets_beside_its_own(digits, store):
    with pytest.raises(DaskkernError, match="brings its own targets"):
        _new().fit(str(store), digits[1])


def test_a_regressor_refuses_a_store_of_classes(store):
    with pytest.raises(DaskkernError, match="KernelClassifier"):
        KernelRegressor().fit(str(store))


def test_other_features_at_prediction_are_refused(digits, of_arrays):
    X, _ = digits
    with pytest.raises(ValueError, match="63 features"):
        of_arrays.predict(X[:, :63])
    with pytest.raises(DaskkernError, match="64 features"):
        of_arrays.predict(da.ones((5, 63)))


@pytest.mark.parametrize(
    ("estimator", "targets", "words"),
    [
        (KernelClassifier, np.array([None, "a"] * 6, dtype=object), "labels that have no order; remove missing ones"),
        (KernelRegressor, np.array(["a", "b"] * 6), "got y as a dask array of <U1; expected numbers"),
    ],
    ids=["labels", "numbers"],
)
def test_targets_of_dask_arrays_that_are_neither_labels_nor_numbers_are_refused(estimator, targets, words):
    with pytest.raises(DaskkernError, match=words):
        estimator().fit(da.ones((12, 2), chunks=6), da.from_array(targets, chunks=6))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("fit_intercept", "no", "got fit_intercept='no'; expected True or False"),
        ("early_stopping", "yes", "got early_stopping='yes'; expected True or False"),
        ("warm_start", None, "got warm_start=None; expected True or False"),
        ("callbacks", 3, "got callbacks that cannot be called"),
        ("callbacks", [3], "got callbacks that cannot be called"),
    ],
)
def test_what_is_no_flag_and_no_function_is_refused(name, value, words):
    with pytest.raises(DaskkernError, match=words):
        KernelRegressor(**{name: value}, device="cpu").fit(np.arange(20.0).reshape(-1, 1), np.arange(20.0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"monitor": "accuracy"}, "early stopping got monitor='accuracy'; expected one of"),
        ({"validation_fraction": 3}, "early stopping got fraction 3, .* expected a fraction between 0 and 1"),
        ({"tol": "small"}, "early stopping got tol='small'; expected a number"),
        ({"checkpoint": 3}, "got checkpoint=3; expected a path, a URL, or None"),
        ({"solver": "direct", "early_stopping": True}, "early_stopping=True with solver direct, which has no epochs"),
    ],
)
def test_parameters_without_a_meaning_are_refused_also_where_nothing_uses_them(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        KernelRegressor(device="cpu", **parameters).fit(np.eye(6), np.arange(6.0))


@pytest.mark.parametrize("kind", ["array", "list", "series", "durations"])
def test_dates_are_no_targets(kind: str) -> None:
    days = np.datetime64("2024-01-01") + np.arange(6).astype("m8[D]")
    y = {"array": days, "list": days.tolist(), "series": pd.Series(days), "durations": days - days[0]}[kind]
    with pytest.raises(DataError, match="y holds dates or durations; give numbers, such as days since the first one"):
        KernelRegressor(device="cpu").fit(np.eye(6), y)


def test_arrays_of_dates_are_refused_by_a_model_of_a_frame_of_dates() -> None:
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40), unit="D")
    frame = pd.DataFrame({"day": days, "u": np.arange(40.0)})
    model = KernelRegressor(device="cpu", max_epochs=2).fit(frame[["day"]], np.arange(40.0))
    with pytest.raises(DataError, match=r"got X of dtype datetime64\[.*\]; expected numbers, such as days"):
        model.predict(frame[["day"]].to_numpy())
    both = KernelRegressor(device="cpu", max_epochs=2).fit(frame, np.arange(40.0))
    with pytest.raises(DataError, match=r"X holds Timestamp\(.* in row 0, column 0; convert dates to numbers"):
        both.predict(frame.to_numpy())


@pytest.mark.parametrize("kind", [">f8", "longdouble"])
@pytest.mark.parametrize("lazy", [False, True])
def test_far_features_of_any_byte_order_and_width_are_scaled_in_float64(kind: str, lazy: bool) -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([1.7e9 + rng.uniform(0, 600, 200), rng.normal(size=200)])
    y = np.sin((X[:, 0] - 1.7e9) / 60)
    other = da.from_array(X.astype(kind), chunks=(50, 2)) if lazy else X.astype(kind)
    model = KernelRegressor(device="cpu").fit(X, y)
    np.testing.assert_allclose(np.asarray(model.predict(other)), model.predict(X), rtol=1e-6)
    np.testing.assert_allclose(
        KernelRegressor(device="cpu").fit(other, y).predict(X), model.predict(X), rtol=1e-3, atol=1e-3
    )


def test_a_limit_that_the_set_up_has_used_up_leaves_time_for_steps() -> None:
    X = np.random.default_rng(0).normal(size=(2000, 3))
    model = KernelRegressor(device="cpu", max_seconds=0.6, max_epochs=10_000).fit(X, X[:, 0])
    assert model.stop_reason_ == "max_seconds"
    assert np.ptp(model.predict(X)) > 0, "it is not the mean of the targets"


TEXTS = np.where(np.arange(60) % 3 > 0, "yes", "no")
NUMBERS = np.arange(60) % 7 + 0.5


@pytest.mark.parametrize(
    ("kind", "y"),
    [
        (KernelClassifier, pd.Series(TEXTS, dtype=object)),
        (KernelClassifier, TEXTS.astype(object)),
        (KernelClassifier, TEXTS[:, None]),
        (KernelClassifier, pd.DataFrame({"y": TEXTS})),
        (KernelClassifier, pd.Series(TEXTS).astype("category")),
        (KernelClassifier, TEXTS.tolist()),
        (KernelRegressor, NUMBERS.astype(object)),
        (KernelRegressor, NUMBERS[:, None]),
        (KernelRegressor, pd.Series(NUMBERS, dtype="Float64")),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_targets_beside_a_dask_array_are_those_beside_an_array(kind: type, y: Any) -> None:
    X = np.random.default_rng(0).standard_normal((60, 3))
    lazy = da.from_array(X, chunks=(25, 3))
    model = kind("gaussian:2", max_epochs=1, device="cpu")
    expected = model.fit(X, y, sample_weight=2.0).predict(X)
    found = model.fit(lazy, y, sample_weight=2.0).predict(X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(model.fit(lazy, y, sample_weight=np.full(60, 2, object)).predict(X), expected)


@pytest.mark.parametrize(
    ("y", "weight", "words"),
    [
        (TEXTS, None, "got 'no' among the targets; a regressor needs numbers"),
        (np.array([1.0, None] * 30), None, "y has no value in 30 of 60 rows"),
        (NUMBERS[:9].astype(object), None, "y has 9 rows, but X has 60"),
        (np.float64(3), None, "y has no rows, but X has 60"),
        (np.ones((60, 1, 1)), None, r"got y with shape \(60, 1, 1\); expected one target for each row"),
        (NUMBERS, np.ones((60, 1)), r"got sample_weight of float64 and shape \(60, 1\); expected a number for each"),
        (scipy.sparse.csr_array(NUMBERS[:, None]), None, "got targets as a sparse matrix of shape"),
        (NUMBERS, TEXTS, "got sample_weight of <U3 and shape"),
        (NUMBERS, da.ones((60, 1)), r"got sample_weight of float64 and shape \(60, 1\)"),
    ],
)
def test_targets_and_weights_beside_a_dask_array_that_are_none(y: Any, weight: Any, words: str) -> None:
    X = da.random.default_rng(0).standard_normal((60, 3), chunks=(25, 3))
    with pytest.raises(DataError, match=words):
        KernelRegressor(device="cpu").fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("known", [True, False])
def test_a_missing_value_in_a_chunk_is_named_by_its_row_of_the_array(known: bool) -> None:
    X = np.random.default_rng(0).standard_normal((60, 3))
    lazy = da.from_array(np.where(np.arange(180).reshape(60, 3) == 3 * 47 + 1, np.nan, X), chunks=(20, 3))
    lazy = lazy if known else lazy[lazy[:, 0] > -9]
    words = "X has NaN .* in row 47, column 1" if known else "a chunk of X has NaN .* in row 7, column 1"
    with pytest.raises(DataError, match=words):
        KernelRegressor("gaussian:2", max_epochs=1, device="cpu").fit(X, NUMBERS).predict(lazy).compute()
    with pytest.raises(DataError, match=words):
        KernelFeatures("gaussian:2", 8).fit(X).transform(lazy).compute()
