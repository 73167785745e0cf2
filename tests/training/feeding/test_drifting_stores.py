"""Rows in the order of a drift train like rows in a random order, although a window holds a few chunks of them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.basis import BasisSpec, Landmarks, RandomFeatures
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Fields
from daskkern.data.schema.schema import Scaling
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import SGD, SVRG, EigenPro, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.feeding.targets import learn_targets
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.row_sizes import RowSizes
from daskkern.training.setup.window_rows import window_eigenvalue_ratio
from tests.support.cluster import local_cluster

N, D, TEST = 4000, 4, 500


@pytest.fixture(scope="module")
def walk() -> tuple[HostArray, HostArray]:
    """Return rows of an AR(1) process that goes through its range a few times, and a smooth function of them."""
    rng = np.random.default_rng(4)
    X = np.empty((N + TEST, D))
    X[0] = rng.standard_normal(D)
    rho = np.exp(-1 / 700)
    for t, noise in enumerate(rng.standard_normal((N + TEST - 1, D)) * np.sqrt(1 - rho**2), 1):
        X[t] = rho * X[t - 1] + noise
    return X, np.sin(1.5 * X[:, 0]) + np.tanh(X[:, 1] * X[:, 2]) + 0.05 * rng.standard_normal(N + TEST)


def _error(walk: tuple[HostArray, HostArray], place: Path, *, shuffled: bool) -> float:
    """Return the share of the variance of held-out rows that a fit on a store of the others leaves."""
    X, y = walk
    rng = np.random.default_rng(0)
    test, train = np.split(rng.permutation(N + TEST), [TEST])
    train = train if shuffled else np.sort(train)
    with StoreWriter(place, n_features=D, task="regression", chunk_rows=500) as writer:
        writer.append(X[train], y[train, None])
    settings = FitSettings(Gaussian(2.0), Squared(), Landmarks(200), EigenPro(), 1e-6, max_epochs=5, batch_size=50)
    model = fit(StoreSource.at(str(place)), settings).model
    found = np.asarray(model.predict(X[test].astype(np.float32))).reshape(-1)
    return float(np.mean((found - y[test]) ** 2) / np.var(y[test]))


@pytest.mark.repeated
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_drift_costs_nothing(
    walk: tuple[HostArray, HostArray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskkern.training.setup.shared.DEFAULT_WINDOW_BYTES", 4 * D * 500)  # 1 of 8 chunks
    shuffled = _error(walk, tmp_path / "shuffled", shuffled=True)
    assert _error(walk, tmp_path / "walk", shuffled=False) < shuffled + 0.003
    whole = StoreRows.__init__

    def in_chunks(self: StoreRows, *arguments: object) -> None:
        whole(self, *arguments)  # type: ignore[arg-type]
        self.reads_pieces = False

    monkeypatch.setattr(StoreRows, "__init__", in_chunks)
    # Windows of whole chunks are no samples: steps then are as long as their own rows allow.
    assert _error(walk, tmp_path / "whole", shuffled=False) < shuffled + 0.003


@pytest.mark.long
@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("solver", "basis"),
    [
        (EigenPro(), Landmarks(200)),
        (EigenPro(), RandomFeatures(200)),
        (NystromSGD(mode="streamed"), Landmarks(200)),
        (SGD(), RandomFeatures(200)),
        (SVRG(), RandomFeatures(200)),
    ],
    ids=lambda part: part.name,
)
def test_rows_sorted_by_a_feature_in_narrow_windows_do_not_diverge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: Solver[object], basis: BasisSpec
) -> None:
    """A narrow store whose windows are one chunk of 8, forced: each holds an eighth of the range of a feature."""
    monkeypatch.setattr("daskkern.training.setup.shared.DEFAULT_WINDOW_BYTES", 4 * D * 500)
    monkeypatch.setattr(BatchPlan, "for_rows", staticmethod(_in_chunks(BatchPlan.for_rows)))
    rng = np.random.default_rng(2)
    X = rng.standard_normal((N, D))
    X[:, 0] *= 3
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    settings = FitSettings(Gaussian(3.0), Squared(), basis, solver, 1e-6, max_epochs=4, batch_size=100)
    left = []
    for name, order in (("sorted", np.argsort(X[:, 0])), ("shuffled", rng.permutation(N))):
        with StoreWriter(tmp_path / name, n_features=D, task="regression", chunk_rows=500) as writer:
            writer.append(X[order], y[order, None])
        found = fit(StoreSource.at(str(tmp_path / name)), settings)
        assert found.finished.best_epoch == 0
        scores = np.asarray(found.model.predict(X.astype(np.float32))).reshape(-1)
        left.append(float(np.mean((scores - y) ** 2) / np.var(y)))
    assert left[0] < 0.4 + left[1]


def _in_chunks(make: Callable[..., BatchPlan]) -> Callable[..., BatchPlan]:
    return lambda *arguments, **named: replace(make(*arguments, **named), piece_rows=0)


def test_the_rows_of_narrow_windows_are_more_alike_in_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.setup.shared.DEFAULT_WINDOW_BYTES", 4 * D * 500)
    X = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32) * [3, 1, 1, 1]
    y, kernel = np.sin(X[:, :1]), Gaussian(2.0)
    settings = FitSettings(kernel, Squared(), Landmarks(10), EigenPro(), batch_size=50)
    found = {}
    for name, order in (("random", np.arange(N)), ("sorted", np.argsort(X[:, 0]))):
        rows = ArrayRows(X[order], y[order], chunk_rows=500, dtype="float32")
        targets = learn_targets(rows, settings)
        sizes, _ = RowSizes.measured(settings, X, None)
        found[name] = window_eigenvalue_ratio(rows, settings, targets, None, sizes, lambda X: kernel.block(X, X), 10)
    assert found["random"] == 1.0
    assert found["sorted"] > 2


def test_windows_of_a_long_store_are_found_without_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.training.setup.shared.DEFAULT_WINDOW_BYTES", 4 * D * 500)
    monkeypatch.setattr(BatchPlan, "order", None)  # as many numbers as batches, and before steps are known, as rows
    X = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    y, kernel = np.sin(X[:, :1]), Gaussian(2.0)
    settings = FitSettings(kernel, Squared(), Landmarks(10), EigenPro())
    rows = ArrayRows(X, y, chunk_rows=500, dtype="float32")
    sizes, _ = RowSizes.measured(settings, X, None)
    targets = learn_targets(rows, settings)
    assert window_eigenvalue_ratio(rows, settings, targets, None, sizes, lambda X: kernel.block(X, X), 10) == 1.0


def test_a_window_of_pieces_reads_its_own_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreWriter(tmp_path / "s", n_features=2048, chunk_rows=512) as writer:
        writer.append(np.zeros((2048, 2048), np.float32))
    rows = StoreRows(open_store(tmp_path / "s"))
    plan = BatchPlan.for_rows(rows, 64, window_bytes=4 << 20)
    assert (plan.piece_rows, plan.n_windows) == (32, 4)
    read: list[int] = []
    preadv = os.preadv

    def counted(file: int, buffers: list[memoryview], offset: int) -> int:
        read.append(preadv(file, buffers, offset))
        return read[-1]

    monkeypatch.setattr(os, "preadv", counted)
    for window in range(plan.n_windows):
        positions = np.sort(np.concatenate([plan.positions(batch) for batch in plan.batches_of(window)]))
        assert sum(places.stop - places.start for places, _ in rows.parts_at(positions, Fields.X)) == positions.size
    assert sum(read) == 2048 * 2048 * 4


@pytest.mark.cluster
def test_arrays_are_cut_alike_here_and_on_a_cluster() -> None:
    info = SourceInfo(3000, 784, "regression", None, Scaling(), None, 1, False)
    source = ArraySource(np.zeros((3000, 784), np.float32), np.zeros((3000, 1)), None, info)
    here = source.open("float32")
    with local_cluster(1) as client:
        there = source.for_cluster(client)[0].open("float32")
    assert here.chunk_rows == there.chunk_rows == (512 << 10) // (4 * 784)
    for bytes_of_window in (64 << 20, 1 << 20):
        plans = [BatchPlan.for_rows(rows, 50, window_bytes=bytes_of_window) for rows in (here, there)]
        assert plans[0] == plans[1]
