"""Dask arrays whose chunks lie on the GPUs of workers, or on a stand-in for them: ranks take them from there."""

import itertools
import pickle
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.basis import Landmarks
from daskkern.cluster.gang.settings import GangSettings
from daskkern.errors import DataError
from daskkern.estimators.inputs import lazy_source
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding import cluster_blocks
from daskkern.training.feeding.cluster_blocks import BlockSource, DeviceFeatures
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import one_process_cluster
from tests.support.gpu.fake_gpu import FakeGpu

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

N, D, CHUNK, EPOCHS = 240, 3, 20, 3


@pytest.fixture(scope="module")
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


@pytest.fixture(scope="module", params=[1, 2])
def client(request: Any, cupy_here: ModuleType) -> Iterator[Client]:
    with one_process_cluster(request.param) as client:
        yield client


seeds = itertools.count()


def rows() -> tuple[HostArray, HostArray]:
    """Return rows of which Dask knows none yet: keys that are released and used again may be lost."""
    rng = np.random.default_rng(next(seeds))
    X = (5.0 + rng.normal(size=(N, D))).astype(np.float32)
    return X, (X[:, 0] + np.sin(2 * X[:, 1]) > 5).astype(int)


def moved(chunk: HostArray) -> Any:
    """Return a chunk on the GPU of this process; a function that Dask can send."""
    return sys.modules["cupy"].asarray(chunk)


def on_gpu(values: HostArray) -> da.Array:
    lazy: Any = da.from_array(values, chunks=(CHUNK, D))
    return lazy.map_blocks(moved, dtype=values.dtype, meta=moved(values[:0]))


def settings(**others: Any) -> FitSettings:
    given = {"max_epochs": EPOCHS, "batch_size": 30, "device": "gpu", "keep_blocks": "never", **others}
    return FitSettings(Gaussian(2.0), SquaredHinge(), Landmarks(40), EigenPro(), **given)


class Copies:
    """The rows of features that the feed of a rank, or a thread that reads for it, has copied to the host."""

    def __init__(self, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.rows_of_all = 0
        get = xp.ndarray.get

        def noted(array: Any, *args: Any) -> HostArray:
            if array.ndim == 2 and array.shape[1] == D:
                self.rows_of_all += len(array)
                files = {Path(frame.filename).name for frame in traceback.extract_stack(limit=40)}
                if "feed.py" in files or threading.current_thread().name.startswith("daskkern-read"):
                    self.rows += len(array)
            made: HostArray = get(array, *args)
            return made

        monkeypatch.setattr(xp.ndarray, "get", noted)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("held", "scale"), [(True, None), (False, "auto")], ids=["held", "lazy, scaled"])
def test_ranks_take_features_from_where_they_lie(
    client: Client, cupy_here: ModuleType, held: bool, scale: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows()
    n_workers = len(client.scheduler_info()["workers"])
    gang = GangSettings(idle_s=60.0)
    lazy = on_gpu(X)
    if held:
        lazy = client.persist(lazy)
    copies = Copies(cupy_here, monkeypatch)
    source = lazy_source(lazy, y, None, "classification")[0]
    found = fit(source, settings(scale=scale), client=client, gang=gang)
    same = lazy_source(da.from_array(X, chunks=(CHUNK, D)), y, None, "classification")[0]
    expected = fit(same, settings(scale=scale), client=client, gang=gang)
    assert copies.rows_of_all >= 40  # landmarks, at least
    assert copies.rows <= (0 if n_workers == 1 else N)  # each other rank gets those that lie elsewhere once
    most = np.abs(expected.model.coef).max()
    np.testing.assert_allclose(found.model.coef, expected.model.coef, rtol=0, atol=2e-3 * most)


def test_arrays_that_are_too_large_go_to_host_memory(
    client: Client, cupy_here: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows()
    monkeypatch.setattr(cluster_blocks, "ROWS_SHARE", 1e-9)
    for lazy, stays in ((on_gpu(X), False), (client.persist(on_gpu(X)), True)):
        source, futures = lazy_source(lazy, y, None, "classification")[0].for_cluster(client)
        assert isinstance(source, BlockSource)
        assert source.on_gpu == stays
        assert (source.bytes_on_workers < 8 * N * 2) == stays  # targets alone
        features = [X for X, _, _ in client.gather(list(futures))]
        assert {type(part) for part in features} == {np.ndarray}  # of this client
        np.testing.assert_array_equal(np.concatenate(features), X)


def test_what_leaves_the_process_is_a_copy_in_host_memory(cupy_here: ModuleType) -> None:
    X, _ = rows()
    sent = pickle.loads(pickle.dumps(DeviceFeatures(cupy_here.asarray(X))))
    assert type(sent) is np.ndarray
    np.testing.assert_array_equal(sent, X)


def test_features_that_are_not_finite_are_named(client: Client, cupy_here: ModuleType) -> None:
    X, y = rows()
    X[130, 2] = np.inf
    lazy = client.persist(on_gpu(X))
    source = lazy_source(lazy, y, None, "classification")[0]
    with pytest.raises(DataError, match=r"infinity \(inf\) in row 130, column 2"):
        fit(source, settings(), client=client, gang=GangSettings(idle_s=60.0))
