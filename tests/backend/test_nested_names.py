"""Searches of scikit-learn over nested names, and what `basis=100` and `kernel="rbf"` mean."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from daskkern import AllRows, KernelClassifier, KernelFeatures, KernelPCA, KernelRegressor, Landmarks, RandomFeatures
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian, Laplacian, Polynomial, parse_kernel
from daskkern.solvers import EigenPro

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (120, 1))
Y = np.sin(3 * X[:, 0])
GRID = {"kernel__length_scale": [20.0, 0.5], "basis__n": [5, 60]}


def _ridge(kernel: object = "gaussian") -> KernelRegressor:
    return KernelRegressor(kernel, "squared", Landmarks(7), solver="falkon", alpha=1e-6, max_epochs=10, device="cpu")


def test_objects_have_parameters_and_are_values() -> None:
    kernel, basis = Gaussian(2.0), Landmarks(10)
    assert kernel.get_params()["length_scale"] == 2.0
    other = kernel.set_params(length_scale=3.0)
    assert other == Gaussian(3.0)
    assert kernel == Gaussian(2.0)
    assert basis.set_params(n=5).n == 5
    assert clone(kernel) is kernel
    assert clone(basis) is basis
    assert (2.0 * kernel).set_params(kernel__length_scale=4.0) == 2.0 * Gaussian(4.0)
    assert EigenPro().set_params(n_directions=10).get_params()["n_directions"] == 10
    for wrong, words in (
        ({"gamma": 1.0}, "got parameter 'gamma' for Gaussian; its parameters are length_scale"),
        ({"length_scale": -1.0}, "length_scale"),
        ({"length_scale__x": 1}, "got parameter length_scale__x, but length_scale=2.0 has no parameters"),
    ):
        with pytest.raises(SpecError, match=words):
            kernel.set_params(**wrong)


def test_estimators_have_the_parameters_of_their_objects() -> None:
    model = _ridge(Gaussian(2.0))
    assert model.get_params()["kernel__length_scale"] == 2.0
    assert model.get_params()["basis__n"] == 7
    copy = clone(model).set_params(kernel__length_scale=3.0, basis__n=9)
    assert (copy.kernel, copy.basis.n) == (Gaussian(3.0), 9)
    assert (model.kernel, model.basis.n) == (Gaussian(2.0), 7)
    by_words = KernelClassifier("laplacian:2").set_params(kernel__length_scale=4.0, basis__n=30)
    assert by_words.kernel == Laplacian(4.0)
    assert by_words.basis.n == 30
    assert clone(by_words).get_params()["basis__n"] == 30
    both = KernelPCA(2).set_params(kernel=Laplacian(1.0), kernel__length_scale=5.0)
    assert both.kernel == Laplacian(5.0)
    with pytest.raises(SpecError, match="got parameter 'size' for Landmarks; its parameters are n, selector, points"):
        model.set_params(basis__size=3)
    with pytest.raises(ValueError, match="Invalid parameter 'bases'"):
        model.set_params(bases__n=3)


@pytest.mark.parametrize("search", [GridSearchCV, pytest.param(HalvingGridSearchCV, marks=pytest.mark.repeated)])
def test_searches_find_parameters_of_kernel_and_basis(search: type) -> None:
    settings = {"random_state": 0, "min_resources": 60} if search is HalvingGridSearchCV else {}
    found = search(_ridge(), GRID, cv=2, error_score="raise", **settings).fit(X, Y)
    assert found.best_params_ == {"kernel__length_scale": 0.5, "basis__n": 60}
    assert found.best_estimator_.model_.points.shape[0] == 60
    assert found.best_estimator_.model_.kernel == Gaussian(0.5)


def test_a_step_of_a_pipeline_is_searched() -> None:
    pipeline = make_pipeline(StandardScaler(), _ridge())
    grid = {f"kernelregressor__{name}": values[1:] for name, values in GRID.items()}
    found = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, Y)
    assert found.best_params_["kernelregressor__basis__n"] == 60


def test_numbers_and_names_mean_what_people_mean() -> None:
    many = KernelRegressor(basis=20, max_epochs=2, batch_size=32, device="cpu").fit(X, Y)
    assert many.model_.points.shape == (20, 1)
    assert KernelFeatures(basis=np.int64(30)).fit(X).transform(X).shape == (120, 30)
    assert KernelFeatures().set_params(basis__n=40).basis == RandomFeatures(40)
    assert KernelPCA(2, basis=8).fit(X).model_.points.shape == (8, 1)
    assert parse_kernel("rbf") == Gaussian("median")
    assert parse_kernel("RBF:3") == Gaussian(3.0)
    assert parse_kernel("poly") == Polynomial(3)
    assert parse_kernel("poly:2") == Polynomial(2)
    rbf = KernelRegressor("rbf", basis=AllRows(), solver="direct", alpha=1e-3, device="cpu").fit(X, Y)
    assert isinstance(rbf.model_.kernel, Gaussian)
    for wrong in (True, 2.5, "many"):
        with pytest.raises(SpecError, match="give 'auto', a number of landmarks, or a basis"):
            KernelRegressor(basis=wrong, device="cpu").fit(X, Y)
    with pytest.raises(SpecError, match="got 0 landmarks"):
        KernelRegressor(basis=0, device="cpu").fit(X, Y)


def test_searches_of_dask_ml_find_them_too() -> None:
    searches = pytest.importorskip("dask_ml.model_selection", reason="pip install dask-ml to try its searches")
    found = searches.GridSearchCV(_ridge(), GRID, cv=2, scheduler="synchronous").fit(X, Y)
    assert found.best_params_ == {"kernel__length_scale": 0.5, "basis__n": 60}
