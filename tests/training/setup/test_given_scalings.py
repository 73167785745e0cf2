"""A scaling that is given as such is used as it is, kept by the model, and found again by what a search chose."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import daskkern
from daskkern import AutoKernelClassifier, KernelClassifier, KernelRegressor
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.rank_tables import RankTable
from daskkern.errors import SpecError
from daskkern.kernels import L1Laplacian

WARPED = Scaling("warped", (0.5, 0.0), (2.0, 1.0), (), (RankTable(1, (-1.0, 0.0, 1.0), (-3.0, 2.0, 3.0)),))


def _rows(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(-1, 1, (n, 2))
    return X, X[:, 0] + np.sign(X[:, 1])


def test_rows_are_scaled_as_given_and_the_model_keeps_it(tmp_path: Path) -> None:
    X, y = _rows()
    given, by_hand = (
        KernelRegressor("gaussian:1", alpha=1e-3, solver="direct", scale=scale, dtype="float64", device="cpu")
        for scale in (WARPED, None)
    )
    scaled = np.column_stack([(X[:, 0] - 0.5) / 2, np.interp(X[:, 1], (-1, 0, 1), (-3, 2, 3))])
    np.testing.assert_allclose(WARPED.apply(X, np.float64), scaled)
    expected = by_hand.fit(scaled, y).predict(scaled)
    np.testing.assert_allclose(given.fit(X, y).predict(X), expected, rtol=1e-9)
    given.save(tmp_path / "model.zarr")
    model = daskkern.load(tmp_path / "model.zarr")
    assert model.scaling == WARPED
    np.testing.assert_allclose(model.predict(X).ravel(), expected, rtol=1e-6)
    assert model.provenance["settings"]["scale"] == "warped"
    assert clone(given).scale == WARPED


def test_a_scaling_of_other_rows_is_refused() -> None:
    X, y = _rows()
    with pytest.raises(SpecError, match="Scaling of 2 features; expected one of 3"):
        KernelRegressor(scale=WARPED, device="cpu").fit(np.column_stack([X, y]), y)
    with pytest.raises(SpecError, match="sparse"):
        KernelRegressor(scale=WARPED, device="cpu").fit(scipy.sparse.csr_matrix(X), y)
    with pytest.raises(SpecError, match="a Scaling, or None"):
        KernelRegressor(scale="warped", device="cpu").fit(X, y)


def test_a_common_unit_is_that_of_rows_scaled_by_hand() -> None:
    X, y = _rows()
    X = X * (3.0, 1.0) + (1000.0, 0.0)
    unit = np.sqrt(np.mean(X.var(axis=0)))
    settings = {"kernel": "gaussian:1", "alpha": 1e-3, "solver": "direct", "dtype": "float64", "device": "cpu"}
    by_hand = KernelRegressor(scale=None, **settings).fit((X - X.mean(axis=0)) / unit, y)
    model = KernelRegressor(scale="common", **settings).fit(X, y)
    np.testing.assert_allclose(model.predict(X), by_hand.predict((X - X.mean(axis=0)) / unit), rtol=1e-6, atol=1e-8)
    with pytest.raises(SpecError, match="sparse rows"):
        KernelRegressor(scale="common", device="cpu").fit(scipy.sparse.csr_matrix(X), y)


def test_codes_do_not_count_in_a_common_unit() -> None:
    X, y = _rows()
    codes = np.arange(len(X)) % 50
    model = KernelRegressor(L1Laplacian(1.0, categories=[2]), scale="common", device="cpu")
    model.fit(np.column_stack([X, codes]), y)
    unit = np.sqrt(np.mean(X.var(axis=0)))
    np.testing.assert_allclose(model.model_.scaling.scale, (unit, unit, 1.0), rtol=1e-6)


@pytest.mark.long
def test_a_search_finds_the_parity_of_signs_and_its_parameters_fit_the_model_again() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4))
    y = X[:, :2].prod(axis=1) > 0
    found = AutoKernelClassifier(max_seconds=1e6, device="cpu").fit(X[:300], y[:300])
    assert isinstance(found.best_params_["scale"], Scaling)
    assert found.score(X[300:], y[300:]) > 0.95
    again = KernelClassifier(**found.best_params_, random_state=0, device="cpu").fit(X[:300], y[:300])
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
