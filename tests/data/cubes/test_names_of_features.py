"""Features of a Dataset are found again by their names, whatever labels and calendars it has; no two have one name."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from daskkern import AllRows, KernelRegressor
from daskkern.data.cubes.cube_features import chosen_features, named_features
from daskkern.errors import DataError


def exact() -> KernelRegressor:
    """A regressor that reproduces smooth targets, so that a feature of another column shows."""
    return KernelRegressor("gaussian:1.5", basis=AllRows(), solver="direct", alpha=1e-6, scale=None, dtype="float64")


def table(labels: Any, dim: str = "level") -> xr.Dataset:
    """Two columns along a dim with these labels, and a target that tells them apart."""
    a = np.random.default_rng(0).normal(size=(200, 2))
    ds = xr.Dataset({"a": (("n", dim), a)}, coords={dim: labels})
    return ds.assign(t=("n", np.sin(a[:, 0]) + a[:, 1]))


def test_equal_labels_are_refused_in_a_fit_and_in_a_prediction() -> None:
    with pytest.raises(DataError, match=r"2 features of the Dataset would have the name 'a\[level=500\]'; rename"):
        exact().fit(table([500, 500]), target="t")
    model = exact().fit(table([500, 850]), target="t")
    with pytest.raises(DataError, match="has the label 500 at 2 positions, so which of them is a feature is unknown"):
        model.predict(table([500, 500]))


def test_a_variable_with_the_name_of_a_feature_is_refused() -> None:
    ds = xr.Dataset({"sin(lon)": ("lon", np.arange(90.0))}, coords={"lon": np.arange(0, 360, 4.0)})
    with pytest.raises(DataError, match=r"2 features of the Dataset would have the name 'sin\(lon\)'"):
        chosen_features(ds, ("lon",), (), ("lon",), ())


@pytest.mark.parametrize("labels", [["a,b", "a,level=c"], ["a[1]", "]"], ["=", ","], [(1, 2), (3, 4)]])
def test_labels_may_contain_what_names_consist_of(labels: Any) -> None:
    ds = table(np.arange(2))
    if isinstance(labels[0], tuple):
        a = ds.a.rename(level="m").expand_dims(lag=[0]).stack(level=("m", "lag"))
        ds = xr.Dataset({"a": a, "t": ds.t})
    else:
        ds = ds.assign_coords(level=labels)
    model = exact().fit(ds, target="t")
    assert model.score(ds) > 0.99
    assert model.score(ds.isel(level=[1, 0])) == pytest.approx(model.score(ds))


def test_places_along_several_dims_are_found_in_any_order_of_the_dims() -> None:
    a = xr.DataArray(np.arange(24.0).reshape(2, 3, 4), dims=("level", "n", "lag"), coords={"lag": list("a,=]")})
    ds = xr.Dataset({"a[x]": a})
    chosen = chosen_features(ds, ("n",), (), (), ())
    names = [feature.name for feature in chosen]
    assert names[1] == "a[x][level=0,lag=,]"
    assert named_features(names, ds) == chosen
    turned = named_features(names, ds.transpose("lag", "n", "level"))
    assert [dict(feature.at) for feature in turned] == [dict(feature.at) for feature in chosen]


DAYS = np.array(["2001-01-01", "2001-02-01"], "M8[D]")


@pytest.mark.parametrize(
    ("fitted", "others", "old"),
    [
        (DAYS.astype("M8[ns]"), [DAYS.astype("M8[s]")], ["978307200000000000", "2001-01-01 00:00:00"]),
        (np.array([6, 30], "m8[h]"), [np.array([6, 30], "m8[h]").astype("m8[ns]")], ["21600000000000", "6:00:00"]),
        (np.array([0.1, 1e6]), [np.array([0.1, 1e6], "f4")], ["0.1"]),
        (np.array([0.1, 1e6], "f4"), [np.array([0.1, 1e6])], []),
        (np.array([1e6, 5.0]), [np.array([1_000_000, 5])], ["1e+06"]),
        (np.array([1_000_000, 5]), [np.array([1e6, 5.0])], ["1000000"]),
    ],
)
def test_equal_labels_of_other_dtypes_and_those_of_older_models_are_found(
    fitted: Any, others: list[Any], old: list[str]
) -> None:
    ds = table(fitted)
    chosen = chosen_features(ds, ("n",), ("t",), (), ())
    for labels in (fitted, *others):
        assert named_features([feature.name for feature in chosen], table(labels)) == chosen
        for label in old:
            (found,) = named_features([f"a[level={label}]"], table(labels))
            assert found.at == (("level", 0),)


@pytest.mark.parametrize(("calendar", "days"), [("noleap", 365), ("360_day", 360)])
def test_dates_of_other_calendars_are_features(calendar: str, days: int) -> None:
    pytest.importorskip("cftime", reason="pip install cftime, which has calendars without leap years")
    time = xr.date_range("2001-01-01", periods=2 * days + 1, freq="1D", calendar=calendar, use_cftime=True)
    ds = xr.Dataset({"t": ("time", np.arange(2 * days + 1.0))}, coords={"time": time})
    sine, cosine = chosen_features(ds, ("time",), ("t",), ("time",), ())
    assert (sine.name, cosine.name) == ("sin(dayofyear(time))", "cos(dayofyear(time))")
    turn = np.arange(2 * days + 1) / days
    np.testing.assert_allclose(sine.of(ds.time), np.sin(2 * np.pi * turn), atol=1e-9)
    np.testing.assert_allclose(cosine.of(ds.time), np.cos(2 * np.pi * turn), atol=1e-9)
