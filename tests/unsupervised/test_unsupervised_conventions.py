"""The unsupervised estimators in scikit-learn's manners: its own checks, arrays of any kind, stores, seeds, errors."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import daskkern
from daskkern import (
    DoublyStochastic,
    KernelDensity,
    KernelKMeans,
    KernelPCA,
    Landmarks,
    Linear,
    LocalRows,
    OneClassSVM,
    RandomFeatures,
    SpectralClustering,
)
from daskkern.data.storage.store import open_store
from daskkern.errors import DaskkernError
from daskkern.evaluation.predict import write_predictions
from daskkern.evaluation.score import score_store

ESTIMATORS = [
    KernelPCA(n_components=3),
    SpectralClustering(n_clusters=3),
    KernelKMeans(n_clusters=3, n_init=2),
    OneClassSVM(nu=0.2),
    KernelDensity(),
]
LANDMARKS = Landmarks(30)
NAMES = [type(estimator).__name__ for estimator in ESTIMATORS]


_WEIGHTS = (
    "scaling and length scale are estimated from rows whatever they weigh, and starts of k-means are drawn; see "
    "test_weights_mean_repeated_rows"
)


def _expected_failures(estimator: object) -> dict[str, str]:
    if not isinstance(estimator, KernelKMeans | OneClassSVM):
        return {}
    return {f"check_sample_weight_equivalence_on_{kind}_data": _WEIGHTS for kind in ("dense", "sparse")}


@pytest.mark.one_in(2)
@parametrize_with_checks(
    [
        KernelPCA(),
        SpectralClustering(n_clusters=3, n_init=2),
        KernelKMeans(n_clusters=3, n_init=2),
        OneClassSVM(),
        KernelDensity(),
    ],
    expected_failed_checks=_expected_failures,
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass_without_targets(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def X() -> np.ndarray:  # noqa: N802
    rng = np.random.default_rng(0)
    return np.concatenate([rng.standard_normal((60, 3)) + shift for shift in (-3, 0, 3)]) * [1, 10, 0.1]


@pytest.fixture(scope="module")
def store(X: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("unsupervised")
    np.savez(folder / "rows.npz", X=X, y=np.repeat([0, 1, 2], 60))
    daskkern.ingest([str(folder / "rows.npz")], folder / "rows.zarr", shuffle=False)
    return str(folder / "rows.zarr")


def _outputs(estimator: Any, X: Any) -> dict[str, Any]:
    names = ("transform", "predict", "score_samples", "decision_function")
    return {name: getattr(estimator, name)(X) for name in names if hasattr(estimator, name)}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
@pytest.mark.parametrize("basis", ["auto", LANDMARKS], ids=["all", "landmarks"])
def test_stores_and_dask_arrays_give_what_arrays_give(estimator: Any, basis: Any, X: np.ndarray, store: str) -> None:
    plain, streamed, lazy = (clone(estimator).set_params(basis=basis) for _ in range(3))
    blocks = da.from_array(X, chunks=(50, 2))
    expected = _outputs(plain.fit(X), X)
    of_store, of_blocks = _outputs(streamed.fit(store), store), _outputs(lazy.fit(blocks), blocks)
    assert set(expected) == set(of_store) == set(of_blocks) != set()
    for name, values in expected.items():
        assert isinstance(of_store[name], np.ndarray)
        assert isinstance(of_blocks[name], da.Array)
        assert of_blocks[name].chunks[0] == blocks.chunks[0]
        assert of_store[name].dtype == of_blocks[name].dtype == of_blocks[name].compute().dtype == values.dtype
        # Stores hold float32 rows. Rows at the margin, which are support vectors, are on either side by rounding.
        sure = (
            np.abs(expected["decision_function"]) > 1e-3
            if name == "predict" and isinstance(plain, OneClassSVM)
            else ...
        )
        np.testing.assert_allclose(of_store[name][sure], values[sure], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(of_blocks[name].compute()[sure], values[sure], rtol=1e-6, atol=1e-6)
    if hasattr(plain, "labels_"):
        assert isinstance(lazy.labels_, da.Array)
        np.testing.assert_array_equal(lazy.labels_.compute(), plain.labels_)
        np.testing.assert_array_equal(streamed.labels_, plain.labels_)
        np.testing.assert_array_equal(plain.predict(X), plain.labels_)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_sparse_rows_give_what_dense_ones_give(estimator: Any) -> None:
    X = np.random.default_rng(0).poisson(0.5, (80, 6)).astype(float)
    settings = {"scale": None, **({"kernel": "gaussian:2"} if not isinstance(estimator, KernelDensity) else {})}
    if isinstance(estimator, KernelDensity):
        settings["bandwidth"] = 1.0
    dense = _outputs(clone(estimator).set_params(**settings).fit(X), X)
    rows = scipy.sparse.csr_array(X)
    for name, values in _outputs(clone(estimator).set_params(**settings).fit(rows), rows).items():
        np.testing.assert_allclose(values, dense[name], rtol=1e-6, atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_units_of_features_do_not_matter(estimator: Any, X: np.ndarray) -> None:
    unit = np.array([1e3, 1e-3, 1.0])
    plain, other = _outputs(clone(estimator).fit(X), X), _outputs(clone(estimator).fit(X * unit), X * unit)
    jacobian = np.log(unit).sum() if isinstance(estimator, KernelDensity) else 0.0
    for name, values in plain.items():
        np.testing.assert_allclose(other[name], values - jacobian, rtol=1e-6, atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_targets_of_a_store_and_of_fit_are_not_used(estimator: Any, X: np.ndarray) -> None:
    skewed = np.exp(X / X.std(axis=0))  # with targets, features like these may be bent
    plain = _outputs(clone(estimator).fit(skewed), skewed)
    for name, values in _outputs(clone(estimator).fit(skewed, np.arange(180)), skewed).items():
        np.testing.assert_array_equal(values, plain[name])


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_frames_keep_their_names(estimator: Any, X: np.ndarray) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = clone(estimator).fit(frame)
    assert list(fitted.feature_names_in_) == ["a", "b", "c"]
    assert fitted.model_.feature_names == ("a", "b", "c")
    with pytest.raises(ValueError, match="feature names"):
        _outputs(fitted, frame[["b", "a", "c"]])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_a_saved_model_gives_the_same_without_the_estimator(estimator: Any, X: np.ndarray, tmp_path: Path) -> None:
    fitted = clone(estimator).fit(X)
    fitted.save(tmp_path / "model.zarr")
    predicted = daskkern.load(tmp_path / "model.zarr").predict(X)
    name = {"KernelPCA": "transform", "OneClassSVM": "decision_function"}
    name |= dict.fromkeys(("KernelKMeans", "SpectralClustering"), "predict")
    ours = getattr(fitted, name.get(type(estimator).__name__, "score_samples"))(X)
    ours = np.exp(ours) if isinstance(estimator, KernelDensity) else ours
    np.testing.assert_allclose(predicted, ours, rtol=1e-8, atol=1e-10)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("basis", ["auto", LANDMARKS])
@pytest.mark.parametrize("kind", [SpectralClustering, KernelKMeans])
def test_saved_clusters_of_any_number(kind: Any, k: int, basis: Any, X: np.ndarray, tmp_path: Path) -> None:
    fitted = kind(k, "gaussian:0.5", basis=basis).fit(X)
    fitted.save(tmp_path / "model.zarr")
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    np.testing.assert_array_equal(fitted.model_.predict(X), fitted.labels_)
    loaded = daskkern.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.predict(X), fitted.labels_)
    np.testing.assert_array_equal(loaded.decision_function(X), fitted.model_.decision_function(X))
    assert len(np.unique(fitted.labels_)) == k


def test_a_model_of_one_cluster_predicts_and_is_scored_on_stores(X: np.ndarray, store: str, tmp_path: Path) -> None:
    KernelKMeans(1, "gaussian:0.5").fit(X).save(tmp_path / "model.zarr")
    model = daskkern.load(tmp_path / "model.zarr")
    write_predictions(model, open_store(store), tmp_path / "predictions.zarr")
    group: Any = zarr.open_group(tmp_path / "predictions.zarr", mode="r")
    np.testing.assert_array_equal(group["prediction"][:], np.zeros(180))
    score = score_store(model, open_store(store))
    assert (score.accuracy, score.unknown, score.confusion) == (pytest.approx(1 / 3), 120, ((60,),))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_the_same_seed_gives_the_same_and_another_seed_other_landmarks(estimator: Any, X: np.ndarray) -> None:
    def points(seed: int) -> np.ndarray:
        fitted = clone(estimator).set_params(basis=LANDMARKS, random_state=seed).fit(X)
        return fitted._points.X if isinstance(estimator, KernelDensity) else fitted.model_.points

    np.testing.assert_array_equal(points(3), points(3))
    assert not np.array_equal(points(3), points(4))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": "gausian"}, "did you mean 'gaussian'"),
        ({"basis": 30.5}, "give 'auto', AllRows"),
        ({"basis": Linear()}, "give 'auto', AllRows"),
        ({"basis": DoublyStochastic()}, "give 'auto', AllRows"),
        ({"basis": LocalRows()}, "give 'auto', AllRows"),
        ({"scale": "standart"}, "standart"),
        ({"dtype": "float16"}, "float32"),
        ({"device": "tpu"}, "'cpu', 'gpu' or 'auto'"),
    ],
)
def test_parameters_without_a_meaning_are_one_sentence(
    estimator: Any, change: dict[str, Any], words: str, X: np.ndarray
) -> None:
    with pytest.raises(DaskkernError, match=words):
        clone(estimator).set_params(**change).fit(X)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (KernelPCA(0), "n_components=0"),
        (KernelPCA(9, kernel="linear"), "have 3 components"),
        (SpectralClustering(0), "n_clusters=0"),
        (SpectralClustering(200), "n_clusters=200 for n_samples=180"),
        (SpectralClustering(basis=RandomFeatures(20)), "RandomFeatures"),
        (KernelKMeans(2.5), "n_clusters=2.5"),
        (KernelKMeans(tol=2), "tol=2"),
        (OneClassSVM(0), "nu=0"),
        (OneClassSVM(1.5), "nu=1.5"),
        (KernelDensity("scot"), "'scott', 'silverman'"),
        (KernelDensity(-1.0), "length_scale=-1.0"),
        (KernelDensity(1.0, "cauchy"), "integral is infinite"),
        (KernelDensity(1.0, "polynomial:2"), "one of a distance"),
        (KernelDensity(basis=RandomFeatures(20)), "RandomFeatures"),
    ],
    ids=repr,
)
def test_other_parameters_are_refused(estimator: Any, words: str, X: np.ndarray) -> None:
    with pytest.raises(DaskkernError, match=words):
        estimator.fit(X)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=NAMES)
def test_rows_that_are_no_numbers_are_refused_early(estimator: Any, X: np.ndarray, store: str) -> None:
    broken = X.copy()
    broken[70, 1] = np.nan
    for rows in (broken, da.from_array(broken, chunks=(50, 3))):
        with pytest.raises(DaskkernError, match="NaN"):
            clone(estimator).fit(rows)
    fitted = clone(estimator).fit(X)
    with pytest.raises(ValueError, match="2 features"):
        _outputs(fitted, X[:, :2])
    if not isinstance(estimator, KernelPCA | SpectralClustering):
        with pytest.raises(DaskkernError, match="a store brings its own"):
            clone(estimator).fit(store, sample_weight=np.ones(180))


@pytest.mark.parametrize("index", range(len(NAMES)), ids=NAMES)
def test_unknown_texts_can_be_ignored(index: int) -> None:
    frame = pd.DataFrame({"x": np.linspace(-1.0, 1.0, 60), "t": np.array(["a", "b", "c"])[np.arange(60) % 3]})
    other = pd.DataFrame({"x": [0.3, 0.3], "t": ["new", "a"]})
    method = {"KernelPCA": "transform", "KernelDensity": "score_samples", "OneClassSVM": "score_samples"}
    name = method.get(NAMES[index], "predict")
    strict = clone(ESTIMATORS[index]).set_params(basis="auto").fit(frame)
    if not hasattr(strict, name):
        return
    with pytest.raises(DaskkernError, match=r"'new' in column 't', a category that.*handle_unknown='ignore'"):
        getattr(strict, name)(other)
    found = getattr(clone(strict).set_params(handle_unknown="ignore").fit(frame), name)(other)
    np.testing.assert_allclose(found[1], getattr(strict, name)(other.iloc[[1]])[0])
    with pytest.raises(DaskkernError, match="got handle_unknown='skip'"):
        clone(strict).set_params(handle_unknown="skip").fit(frame)
