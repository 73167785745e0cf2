"""The transformer: features whose inner products are kernel values, in scikit-learn's manners."""

from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import daskkern
from daskkern import AllRows, KernelFeatures, Landmarks, Linear, NystromFeatures, RandomFeatures
from daskkern.basis import BasisSpec
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian


@pytest.mark.one_in(4)
@parametrize_with_checks(
    [
        KernelFeatures(basis=RandomFeatures(20)),
        KernelFeatures(basis=NystromFeatures(10)),
        KernelFeatures("gaussian:1", Landmarks(10), dtype="float64"),
    ]
)
@pytest.mark.filterwarnings("ignore:.*was fitted.*feature names:UserWarning")
def test_scikit_learns_own_checks_pass(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def X() -> np.ndarray:  # noqa: N802
    return load_digits(return_X_y=True)[0] / 16


def test_features_are_those_of_the_kernel(X: np.ndarray) -> None:
    K = Gaussian(2.0).block(X[:200], X[:200])
    fourier = KernelFeatures(Gaussian(2.0), RandomFeatures(20_000)).fit_transform(X[:200])
    assert np.abs(fourier @ fourier.T - K).max() < 0.05
    nystrom = KernelFeatures(Gaussian(2.0), NystromFeatures(200), dtype="float64").fit_transform(X[:200])
    np.testing.assert_allclose(nystrom @ nystrom.T, K, atol=1e-6)
    plain = KernelFeatures(Gaussian(2.0), Landmarks(points=X[:7])).fit(X[:200])
    np.testing.assert_allclose(plain.transform(X[:200]), K[:, :7], atol=1e-5)
    assert list(plain.get_feature_names_out()) == [f"kernelfeatures{j}" for j in range(7)]
    assert KernelFeatures(basis=Linear(intercept=True)).fit_transform(X[:9]).shape == (9, 65)


@pytest.mark.parametrize("basis", [RandomFeatures(10), NystromFeatures(10)])
@pytest.mark.parametrize("dtype", ["int32", "float16", "banana"])
def test_other_dtypes_are_refused(basis: BasisSpec, dtype: str, X: np.ndarray) -> None:
    with pytest.raises(SpecError, match=f"{dtype}.*float32"):
        KernelFeatures(basis=basis, dtype=dtype).fit(X[:50])


def test_a_linear_model_becomes_a_kernel_model(X: np.ndarray) -> None:
    y = load_digits(return_X_y=True)[1]
    model = make_pipeline(KernelFeatures(basis=NystromFeatures(300)), RidgeClassifier(1e-3)).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.93  # 0.90 without the features


def test_dask_sparse_and_stores(X: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=X * 16, y=load_digits(return_X_y=True)[1])
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", scale="minmax")
    features = KernelFeatures("gaussian:2", RandomFeatures(30)).fit(tmp_path / "d.zarr")
    expected = features.transform(X * 16)  # the store's scaling is the transformer's
    lazy = features.transform(da.from_array(X * 16, chunks=(500, 20)))
    assert (lazy.shape, lazy.chunks[0]) == ((1797, 30), (500, 500, 500, 297))
    np.testing.assert_allclose(lazy.compute(), expected, atol=1e-6)  # BLAS rounds other numbers of rows otherwise
    sparse = KernelFeatures("gaussian:2", RandomFeatures(30)).fit(scipy.sparse.csr_matrix(X))
    dense = KernelFeatures("gaussian:2", RandomFeatures(30)).fit(X)
    np.testing.assert_allclose(sparse.transform(scipy.sparse.csr_matrix(X)), dense.transform(X), atol=1e-5)


def test_what_is_refused(X: np.ndarray) -> None:
    with pytest.raises(SpecError, match=r"basis=AllRows\(\) for KernelFeatures"):
        KernelFeatures(basis=AllRows()).fit(X)
    with pytest.raises(DataError, match="got a dask array for fit"):
        KernelFeatures().fit(da.from_array(X))


@pytest.mark.parametrize("basis", [Landmarks(60), RandomFeatures(100), NystromFeatures(40)])
def test_an_offset_of_the_rows_changes_nothing(basis: BasisSpec) -> None:
    X = np.random.default_rng(5).normal(size=(200, 2)) * [100, 1]
    moved = X + np.array([1.7e9, 0.0])
    near, far = (KernelFeatures(Gaussian((100.0, 1.0)), basis=basis).fit(Z).transform(Z) for Z in (X, moved))
    K, far_K = near.astype(float) @ near.T, far.astype(float) @ far.T  # features of random phases turn with the offset
    assert abs(K - far_K).max() < (0.5 if isinstance(basis, RandomFeatures) else 1e-3)
    whole = KernelFeatures(Gaussian((100.0, 1.0)), basis=basis, dtype="float64").fit(moved)
    np.testing.assert_allclose(far, whole.transform(moved), atol=1e-5)


def test_features_of_lazy_frames_and_stores(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(X[:, 0] > 0, "x", "y"))
    model = KernelFeatures("gaussian:1", 10).fit(frame)
    lazy = model.transform(dd.from_pandas(frame, npartitions=3))
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), model.transform(frame), rtol=1e-6)
    with pytest.raises(DataError, match="got a dask dataframe for fit"):
        KernelFeatures("gaussian:1", 10).fit(dd.from_pandas(frame, npartitions=3))
    np.savez(tmp_path / "rows.npz", X=X, y=X[:, 0])
    daskkern.ingest(tmp_path / "rows.npz", tmp_path / "rows.zarr", scale="standard")
    of_store = KernelFeatures("gaussian:1", 10).fit(tmp_path / "rows.zarr")
    np.testing.assert_allclose(of_store.transform(tmp_path / "rows.zarr"), of_store.transform(X), atol=1e-5)
    with pytest.raises(DataError, match="of 2 features; expected rows of 4 features"):
        model.transform(tmp_path / "rows.zarr")


