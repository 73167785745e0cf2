"""A fit to rows of which each occurs several times is the fit to these rows, and knows as little of new ones."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

from daskkern import AutoKernelRegressor, KernelClassifier, KernelKMeans, KernelRegressor, Landmarks, ingest
from daskkern.arrays import HostArray
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError
from tests.support.cluster import local_cluster

N = 240


def _data(n: int = N, seed: int = 0) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.standard_normal(n)


def _model(**how: Any) -> KernelRegressor:
    return KernelRegressor("gaussian:3", device="cpu", random_state=0, **how)


@pytest.mark.parametrize(
    "how",
    [{}, {"basis": Landmarks(60), "max_epochs": 3}, {"early_stopping": True, "max_epochs": 5}, {"solver": "direct"}],
    ids=["default", "landmarks", "early stopping", "direct"],
)
def test_every_row_three_times_is_the_fit_to_each_once(how: dict[str, Any]) -> None:
    X, y = _data()
    once, thrice = _model(**how).fit(X, y), _model(**how).fit(np.tile(X, (3, 1)), np.tile(y, 3))
    assert thrice.alpha_ == once.alpha_
    np.testing.assert_array_equal(thrice.dual_coef_, once.dual_coef_)
    np.testing.assert_array_equal(thrice.landmark_indices_, once.landmark_indices_)
    new = _data(50, 1)[0]
    np.testing.assert_array_equal(thrice.predict_interval(new), once.predict_interval(new))
    data = thrice.model_.provenance["data"]
    assert (data["rows"], data["copies"]) == (3 * N, 2 * N)


def test_intervals_cover_new_rows() -> None:
    X, y = _data()
    rng = np.random.default_rng(1)
    numbers = rng.permutation(np.repeat(np.arange(N), rng.integers(1, 4, N)))
    model = _model().fit(X[numbers], y[numbers])
    new, targets = _data(2000, 2)
    low, high = model.predict_interval(new).T
    assert 0.84 < np.mean((low <= targets) & (targets <= high)) < 0.95
    np.testing.assert_array_equal(np.sort(model.landmark_indices_), np.sort(np.unique(numbers, return_index=True)[1]))


def test_rows_that_occur_more_often_count_more() -> None:
    X, y = _data()
    labels = np.where(y > 0, "yes", "no")
    times = np.where(np.arange(N) < 80, 4, 1)
    numbers = np.repeat(np.arange(N), times)
    how: dict[str, Any] = {"alpha": 1e-3, "solver": "falkon", "calibrate": False, "device": "cpu"}
    repeated = KernelClassifier("gaussian:3", **how).fit(X[numbers], labels[numbers])
    weighted = KernelClassifier("gaussian:3", **how).fit(X, labels, sample_weight=times)
    new = _data(100, 1)[0]
    np.testing.assert_allclose(repeated.decision_function(new), weighted.decision_function(new), atol=1e-5)


@pytest.mark.cluster
def test_stores_arrays_and_clusters_agree(tmp_path: Path) -> None:
    X, y = _data()
    X, y = X.astype(np.float32), y
    numbers = np.concatenate([np.arange(N), np.arange(60)])
    with StoreWriter(tmp_path / "s", n_features=5, task="regression", chunk_rows=64) as writer:
        writer.append(X[numbers], y[numbers, None])
    new = _data(50, 1)[0]
    how: dict[str, Any] = {"basis": Landmarks(60), "batch_size": 40, "max_epochs": 5, "alpha": 1e-3}
    arrays = _model(**how).fit(X[numbers], y[numbers])
    store = _model(**how).fit(tmp_path / "s")
    expected = arrays.predict(new)
    np.testing.assert_allclose(store.predict(new), expected, atol=0.1)  # its batches differ
    with local_cluster(2) as client:
        there = _model(client=client, **how).fit(X[numbers], y[numbers])
        from_store = _model(client=client, **how).fit(tmp_path / "s")
    np.testing.assert_allclose(there.predict(new), expected, atol=2e-3)
    np.testing.assert_allclose(from_store.predict(new), store.predict(new), atol=2e-3)
    np.testing.assert_array_equal(there.landmark_indices_, arrays.landmark_indices_)


def test_a_search_keeps_copies_on_one_side() -> None:
    X, y = _data()
    found = AutoKernelRegressor(max_seconds=6, device="cpu").fit(np.tile(X, (2, 1)), np.tile(y, 2))
    new, targets = _data(2000, 2)
    assert np.mean((found.predict(new) - targets) ** 2) < 0.2
    low, high = found.predict_interval(new).T
    assert 0.8 < np.mean((low <= targets) & (targets <= high)) < 0.97


def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = _data(60)
    table = np.column_stack([X, y])
    np.savetxt(tmp_path / "t.csv", np.tile(table, (2, 1)), delimiter=",", header="a,b,c,d,e,y", comments="")
    ingest(tmp_path / "t.csv", tmp_path / "t.zarr", target="y")
    KernelRegressor(verbose=1, device="cpu").fit(tmp_path / "t.zarr")
    said = "".join(capsys.readouterr())
    assert "60 rows, 1 output; 60 more are copies of these, which count as one row with a weight" in said


@pytest.mark.parametrize(
    "how",
    [{}, {"basis": Landmarks(60), "max_epochs": 3}, {"early_stopping": True, "max_epochs": 5}, {"solver": "falkon"}],
    ids=["default", "landmarks", "early stopping", "falkon"],
)
def test_rows_of_weight_zero_are_left_out(how: dict[str, Any], tmp_path: Path) -> None:
    X, y = _data()
    weight = np.where(np.arange(N) % 3 == 1, 0.0, 1 + np.arange(N) % 2)
    there = weight > 0
    expected = _model(**how).fit(X[there], y[there], weight[there])
    found = _model(**how).fit(X, y, weight)
    np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
    np.testing.assert_array_equal(found.landmark_indices_, np.flatnonzero(there)[expected.landmark_indices_])
    data = found.model_.provenance["data"]
    assert (data["rows"], data["weightless"], "copies" in data) == (N, N // 3, False)
    table = np.column_stack([X, y, weight])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,d,e,y,w", comments="", fmt="%.9g")
    ingest(tmp_path / "t.csv", tmp_path / "t.zarr", target="y", weight="w", shuffle=False)
    of_store = _model(**how).fit(tmp_path / "t.zarr")
    new = _data(50, 1)[0]
    np.testing.assert_allclose(of_store.predict(new), expected.predict(new), atol=2e-3)


def test_copies_and_rows_of_weight_zero(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = _data()
    weight = np.where(np.arange(N) % 3 == 1, 0.0, 1.0)
    twice = KernelRegressor("gaussian:3", device="cpu", verbose=1)
    twice.fit(np.tile(X, (2, 1)), np.tile(y, 2), np.tile(weight, 2))
    there = weight > 0
    np.testing.assert_array_equal(twice.dual_coef_, _model().fit(X[there], y[there], 2 * weight[there]).dual_coef_)
    said = "".join(capsys.readouterr())
    assert (
        f"{N:,} more are copies of these, which count as one row with a weight; {N // 3:,} of weight 0 are left out"
        in said
    )


def test_a_few_rows_of_weight_zero_stay() -> None:
    X, y = _data()
    weight = np.where(np.arange(N) < N // 30, 0.0, 1.0)
    assert "weightless" not in _model().fit(X, y, weight).model_.provenance["data"]


@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize("estimator", [KernelRegressor(random_state=0, learn_features=False), KernelKMeans(3)])
def test_rows_of_weight_zero_say_nothing_of_scaling_and_kernel(estimator: Any, share: float) -> None:
    X, y = _data()
    weight = np.where(np.random.default_rng(3).random(N) < share, 0.0, 1.0)
    weight[:60] = 0.0  # a whole chunk
    X[weight == 0] *= 1000
    lazy = clone(estimator).fit(da.from_array(X, chunks=(60, 5)), y, sample_weight=weight)
    counted = clone(estimator).fit(X[weight > 0], y[weight > 0])
    assert lazy.kernel_ == counted.kernel_
    np.testing.assert_allclose(lazy.model_.scaling.scale, counted.model_.scaling.scale, rtol=1e-9)
    np.testing.assert_allclose(lazy.model_.scaling.shift, counted.model_.scaling.shift, rtol=1e-9, atol=1e-12)
    if isinstance(estimator, KernelRegressor):
        assert lazy.alpha_ == pytest.approx(counted.alpha_, rel=0.01)
        np.testing.assert_allclose(lazy.predict(X[weight > 0]), counted.predict(X[weight > 0]), atol=0.01)


@pytest.mark.parametrize("unit", ["M8[ns]", "m8[s]"])
def test_dates_are_no_weights(unit: str) -> None:
    with pytest.raises(DataError, match="sample_weight holds dates or durations; expected a number for each row"):
        KernelRegressor().fit(np.eye(4), np.arange(4.0), np.arange(4).astype(unit))
