"""Fits on CSR rows: the same model as on the dense table, without ever making one."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from distributed import Client

import daskkern
from daskkern import KernelClassifier, KernelRegressor
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.errors import DataError, ModelError
from daskkern.kernels import Gaussian, InversePolynomial, Kernel
from daskkern.solvers import EigenPro, NystromSGD, Solver

N, D = 900, 400


def _data(seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = scipy.sparse.random_array((N, D), density=0.03, rng=rng, format="csr")
    labels = (X @ np.random.default_rng(1).standard_normal((D, 3))).argmax(axis=1)
    return X, np.array(["red", "green", "blue"])[labels]


def _model(
    basis: BasisSpec = Landmarks(150), solver: Solver | str = "auto", kernel: Kernel | str = "gaussian:median"
) -> KernelClassifier:
    return KernelClassifier(kernel, basis=basis, solver=solver, max_epochs=3, device="cpu")


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("basis", "solver"),
    [
        (Landmarks(150), "auto"),
        (Landmarks(150, "stratified"), EigenPro(window=3)),
        (Landmarks(150), EigenPro(projection="eigenpro")),
        (AllRows(), EigenPro()),
        (Landmarks(100), NystromSGD(mode="streamed")),
        (Landmarks(100), NystromSGD(mode="stored")),
    ],
)
def test_the_model_is_that_of_the_dense_table(basis: BasisSpec, solver: Solver | str) -> None:
    X, y = _data()
    sparse, dense = _model(basis, solver).fit(X[:700], y[:700]), _model(basis, solver).fit(X[:700].toarray(), y[:700])
    found = sparse.decision_function(X[700:])
    expected = dense.decision_function(X[700:].toarray())
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_allclose(sparse.decision_function(X[700:].toarray()), found, atol=1e-4)
    assert scipy.sparse.issparse(sparse.landmarks_)


@pytest.fixture(scope="module")
def of_csr_arrays() -> KernelClassifier:
    return _model(kernel=InversePolynomial()).fit(*_data())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array])
def test_every_format_of_scipy_is_taken(kind: Any, of_csr_arrays: KernelClassifier) -> None:
    X, y = _data()
    expected = of_csr_arrays.predict(X[:50])
    assert np.array_equal(_model(kernel=InversePolynomial()).fit(kind(X), y).predict(kind(X[:50])), expected)


def test_repeated_sparse_rows_make_one_landmark() -> None:
    X, y = _data()
    doubled = scipy.sparse.vstack([X[:100]] * 3, format="csr")
    model = _model(Landmarks(300)).fit(doubled, np.concatenate([y[:100]] * 3))
    distinct = {row.tobytes() for row in X[:100].toarray()}
    assert model.landmarks_.shape[0] == len(distinct)


def test_a_saved_model_keeps_its_sparse_points(tmp_path: Path) -> None:
    X, y = _data()
    model = _model().fit(X, y)
    model.save(tmp_path / "model.zarr")
    loaded = daskkern.load(tmp_path / "model.zarr")
    assert scipy.sparse.issparse(loaded.points)
    assert np.array_equal(loaded.decision_function(X[:99]), model.decision_function(X[:99]))
    (tmp_path / "model.zarr" / "points" / "indices" / "zarr.json").unlink()
    with pytest.raises(ModelError, match="sparse points have no array 'indices'"):
        daskkern.load(tmp_path / "model.zarr")


def test_regression_with_weights_and_early_stopping() -> None:
    X, _ = _data()
    y = X @ np.random.default_rng(2).standard_normal(D)
    weight = np.random.default_rng(3).random(N) + 0.5
    settings: dict[str, Any] = {"basis": Landmarks(200), "max_epochs": 4, "early_stopping": True, "device": "cpu"}
    sparse = KernelRegressor(Gaussian(3.0), **settings).fit(X, y, weight)
    dense = KernelRegressor(Gaussian(3.0), **settings).fit(X.toarray(), y, weight)
    assert sparse.history_[-1].validation_score == pytest.approx(dense.history_[-1].validation_score, abs=1e-3)


def test_what_is_not_a_number_is_named_by_row_and_column() -> None:
    X, y = _data()
    X.data[X.indptr[7]] = np.nan
    with pytest.raises(DataError, match=f"in row 7, column {X.indices[X.indptr[7]]}"):
        _model().fit(X, y)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_two_workers_make_the_same_model_of_sparse_rows(client2: Client) -> None:
    X, y = _data()
    local = _model().fit(X, y).decision_function(X[:100])
    spread = KernelClassifier("gaussian:median", basis=Landmarks(150), max_epochs=3, device="cpu", client=client2)
    np.testing.assert_allclose(spread.fit(X, y).decision_function(X[:100]), local, atol=1e-4)


@pytest.mark.parametrize("known", [True, False], ids=["meta", "no meta"])
@pytest.mark.parametrize("lazy_y", [True, False], ids=["lazy y", "y"])
def test_sparse_chunks_of_dask_arrays_fit_like_the_rows(known: bool, lazy_y: bool) -> None:
    X = scipy.sparse.random_array((120, 9), density=0.3, rng=0, format="csr")
    y = np.asarray(X.sum(axis=1)).ravel() > 1.3
    dense = da.from_array(X.toarray(), chunks=(50, 9))
    # Without a meta Dask takes the chunks for dense arrays.
    rows = dense.map_blocks(scipy.sparse.csr_array, meta=scipy.sparse.csr_array((0, 9)) if known else np.empty((0, 9)))
    given = da.from_array(y, chunks=40) if lazy_y else y
    model = KernelClassifier(max_epochs=3, random_state=0).fit(rows, given)
    like = KernelClassifier(max_epochs=3, random_state=0).fit(X if known else X.toarray(), y)
    np.testing.assert_allclose(model.predict_proba(X), like.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(rows).compute(), model.predict(X))
