"""Dask arrays whose chunks lie on a GPU, or on its stand-in: a fit takes their features from where they lie."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pytest

from daskkern import KernelClassifier, KernelRegressor
from daskkern.arrays import HostArray
from daskkern.basis import Landmarks
from daskkern.errors import DataError
from daskkern.estimators.inputs import lazy_source
from daskkern.events import EpochFinished, Event, StageFinished
from daskkern.kernels import Gaussian, Kernel, LinearKernel
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_gpu import FakeGpu

N, D, CHUNK, EPOCHS = 240, 3, 12, 3


@pytest.fixture
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


def on_gpu(values: HostArray, xp: ModuleType) -> da.Array:
    lazy: Any = da.from_array(values, chunks=(CHUNK, D))
    return lazy.map_blocks(xp.asarray, dtype=values.dtype, meta=xp.asarray(values[:0]))


def rows() -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, (X[:, 0] + np.sin(2 * X[:, 1]) > 0).astype(int)


def settings(kernel: Kernel, loss: Loss) -> FitSettings:
    return FitSettings(
        kernel, loss, Landmarks(40), EigenPro(), max_epochs=EPOCHS, batch_size=30, device="gpu", keep_blocks="never"
    )


@pytest.mark.parametrize("loss", [Squared(), SquaredHinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("kernel", [Gaussian(2.0), LinearKernel()], ids=lambda kernel: kernel.name)
def test_features_do_not_pass_the_host_in_the_epochs(
    cupy_here: ModuleType, kernel: Kernel, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows()
    fetched: list[tuple[int, ...]] = []
    get = cupy_here.ndarray.get

    def noted(array: Any, *args: Any) -> HostArray:
        fetched.append(array.shape)
        made: HostArray = get(array, *args)
        return made

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "columns":
            monkeypatch.setattr(cupy_here.ndarray, "get", noted)
        elif isinstance(event, EpochFinished) and event.epoch == EPOCHS:
            monkeypatch.setattr(cupy_here.ndarray, "get", get)

    lazy, same = on_gpu(X, cupy_here), da.from_array(X, chunks=(CHUNK, D))
    found = fit(lazy_source(lazy, y, None, "classification")[0], settings(kernel, loss), listener=listen)
    assert len(fetched) <= 2 * N // CHUNK  # whether the numbers of a chunk are finite, and the norms of its rows
    assert all(len(shape) < 2 for shape in fetched)
    expected = fit(lazy_source(same, y, None, "classification")[0], settings(kernel, loss))
    scale = np.abs(expected.model.coef).max()
    np.testing.assert_allclose(found.model.coef, expected.model.coef, rtol=0, atol=2e-3 * scale)


def test_an_estimator_takes_them_with_weights(cupy_here: ModuleType) -> None:
    X, y = rows()
    given = {"kernel": Gaussian(2.0), "basis": Landmarks(40), "max_epochs": 2, "device": "gpu", "random_state": 0}
    weight = np.linspace(0.5, 2.0, N)
    found = KernelClassifier(**given).fit(on_gpu(X, cupy_here), y, sample_weight=weight)
    expected = KernelClassifier(**given).fit(da.from_array(X, chunks=(CHUNK, D)), y, sample_weight=weight)
    np.testing.assert_allclose(found.decision_function(X), expected.decision_function(X), rtol=0, atol=1e-3)


def test_features_that_are_not_finite_are_named(cupy_here: ModuleType) -> None:
    X, y = rows()
    X[130, 2] = np.nan
    with pytest.raises(DataError, match=r"NaN \(nan\) in row 130, column 2"):
        KernelRegressor(kernel=Gaussian(2.0), basis=Landmarks(5), device="gpu").fit(on_gpu(X, cupy_here), y)
