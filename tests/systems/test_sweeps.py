"""A sweep finds what one fit for each length scale and penalty would, and computes each distance once."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_diabetes, load_digits

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks, sweep
from daskkern.arrays import Array
from daskkern.errors import SpecError
from daskkern.kernels import (
    ArcCosine,
    AutoKernel,
    Gaussian,
    Laplacian,
    Matern,
    PowerLaplacian,
    ScaledDistanceKernel,
)

SCALES, ALPHAS = (1.0, 3.0, 9.0), (1e-6, 1e-3, 1e-1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("sweeps")
    rng = np.random.default_rng(0)
    digits, diabetes = load_digits(return_X_y=True), load_diabetes(return_X_y=True, scaled=True)
    tables = {"digits": (digits[0][:700] / 16, digits[1][:700]), "diabetes": (diabetes[0] * 20, diabetes[1])}
    places = {}
    for name, (X, y) in tables.items():
        np.savez(folder / f"{name}.npz", X=X, y=y, weight=rng.uniform(0.5, 2, len(y)))
        places[name] = (str(folder / f"{name}.zarr"), str(folder / f"{name}-test.zarr"))
        source = [str(folder / f"{name}.npz")]
        daskkern.ingest(source, places[name][0], split=0.3, out_test=places[name][1], chunk_rows=100)
    return places


@pytest.mark.long
@pytest.mark.one_in(9)
@pytest.mark.parametrize("data", ["digits", "diabetes"])
@pytest.mark.parametrize(
    "kernel", [Gaussian("median"), Laplacian(1.0), Matern(1.0, nu=1.5), PowerLaplacian("median", 1.0, 0.7)], ids=repr
)
def test_each_point_is_the_error_of_the_exact_model(
    data: str, kernel: ScaledDistanceKernel, stores: dict[str, tuple[str, str]]
) -> None:
    store, test = stores[data]
    found = sweep(store, kernel=kernel, length_scales=SCALES, alphas=ALPHAS, landmarks=60, test=test)
    assert found.n_landmarks == 60
    assert len(found.points) == 9
    assert found.best.error == min(point.error for point in found.points)
    make = KernelClassifier if data == "digits" else KernelRegressor
    for point in found.points[::4]:
        scaled = type(kernel)(
            **{**{k: v for k, v in vars(kernel).items() if k in ("nu", "p", "q")}, "length_scale": point.length_scale}
        )
        model = make(
            scaled, "squared", Landmarks(60), "direct", point.alpha, dtype="float64", device="cpu",
            fit_intercept=data == "diabetes",
        ).fit(store)  # fmt: skip
        score = model.score(test)
        if data == "digits":
            assert point.error == pytest.approx(1 - score, abs=0.006)  # one row in 210
        else:
            y = daskkern.data.storage.store.open_store(test).array("y")[...]
            assert point.error == pytest.approx(np.sqrt((1 - score) * np.var(y)), rel=2e-3)


def test_rows_are_held_out_where_no_test_rows_are_given(stores: dict[str, tuple[str, str]]) -> None:
    found = sweep(stores["digits"][0], "krls", alphas=[1e-4], landmarks=80, fraction=0.3)
    assert len({point.length_scale for point in found.points}) == 9
    assert found.best.error < 0.1
    estimator = found.estimator
    assert estimator.get_params()["alpha"] == 1e-4
    assert estimator.get_params()["kernel"] == Gaussian(found.best.length_scale)
    assert estimator.fit(stores["digits"][0]).score(stores["digits"][1]) > 0.9


def _census(path: Path, n: int = 3000) -> tuple[str, str]:
    """Store rows like a census: words as columns of 0 and 1 that add up to 1, numbers that few rows have, noisy labels.

    Landmarks are nearly dependent, and rounding takes over at small penalties.
    """
    rng = np.random.default_rng(0)
    words = [np.eye(k)[rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 0.5)))] for k in (8, 16, 7, 14, 6, 5)]
    numbers = np.stack([rng.integers(17, 90, n), rng.lognormal(8, 3, n) * (rng.random(n) < 0.1)], axis=1)
    X = np.concatenate([numbers / numbers.std(axis=0), *words], axis=1)
    score = X @ rng.standard_normal(X.shape[1]) + np.sin(2 * X[:, 0])
    y = (score + rng.logistic(size=n) > np.quantile(score, 0.7)).astype(np.int64)
    np.savez(path / "census.npz", X=X, y=y)
    stores = str(path / "census.zarr"), str(path / "census-test.zarr")
    daskkern.ingest([str(path / "census.npz")], stores[0], split=0.3, out_test=stores[1])
    return stores


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["falkon", "krls", "eigenpro2"])
def test_the_winner_fitted_again_is_as_good_as_it_was(name: str, tmp_path: Path) -> None:
    store, test = _census(tmp_path)
    found = sweep(store, name, length_scales=[4.0, 16.0], alphas=[1e-9, 1e-8], landmarks=300, test=test)
    error = found.best.error
    again = 1 - found.estimator.fit(store).score(test)
    assert abs(again - error) <= 0.25 * np.sqrt(error * (1 - error) / 900)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_workers_share_the_rows(client2: Client, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((80_000, 3))  # three shares of 32,768 rows
    np.savez(tmp_path / "d.npz", X=X, y=np.sin(X[:, 0]) + X[:, 1])
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    store = str(tmp_path / "d.zarr")
    here = sweep(store, length_scales=SCALES, alphas=ALPHAS, landmarks=20)
    there = sweep(store, length_scales=SCALES, alphas=ALPHAS, landmarks=20, client=client2)
    assert there.points == here.points


class Counted(Gaussian):
    """Counts the rows that distances are taken of."""

    rows: ClassVar[list[int]] = []

    def transform(self, X: Array) -> Array:
        self.rows.append(len(X))
        return super().transform(X)


def test_distances_are_computed_once(stores: dict[str, tuple[str, str]]) -> None:
    Counted.rows.clear()
    store, test = stores["digits"]
    sweep(store, kernel=Counted(), length_scales=SCALES, alphas=ALPHAS, landmarks=30, test=test)
    assert sum(m for m in Counted.rows if m > 30) == 700  # not of the landmarks, or for each length scale


def test_what_is_refused(stores: dict[str, tuple[str, str]], tmp_path: Path) -> None:
    store = stores["digits"][0]
    with pytest.raises(SpecError, match=r"got system nystrom_sgd for a sweep, but it is not least squares.*falkon"):
        sweep(store, "nystrom_sgd")
    with pytest.raises(SpecError, match="got system elm for a sweep, but it is not least squares"):
        sweep(store, "elm")
    with pytest.raises(SpecError, match="give a kernel of distances with one length scale"):
        sweep(store, kernel=ArcCosine(1))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="chooses its length scale; name one"):
        sweep(store, kernel=AutoKernel())
    with pytest.raises(SpecError, match="one length scale for all features"):
        sweep(store, kernel=Gaussian((1.0, 2.0)))
    with pytest.raises(SpecError, match=r"got alphas=\[\]"):
        sweep(store, alphas=[])
    with pytest.raises(SpecError, match=r"length_scales=.* at least 1e-12"):
        sweep(store, length_scales=[0.0])
