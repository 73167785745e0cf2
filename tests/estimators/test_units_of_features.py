"""Predictions do not depend on the units in which features come."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_diabetes

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import AllRows, BasisSpec, Landmarks, RandomFeatures
from daskkern.basis import Linear as LinearBasis
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DataError, SpecError

X, Y = load_breast_cancer(return_X_y=True)
TRAIN, TEST = slice(0, 400), slice(400, None)
FACTORS = 2.0 ** np.random.default_rng(0).integers(-20, 20, X.shape[1])
SMALL: dict[str, Any] = {"max_epochs": 2, "device": "cpu", "dtype": "float64"}


def _store(path: Path, rows: np.ndarray, codes: np.ndarray, scale: str = "none") -> Path:
    with StoreWriter(
        path, n_features=rows.shape[1], dtype=np.float64, task="classification", classes=(0, 1), scale=scale
    ) as writer:
        writer.append(rows, codes)
    return path


def _scores(rows: Any, **settings: Any) -> np.ndarray:
    model = KernelClassifier(**{"kernel": "laplacian:median", "basis": Landmarks(60), **SMALL, **settings})
    return model.fit(rows[TRAIN], Y[TRAIN]).decision_function(rows[TEST])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scale", ["auto", "standard", "robust", "minmax", "maxabs", "unit_variance", "ranks"])
def test_other_units_of_each_feature_give_the_same_predictions(scale: str) -> None:
    np.testing.assert_allclose(_scores(X * FACTORS, scale=scale), _scores(X, scale=scale), rtol=1e-6, atol=1e-8)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kernel", "basis"),
    [
        ("laplacian:median", AllRows()),
        ("polynomial:2", Landmarks(60)),
        ("gaussian:median+arc_cosine:1", Landmarks(60)),
        ("gaussian:median", RandomFeatures(64)),
        ("laplacian:median", LinearBasis()),
    ],
)
def test_so_they_do_with_every_kernel_that_has_no_number_in_those_units(kernel: str, basis: BasisSpec) -> None:
    other = X * FACTORS + 3 * X.std(axis=0) * FACTORS
    first = _scores(X, kernel=kernel, basis=basis)
    np.testing.assert_allclose(_scores(other, kernel=kernel, basis=basis), first, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_a_kernel_with_a_number_in_the_units_of_the_features_gets_them_as_they_are() -> None:
    for kernel in ("laplacian:50", "polynomial", "2*gaussian:300+linear"):
        settings: dict[str, Any] = {"kernel": daskkern.kernels.Polynomial(2, 1e-4)} if kernel == "polynomial" else {}
        settings = {"kernel": kernel, **settings}
        np.testing.assert_array_equal(_scores(X, **settings), _scores(X, scale=None, **settings))
    assert not np.allclose(_scores(X, kernel="gaussian:2", scale="standard"), _scores(X, kernel="gaussian:2"))


def test_every_way_of_predicting_applies_the_scaling(tmp_path: Path) -> None:
    model = KernelClassifier("laplacian:median", basis=Landmarks(60), **SMALL).fit(X[TRAIN], Y[TRAIN])
    expected = model.decision_function(X[TEST])
    model.save(tmp_path / "model")
    loaded = daskkern.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.decision_function(X[TEST]), expected)
    np.testing.assert_array_equal(loaded.decision_function(scipy.sparse.csr_array(X[TEST])), expected)
    lazy = model.decision_function(da.from_array(X[TEST], chunks=(50, -1)))
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-12)
    store = _store(tmp_path / "test", X[TEST], Y[TEST])
    stored = model.decision_function(str(store))
    np.testing.assert_allclose(stored, expected, rtol=1e-4, atol=1e-4)
    assert model.score(str(store)) == model.score(X[TEST], Y[TEST]) > 0.9


def test_stores_and_dask_arrays_are_scaled_and_stores_of_scaled_rows_left_alone(tmp_path: Path) -> None:
    raw, scaled = (_store(tmp_path / kind, X[TRAIN], Y[TRAIN], kind) for kind in ("none", "minmax"))
    settings: dict[str, Any] = {"kernel": "laplacian:median", "basis": Landmarks(60), **SMALL}
    expected = KernelClassifier(**settings).fit(X[TRAIN], Y[TRAIN])
    of_store = KernelClassifier(**settings).fit(str(raw))
    np.testing.assert_allclose(of_store.model_.scaling.scale, expected.model_.scaling.scale, rtol=1e-5)
    of_blocks = KernelClassifier(**settings).fit(da.from_array(X[TRAIN], chunks=(100, -1)), Y[TRAIN])
    np.testing.assert_allclose(of_blocks.model_.scaling.scale, expected.model_.scaling.scale, rtol=1e-12)
    assert KernelClassifier(**settings).fit(str(scaled)).model_.scaling.kind == "minmax"
    assert KernelClassifier(**settings, scale=None).fit(str(raw)).model_.scaling.kind == "none"
    with pytest.raises(SpecError, match="ingestion scaled already"):
        KernelClassifier(**settings, scale="standard").fit(str(scaled))


def test_validation_rows_and_later_rows_get_the_scaling_of_the_first_ones() -> None:
    settings: dict[str, Any] = {**SMALL, "max_epochs": 4}
    model = KernelClassifier("laplacian:median", basis=Landmarks(60), early_stopping=True, **settings)
    model.fit(X[TRAIN], Y[TRAIN], validation=(X[TEST], Y[TEST]))
    assert model.history_[-1].validation_score > 0.9
    on = KernelClassifier("laplacian:median", basis=Landmarks(60), **settings)
    on.partial_fit(X[:200], Y[:200])
    first = on.model_.scaling
    on.partial_fit(X[200:400], Y[200:400])
    assert on.model_.scaling == first
    assert on.score(X[TEST], Y[TEST]) > 0.85


def test_points_of_the_user_are_in_the_units_of_the_rows() -> None:
    own, other = Landmarks(points=X[:50]), Landmarks(points=X[:50] * FACTORS)
    np.testing.assert_allclose(_scores(X * FACTORS, basis=other), _scores(X, basis=own), rtol=1e-6, atol=1e-8)


def test_regression_on_raw_columns_is_that_on_standardised_ones() -> None:
    rows, y = load_diabetes(return_X_y=True, scaled=False)
    settings: dict[str, Any] = {"kernel": "laplacian:median", "basis": AllRows(), **SMALL, "scale": "standard"}
    raw = KernelRegressor(**settings).fit(rows, y).predict(rows)
    by_hand = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    np.testing.assert_allclose(raw, KernelRegressor(**settings).fit(by_hand, y).predict(by_hand), rtol=1e-6)


def test_scalings_that_cannot_be_are_one_sentence() -> None:
    with pytest.raises(
        SpecError, match="expected one of auto, always, affine, arcsinh, ranks, standard, common, robust"
    ):
        _scores(X, scale="standrad")
    with pytest.raises(SpecError, match="for sparse rows, but it shifts columns"):
        _scores(scipy.sparse.csr_array(X), scale="standard")
    with pytest.raises(SpecError, match="got scale='ranks' for sparse rows, but it shifts columns"):
        _scores(scipy.sparse.csr_array(X), scale="ranks")


def test_with_ranks_an_increasing_function_of_a_feature_changes_little() -> None:
    other = np.where(np.arange(X.shape[1]) % 2, np.log(X + 1e-3), X**3)
    first = _scores(X, scale="ranks")
    np.testing.assert_allclose(_scores(other, scale="ranks"), first, atol=0.05)  # ranks of new values are interpolated
    assert np.abs(_scores(other, scale="affine") - _scores(X, scale="affine")).max() > 0.2


def test_ranks_of_arrays_stores_and_dask_arrays_are_the_same_and_a_model_keeps_them(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"kernel": "laplacian:median", "basis": AllRows(), **SMALL, "scale": "ranks"}
    model = KernelClassifier(**settings).fit(X[TRAIN], Y[TRAIN])
    scores = model.decision_function(X[TEST])
    model.save(tmp_path / "model.zarr")
    loaded = daskkern.load(tmp_path / "model.zarr")
    assert loaded.scaling == model.model_.scaling
    assert loaded.scaling.kind == "ranks"
    np.testing.assert_array_equal(np.asarray(loaded.scores(X[TEST])).ravel(), scores)
    store = _store(tmp_path / "rows.zarr", X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(KernelClassifier(**settings).fit(store).decision_function(X[TEST]), scores, atol=1e-5)
    chunks = da.from_array(X[TRAIN], chunks=(100, 30))
    from_chunks = KernelClassifier(**settings).fit(chunks, da.from_array(Y[TRAIN], chunks=100))
    np.testing.assert_allclose(from_chunks.decision_function(X[TEST]), scores, atol=1e-5)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_columns_too_large_to_be_measured_are_refused_rather_than_ignored() -> None:
    large = X * np.append([1e160], np.ones(X.shape[1] - 1))
    with pytest.raises(DataError, match=r"column 0 has values whose squares.*take scale='auto'"):
        _scores(large, kernel="gaussian:2", scale="standard")
    assert np.isfinite(_scores(large, kernel="gaussian:2", scale="always")).all()
