"""Sparse rows on a GPU, or on its stand-in: they are SciPy's, and no product of theirs waits."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend.device_rows import DeviceRows, stack_device_rows
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.uploads import Uploads
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import AdditiveLaplacian, ArcCosine, ChiSquared, Gaussian, Kernel, L1Laplacian, Laplacian
from daskkern.kernels.engines.cuda import engine
from daskkern.kernels.rows import unchecked_rows, with_ones
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import waits_counted


def _table(m: int, d: int, seed: int = 0, share: float = 0.2) -> HostArray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)) * (rng.random((m, d)) < share)


def _on(xp: ModuleType, table: HostArray) -> DeviceRows:
    found = to_device(scipy.sparse.csr_array(table), xp)
    assert isinstance(found, DeviceRows)
    return found


def _is(found: DeviceRows, table: HostArray) -> None:
    starts = found.starts
    on_host = (found.data.get(), found.indices.get(), starts)
    np.testing.assert_array_equal(scipy.sparse.csr_array(on_host, shape=found.shape).toarray(), table)
    np.testing.assert_array_equal(found.indptr.get(), starts)
    np.testing.assert_array_equal(found.toarray().get(), table)


def test_parts_of_sparse_rows_are_those_of_the_table(xp: ModuleType) -> None:
    table = _table(30, 40)
    table[[0, 7, 29]] = 0
    rows = _on(xp, table)
    numbers = np.array([7, 3, 3, 29, 0, -2])
    with waits_counted() as waits:
        parts = [rows[5:12], rows[:], rows[3:3], rows[::7], rows[numbers], stack_device_rows([rows, rows[4:9]])]
        wider, twice = with_ones(rows, 40, 41), rows.with_data(rows.data * 2)
        sums, squares = rows.row_sums(), rows.row_sums(squares=True)
    assert not waits
    expected = [table[5:12], table, table[3:3], table[::7], table[numbers], np.concatenate([table, table[4:9]])]
    for part, whole in zip(parts, expected, strict=True):
        _is(part, whole)
    _is(wider, np.concatenate([table, np.ones((30, 1))], axis=1))
    _is(twice, 2 * table)
    np.testing.assert_allclose(sums.get(), table.sum(axis=1), atol=1e-14)
    np.testing.assert_allclose(squares.get(), (table**2).sum(axis=1), rtol=1e-14)
    with pytest.raises(TypeError, match="expected whole rows"):
        rows[:, :3]  # type: ignore[index]


def test_duplicates_and_whole_numbers_are_taken(xp: ModuleType) -> None:
    given = scipy.sparse.csr_matrix((np.uint8([200, 100, 3]), [2, 2, 0], [0, 2, 2, 3]), shape=(3, 4))
    found = to_device(given, xp)
    assert found.dtype == np.float32
    _is(found, np.array([[0, 0, 300, 0], [0] * 4, [3, 0, 0, 0]]))
    assert given.nnz == 3  # the caller's rows stay as they were


def test_uploads_copy_sparse_rows_through_their_buffers(xp: ModuleType) -> None:
    uploads, tables = Uploads(xp), [_table(n, 9, n) for n in (4, 50, 3, 60, 60)]
    begun = [uploads.begin(None, scipy.sparse.csr_array(table), table[:, 0]) for table in tables[:1]]
    for k, table in enumerate(tables):
        if k + 1 < len(tables):
            begun.append(uploads.begin(None, scipy.sparse.csr_array(tables[k + 1]), tables[k + 1][:, 0]))
        nothing, X, y = begun[k]()
        assert nothing is None
        _is(X, table)
        np.testing.assert_array_equal(y.get(), table[:, 0])
    uploads.close()


KERNELS: list[Kernel] = [
    Laplacian(4.0),
    Gaussian(tuple(np.linspace(1.0, 3.0, 90))),
    L1Laplacian(9.0),
    ArcCosine(1),
    AdditiveLaplacian(2.0, n_features=90),
    ChiSquared(0.1),
]


@pytest.mark.parametrize(
    "kernel", [KERNELS[0], *(pytest.param(kernel, marks=pytest.mark.repeated) for kernel in KERNELS[1:])],
    ids=lambda kernel: kernel.name,
)  # fmt: skip
@pytest.mark.parametrize("sort", ["rows", "points", "both"])
def test_products_are_those_of_dense_rows_and_wait_for_nothing(
    xp: ModuleType, sort: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TABLE_BYTES", 1 << 15)
    p = 600 if kernel is KERNELS[0] else 100
    X, Z = (abs(_table(m, 90, m)) if kernel.name == "chi2" else _table(m, 90, m) for m in (70, p))
    X[3], Z[5] = 0, X[4]
    A, G = np.random.default_rng(2).standard_normal((p, 4)), np.random.default_rng(3).standard_normal((70, 4))
    rows = _on(xp, X) if sort != "points" else xp.asarray(X)
    points = kernel.points(_on(xp, Z) if sort != "rows" else xp.asarray(Z))
    right, pulled, head = xp.asarray(A), xp.asarray(G), xp.empty((70, 33))
    with waits_counted() as waits, unchecked_rows():
        left = kernel.left(rows, points)
        K, scores = kernel.block(left, points), kernel.matvec(left, points, right, head)
        back, both = kernel.rmatvec(left, points, pulled), kernel.double_product(left, points, right)
        kernel.points(rows)
    assert not waits
    expected = kernel.block(X, Z)
    close = {"rtol": 0, "atol": 1e-12 * float(np.abs(expected).max()) * p}
    np.testing.assert_allclose(K.get(), expected, **close)
    np.testing.assert_array_equal(head.get(), K.get()[:, :33])
    np.testing.assert_allclose(scores.get(), expected @ A, **close)
    np.testing.assert_allclose(back.get(), expected.T @ G, **close)
    np.testing.assert_allclose(
        both.get(), expected.T @ (expected @ A), rtol=0, atol=1e-9 * float(abs(both.get()).max())
    )
    assert sort == "points" or kernel.name == "chi2" or K.get()[4, 5] == kernel.block(X[4:5], X[4:5])[0, 0]


def test_few_numbers_among_many_features(xp: ModuleType) -> None:
    """Chunks of features that no row of a group has are left out, and a group's rows have numbers in different ones."""
    d = 10_000
    X, Z = (scipy.sparse.random(m, d, 5e-4, "csr", np.float32, random_state=m) for m in (21, 33))
    Z = scipy.sparse.vstack([Z, X[5:7]], format="csr")
    found = Gaussian(1.5).block(to_device(X, xp), to_device(Z, xp))
    np.testing.assert_allclose(to_host(found), Gaussian(1.5).block(X.toarray(), Z.toarray()), rtol=2e-6)


