"""Predictions by several threads: the same bits, and nothing started where somebody has decided already."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.backend import concurrency
from daskkern.data.storage.store import open_store
from daskkern.errors import SpecError
from daskkern.evaluation.predict import write_predictions
from daskkern.evaluation.score import score_store
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.models import KernelModel


@pytest.fixture(scope="module")
def rows() -> HostArray:
    return np.random.default_rng(0).standard_normal((4500, 100)).astype(np.float32)


def _model(kernel: Kernel, rows: HostArray) -> KernelModel:
    coef = np.random.default_rng(1).standard_normal((1500, 3)).astype(np.float32)
    classes = (0, 1, 2)
    return KernelModel(kernel, rows[:1500], coef, "multinomial_logistic", "classification", classes)


@pytest.mark.parametrize("kernel", [Gaussian(10.0), Laplacian(10.0)])
def test_threads_do_not_change_the_bits_of_predictions(kernel: Kernel, rows: HostArray) -> None:
    model = _model(kernel, rows)
    for method in (model.predict, model.decision_function, model.predict_proba):
        one = method(rows, threads=1)
        for threads in (2, 3, None):
            np.testing.assert_array_equal(method(rows, threads=threads), one)
    few = model.decision_function(rows[:5], threads=1)
    np.testing.assert_array_equal(model.decision_function(rows[:5], threads=2), few)


@pytest.mark.parametrize("kernel", [Gaussian(10.0), Laplacian(10.0)])
def test_the_layout_of_rows_does_not_change_the_bits_of_predictions(kernel: Kernel, rows: HostArray) -> None:
    model = _model(kernel, rows)
    expected = model.decision_function(rows)
    for other in (
        np.asfortranarray(rows),
        np.asfortranarray(rows, np.float64),
        rows[::-1][::-1],
        np.hstack([rows] * 2),
    ):
        np.testing.assert_array_equal(model.decision_function(other[:, : rows.shape[1]]), expected)


def test_threads_do_not_change_the_bits_of_products(rows: HostArray) -> None:
    kernel, rng = Gaussian(10.0), np.random.default_rng(2)
    A, G = (rng.standard_normal((n, 3)).astype(np.float32) for n in (1500, len(rows)))
    pairs = [
        (kernel.matvec(rows, rows[:1500], A, threads=n), kernel.rmatvec(rows, rows[:1500], G, threads=n))
        for n in (1, 2, 3, None)
    ]
    for product, pulled in pairs[1:]:
        np.testing.assert_array_equal(product, pairs[0][0])
        np.testing.assert_array_equal(pulled, pairs[0][1])


def _begun_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note with how many threads products begin."""
    begun: list[int] = []
    original = concurrency.compute_threads

    def noted(n_threads: int) -> object:
        begun.append(n_threads)
        return original(n_threads)

    monkeypatch.setattr(concurrency, "compute_threads", noted)
    monkeypatch.setattr(concurrency, "cpu_count", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return begun


def test_the_threads_of_a_prediction_are_started_once(rows: HostArray, monkeypatch: pytest.MonkeyPatch) -> None:
    model, begun = _model(Gaussian(10.0), rows), _begun_threads(monkeypatch)
    model.predict(rows)
    model.predict(rows, threads=2)
    model.predict(rows[:5])
    model.kernel.matvec(rows, rows[:1500], model.coef)
    assert begun == [3, 2, 3]


def test_stores_are_predicted_and_scored_by_the_threads_asked_for(
    rows: HostArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "d.npz", X=rows, y=np.arange(len(rows)) % 3)
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    store, model, begun = open_store(tmp_path / "d.zarr"), _model(Gaussian(10.0), rows), _begun_threads(monkeypatch)
    write_predictions(model, store, tmp_path / "p.zarr", threads=2)
    scores = [score_store(model, store, threads=threads).as_dict() for threads in (1, None)]
    assert begun == [2, 1, 3]
    assert scores[0] == scores[1]


@pytest.mark.repeated
def test_a_lazy_prediction_has_one_thread_a_block(rows: HostArray, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KernelRegressor(Gaussian(10.0), basis=Landmarks(1500), max_epochs=1).fit(rows[:1500], rows[:1500, 0])
    begun = _begun_threads(monkeypatch)
    lazy = model.predict(da.from_array(rows, chunks=(2250, -1))).compute(scheduler="threads")
    assert begun == [1, 1]
    np.testing.assert_array_equal(lazy, model.predict(rows))
    assert begun == [1, 1, 3]


@pytest.mark.parametrize("wrong", [0, 1.5, "all"])
def test_wrong_threads_are_refused(wrong: object, rows: HostArray) -> None:
    model = _model(Gaussian(10.0), rows)
    with pytest.raises(SpecError, match=r"got threads=.*; expected a whole number"):
        model.predict(rows[:3], threads=wrong)  # type: ignore[arg-type]
