"""Rows that lie on a GPU, from which each epoch gathers its own batches."""

from types import ModuleType

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.batches import iter_batches
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian, Polynomial
from daskkern.losses import Squared
from daskkern.solvers import Batch, EigenPro
from daskkern.training.feeding.row_cache import DeviceRowCache
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import launches_counted
from tests.support.gpu.fake_gpu import FakeGpu

N, M = 230, 20


def _plan(rows: ArrayRows) -> BatchPlan:
    return BatchPlan(rows.n_rows, rows.chunk_rows, M, seed=3, window_rows=64, reshuffle=True)


def _full(rows: ArrayRows, plan: BatchPlan, xp: ModuleType) -> DeviceRowCache:
    cache = DeviceRowCache(rows.n_rows, xp)
    cache.begin(whole=True)
    for item in iter_batches(rows, plan, 1):
        assert not cache.is_full
        X, y, weight = (xp.asarray(values) for values in (item.block.X, item.block.y, item.block.weight[:, None]))
        excess = np.where(item.positions == 7, 0.5, 0.0)
        cache.add(Batch(X, y, weight, item.positions, None, last=False), excess)
    assert cache.is_full
    return cache


@pytest.mark.parametrize("start", [0, 5])
def test_later_epochs_have_the_batches_of_the_source(xp: ModuleType, start: int) -> None:
    rng = np.random.default_rng(0)
    y, weight = rng.standard_normal((N, 2)), rng.uniform(1, 2, N)
    rows = ArrayRows(rng.standard_normal((N, 3)), y, weight=weight, chunk_rows=16)
    plan = _plan(rows)
    cache = _full(rows, plan, xp)
    for epoch in (2, 3):
        wanted = list(iter_batches(rows, plan, epoch, start=start))
        found = list(cache.batches(plan, epoch, start))
        assert [index for index, _ in found] == [item.index for item in wanted]
        assert [batch.last for _, batch in found] == [False] * (len(wanted) - 1) + [True]
        for (_, batch), item in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(batch.positions, item.positions)
            np.testing.assert_array_equal(batch.X.get(), item.block.X)
            np.testing.assert_array_equal(batch.y.get(), item.block.y)
            np.testing.assert_array_equal(batch.weight.get()[:, 0], item.block.weight)
            assert batch.excess == (0.5 if 7 in item.positions else 0.0)


def test_a_pass_that_begins_later_does_not_fill_it(xp: ModuleType) -> None:
    rows = ArrayRows(np.ones((N, 3)), np.ones(N), chunk_rows=16)
    plan, cache = _plan(rows), DeviceRowCache(N, xp)
    for start in (4, 0):
        cache.begin(whole=start == 0)
        assert cache.is_filling == (start == 0)
        for item in iter_batches(rows, plan, 1, start=start) if cache.is_filling else ():
            cache.add(
                Batch(xp.asarray(item.block.X), xp.asarray(item.block.y), None, item.positions, None, False), None
            )
        assert cache.is_full == (start == 0)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "read"])
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Polynomial(2, 1.0, 1.0)], ids=["gaussian", "polynomial"])
def test_fits_read_rows_once(
    stand_in: FakeGpu, kernel: Gaussian | Polynomial, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArrayRows, "in_memory", in_memory)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((N, 3))
    X[9] *= 6  # a long row: some batch has an excess
    source = ArraySource(
        X, np.sin(X[:, 0]), rng.uniform(0.5, 1.5, N), SourceInfo(N, 3, "regression", None, Scaling(), None, 1, True)
    )
    found = []
    for device in ("gpu", "cpu"):
        settings = FitSettings(
            kernel, Squared(), Landmarks(40), EigenPro(window=2), batch_size=M, sampling="fresh", device=device,
            max_epochs=4, alpha=1e-3, dtype="float64",
        )  # fmt: skip
        with stand_in.installed(), launches_counted() as names:
            found.append(fit(source, settings).model.predict(X))
        epochs = 4 if in_memory else 3  # that gather: rows that are read fill it in the first
        assert names.count("take") == (3 * epochs if device == "gpu" else 0)
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