CASES: dict[str, tuple[BasisSpec, Solver[Any]]] = {
    "window": (Landmarks(40), EigenPro(window=3)),
    "all rows": (AllRows(), EigenPro()),
    "nystrom_sgd": (Landmarks(40), NystromSGD()),
}


@pytest.mark.repeated
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernel", [Gaussian(3.0), L1Laplacian(8.0)], ids=lambda kernel: kernel.name)
def test_a_fit_of_sparse_rows_is_that_of_the_cpu(xp: ModuleType, name: str, kernel: Kernel) -> None:
    basis, solver = CASES[name]
    X = _table(130, 30)
    rows = scipy.sparse.csr_array(X)
    info = SourceInfo(130, 30, "regression", None, Scaling(), None, 1, True, rows.nnz)
    source = ArraySource(rows, X[:, 0] + np.sin(X[:, 1]), None, info)
    settings = FitSettings(kernel, Squared(), basis, solver, 1e-3, max_epochs=2, batch_size=32, dtype="float64")
    there, here = (fit(source, replace(settings, device=device)).model for device in ("gpu", "cpu"))
    expected = here.scores(rows)
    np.testing.assert_allclose(there.scores(rows), expected, rtol=0, atol=1e-7 * float(np.abs(expected).max()))
    np.testing.assert_allclose(there.on("gpu").scores(rows), there.scores(rows), rtol=0, atol=1e-9)