def test_lazy_rows_that_cannot_be_used_are_refused() -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = KernelFeatures("gaussian:1", 10).fit(X)
    with pytest.raises(DataError, match="X has NaN"):
        model.transform(da.from_array(np.where(X > 1, np.nan, X), chunks=20)).compute()
    for wrong in (X[:, 0], X[:, :1]):
        with pytest.raises(DataError, match="expected rows of 2 features"):
            model.transform(da.from_array(wrong, chunks=20))


def test_features_of_a_store_go_by_the_names_of_its_columns(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.assign(y=X[:, 0]).to_csv(tmp_path / "rows.csv", index=False)
    frame[["b", "a"]].assign(y=X[:, 0]).to_csv(tmp_path / "other.csv", index=False)
    for name in ("rows", "other"):
        daskkern.ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", target="y")
    model = KernelFeatures("gaussian:1", 10).fit(frame.assign(c=1.0)).fit(tmp_path / "rows.zarr")
    assert not hasattr(model, "feature_names_in_")  # of the frame before
    np.testing.assert_array_equal(model.transform(frame), model.transform(X))
    swapped = frame[["b", "a"]]
    for other in (swapped, dd.from_pandas(swapped, npartitions=2), tmp_path / "other.zarr"):
        with pytest.raises(DataError, match="has 'b' where the features were fitted to 'a'"):
            model.transform(other)
    with pytest.raises(DataError, match="has 'b' where the features were fitted to 'a'"):
        KernelFeatures("gaussian:1", 10).fit(frame).transform(tmp_path / "other.zarr")
    with pytest.raises(DataError, match="of 1 features; expected rows of 2 features"):
        model.transform(X[:, :1])


def test_frames_are_encoded_as_the_store_of_the_fit_was(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(X[:, 0] > 0, "x", "y"))
    frame.assign(y=X[:, 0]).to_parquet(tmp_path / "rows.parquet", index=False)
    daskkern.ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", target="y", scale="standard")
    model = KernelFeatures("gaussian:1", 10).fit(tmp_path / "rows.zarr")
    encoded = np.column_stack([X, X[:, 0] > 0, X[:, 0] <= 0]).astype(np.float64)
    np.testing.assert_allclose(model.transform(frame), model.transform(encoded), rtol=1e-5)
    lazy = model.transform(dd.from_pandas(frame[["kind", "b", "a"]], npartitions=2))
    np.testing.assert_allclose(lazy.compute(), model.transform(encoded), rtol=1e-5)


def test_stores_of_other_codes_are_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((60, 2))
    for name, words in (("rows", ["x", "y"]), ("other", ["w", "x"])):
        frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.resize(words, 60), y=X[:, 0])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        daskkern.ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", target="y", categorical="codes")
    model = KernelFeatures("laplacian_l1:1", Landmarks(10)).fit(tmp_path / "rows.zarr")
    with pytest.raises(DataError, match="categories of column 'kind' have other numbers"):
        model.transform(tmp_path / "other.zarr")
