"""What happens before the first step, on a GPU or its stand-in, against the same on the CPU."""

import sys
from dataclasses import fields, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend import namespace
from daskkern.backend.namespace import free_on_device, free_unused_memory, namespace_with, to_device, to_host
from daskkern.basis import AllRows, BasisSpec, Landmarks, Linear, NystromFeatures, RandomFeatures, spec
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Fastfood, Gaussian, Kernel, Laplacian
from daskkern.linalg import eigen, lazy_kernel_matrix, lazy_matrices, symmetric_eigen, top_eigenpairs
from daskkern.losses import Squared
from daskkern.preconditioners import CovarianceState, NystromState, SpectrumSettings, eigenpro_state, nystrom
from daskkern.solvers import SGD, EigenPro, NystromSGD
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning import speeds
from daskkern.training.planning.measured_rates import Rates, calibrate
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.speeds import SpeedCache, Speeds
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup import feature_blocks, nystrom_sgd
from daskkern.training.setup.prepare import prepare

FAR = 300.0
WORKERS = [lazy_matrices, eigen, feature_blocks, nystrom, spec, nystrom_sgd]
"""Modules whose work goes to a device that has room."""


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that have taken the device, in the order in which they did."""
    taken: list[str] = []
    for module in WORKERS:

        def noted(device: str, n_bytes: float, name: str = module.__name__.rpartition(".")[2]) -> ModuleType:
            found = namespace_with(device, n_bytes)
            if found is not np:
                taken.append(name)
            return found

        monkeypatch.setattr(module, "namespace_with", noted)
    return taken


def _rows(n: int, d: int, seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).standard_normal((n, d)) + FAR


def _kernel_matrix(n: int = 160) -> HostArray:
    X = _rows(n, 3)
    return Gaussian(3.0).block(X, X)


@pytest.mark.parametrize("first", [0, 150])
def test_eigenpairs_of_a_matrix_on_the_device_are_made_there(xp: ModuleType, first: int) -> None:
    K = _kernel_matrix()
    values, vectors = symmetric_eigen(xp.asarray(K), first)
    assert isinstance(values, xp.ndarray)
    assert isinstance(vectors, xp.ndarray)
    assert vectors.shape == (160, 160 - first)
    np.testing.assert_allclose(values.get(), np.linalg.eigvalsh(K)[first:], atol=1e-12)
    np.testing.assert_allclose(K @ vectors.get(), vectors.get() * values.get(), atol=1e-12)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("method", ["dense", "krylov", "rsvd"])
@pytest.mark.parametrize("is_lazy", [True, False])
def test_leading_eigenpairs_agree_with_those_of_the_cpu(
    xp: ModuleType, method: str, is_lazy: bool, used: list[str]
) -> None:
    K = _kernel_matrix()
    matrix = da.from_array(K, chunks=70) if is_lazy else K
    found, expected = (top_eigenpairs(matrix, 5, method=method, device=device) for device in ("gpu", "cpu"))
    assert type(found.values) is type(found.vectors) is np.ndarray
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.vectors.T @ expected.vectors), np.eye(5), atol=1e-6)
    assert len(used) == 1 if method == "dense" or not is_lazy else len(used) > 9


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian(3.0)])
def test_blocks_of_a_lazy_matrix_are_made_on_the_device_and_wait_on_the_host(
    xp: ModuleType, kernel: Kernel, used: list[str]
) -> None:
    X, Z = _rows(40, 3), _rows(30, 3, 1)
    found = lazy_kernel_matrix(kernel, X, Z, chunk=16, device="gpu").compute()
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, kernel.block(X, Z), atol=1e-12)
    assert used == 6 * ["lazy_matrices"]


def test_the_preconditioner_is_that_of_the_cpu(xp: ModuleType, used: list[str]) -> None:
    S, H, w = _rows(120, 3), _rows(50, 3, 1), np.random.default_rng(2).uniform(0.5, 1.5, 120)
    found, expected = (
        eigenpro_state(Gaussian(3.0), S, w, H, None, SpectrumSettings(8, device=device), 1000, 0)
        for device in ("gpu", "cpu")
    )
    for name in ("damping", "eigenvalues", "beta", "top"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7)
    damped = [(state.vectors * state.damping) @ state.vectors.T for state in (found, expected)]
    np.testing.assert_allclose(*damped, atol=1e-7 * float(np.abs(damped[1]).max()))
    assert sorted(used) == ["eigen", "lazy_matrices", "lazy_matrices", "lazy_matrices"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigenfeatures_are_those_of_the_cpu(xp: ModuleType, used: list[str], dtype: str) -> None:
    X = _rows(200, 4)
    source = ArraySource(X, X[:, 0], None, SourceInfo(200, 4, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(2.0), Squared(), Landmarks(40), NystromSGD(), dtype=dtype)
    found, expected = (prepare(source, replace(settings, device=device), False).state for device in ("gpu", "cpu"))
    assert isinstance(found, NystromState)
    assert isinstance(expected, NystromState)
    assert type(found.M) is np.ndarray
    assert found.M.dtype == dtype
    accuracy = 1e-3 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(found.eigenvalues[:10], expected.eigenvalues[:10], rtol=accuracy)
    K = Gaussian(2.0).block(X, np.asarray(_landmarks(source, settings)))
    psi = [(K @ state.M)[:, :10] for state in (found, expected)]
    np.testing.assert_allclose(*psi, atol=10 * accuracy * float(np.abs(psi[1]).max()))
    assert set(used) == {"lazy_matrices", "nystrom", "nystrom_sgd"}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("basis", [RandomFeatures(600), NystromFeatures(30), Linear()])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_covariance_of_features_is_that_of_the_cpu(
    xp: ModuleType, used: list[str], basis: BasisSpec, sparse: bool
) -> None:
    if sparse and isinstance(basis, RandomFeatures):
        pytest.importorskip("cupyx.scipy.sparse", reason="the stand-in has no sparse matrices; run on a GPU")
    X: Any = np.random.default_rng(0).standard_normal((300, 8))
    X = scipy.sparse.csr_matrix(X) if sparse else X
    source = ArraySource(X, np.ones(300), None, SourceInfo(300, 8, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(4.0), Squared(), basis, EigenPro(n_directions=5), dtype="float64")
    found, expected = (prepare(source, replace(settings, device=device), False).state for device in ("gpu", "cpu"))
    assert isinstance(found, CovarianceState)
    assert isinstance(expected, CovarianceState)
    for name in ("damping", "eigenvalues", "beta", "top"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7)
    assert type(found.vectors) is np.ndarray
    damped = [(state.vectors * state.damping) @ state.vectors.T for state in (found, expected)]
    np.testing.assert_allclose(*damped, atol=1e-7 * float(np.abs(damped[1]).max()))
    assert used.count("feature_blocks") == (0 if isinstance(basis, Linear) else 2)  # the subsample; rows held out


@pytest.mark.one_in(5)
@pytest.mark.parametrize("basis", [RandomFeatures(600), NystromFeatures(30), Linear()])
def test_sizes_of_features_are_those_of_the_cpu(xp: ModuleType, used: list[str], basis: BasisSpec) -> None:
    X = np.random.default_rng(0).standard_normal((300, 8))
    source = ArraySource(X, X[:, 0], None, SourceInfo(300, 8, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(4.0), Squared(), basis, SGD(), dtype="float64")
    found, expected = (prepare(source, replace(settings, device=device), False).state for device in ("gpu", "cpu"))
    for name in ("beta", "mean_square", "top"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)
    mapped = ["spec"] * isinstance(basis, NystromFeatures)
    assert used == ([] if isinstance(basis, Linear) else [*mapped, "feature_blocks"])


def test_fast_transforms_are_those_of_the_cpu(xp: ModuleType) -> None:
    rng = np.random.default_rng(0)
    X, A, G = (rng.standard_normal(shape) for shape in ((40, 20), (100, 3), (40, 3)))
    kernel, numbers = Fastfood(Gaussian(3.0), 100, 0, 20), np.arange(100.0)[:, None]
    points, on_device = kernel.points(numbers), kernel.points(xp.asarray(numbers))
    rows = xp.asarray(X)
    head, there = np.empty((40, 7)), xp.empty((40, 7))
    scores, found = kernel.matvec(X, points, A, head), kernel.matvec(rows, on_device, xp.asarray(A), there)
    np.testing.assert_allclose(to_host(found), scores, atol=1e-12)
    np.testing.assert_allclose(to_host(there), head, atol=1e-12)
    block = to_host(kernel.block(rows, on_device))
    np.testing.assert_allclose(block, kernel.block(X, points), atol=1e-13)
    pulled = to_host(kernel.rmatvec(rows, on_device, xp.asarray(G)))
    np.testing.assert_allclose(pulled, kernel.rmatvec(X, points, G), atol=1e-12)
    some = np.array([[3.0], [70.0], [71.0]])
    np.testing.assert_allclose(to_host(kernel.block(rows, xp.asarray(some))), block[:, [3, 70, 71]], atol=1e-13)


def _landmarks(source: ArraySource, settings: FitSettings) -> HostArray:
    chosen = prepare(source, replace(settings, device="cpu"), False)
    assert chosen.indices is not None
    return np.asarray(source.X)[chosen.indices]


def test_work_without_room_on_the_device_is_done_on_the_host(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert namespace_with("gpu", 1000) is namespace_with("auto", 1000) is xp
    assert namespace_with("cpu", 1000) is np
    assert namespace_with("gpu", 1e15) is np
    monkeypatch.setattr(namespace, "free_on_device", lambda xp: 0)
    K = _kernel_matrix()
    np.testing.assert_array_equal(
        top_eigenpairs(K, 5, method="dense", device="gpu").vectors, top_eigenpairs(K, 5, method="dense").vectors
    )


def test_pools_count_as_free(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xp.cuda.runtime, "memGetInfo", lambda: (1000, 1 << 30))
    monkeypatch.setattr(xp, "get_default_memory_pool", lambda: SimpleNamespace(free_bytes=lambda: 200))
    assert free_on_device(xp) == 1200
    made = SimpleNamespace(pool_size=lambda: 50_000)
    rmm = SimpleNamespace(mr=SimpleNamespace(get_current_device_resource=lambda: made))
    monkeypatch.setitem(sys.modules, "rmm", rmm)
    assert free_on_device(xp) == 1200, "CuPy takes its memory elsewhere"

    def allocate(size: int) -> None:
        raise AssertionError

    allocate.__module__ = "rmm.allocators.cupy"
    monkeypatch.setattr(xp.cuda, "get_allocator", lambda: allocate)
    assert free_on_device(xp) == 51_200
    tracked = SimpleNamespace(upstream_mr=made, get_allocated_bytes=lambda: 20_000)
    counted = SimpleNamespace(upstream_mr=made, allocation_counts=SimpleNamespace(current_bytes=15_000))
    for outer, in_use in ((tracked, 20_000), (counted, 15_000), (SimpleNamespace(upstream_mr=tracked), 20_000)):
        rmm.mr.get_current_device_resource = lambda outer=outer: outer
        assert free_on_device(xp) == 51_200 - in_use
    rmm.mr.get_current_device_resource = lambda: made
    del made.pool_size  # memory without a pool
    assert free_on_device(xp) == 1200


def test_unused_memory_of_both_pools_is_given_back(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[str] = []
    for name in ("get_default_memory_pool", "get_default_pinned_memory_pool"):
        pool = SimpleNamespace(free_all_blocks=lambda name=name: freed.append(name))
        monkeypatch.setattr(xp, name, lambda pool=pool: pool)
    free_unused_memory(xp)
    free_unused_memory(np)
    assert freed == ["get_default_memory_pool", "get_default_pinned_memory_pool"]


def test_large_arrays_go_to_a_gpu_without_page_locked_copies(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = _rows(10, 3), np.asfortranarray(_rows(300, 7))
    pooled = []
    real = xp.asarray
    monkeypatch.setattr(xp, "asarray", lambda a, dtype=None: pooled.append(a) or real(a, dtype))
    for given in (small, large, large[::2], np.arange(400), np.zeros(2000, bool)):
        moved = to_device(given, xp, direct_bytes=1000)
        np.testing.assert_array_equal(to_host(moved), given, strict=True)
        assert to_device(moved, xp) is moved
    assert len([one for one in pooled if isinstance(one, np.ndarray)]) == 1


def test_without_a_gpu_the_set_up_does_without() -> None:
    if namespace_with("auto", 0) is not np:
        pytest.skip("this machine has a GPU; run without CUDA_VISIBLE_DEVICES to see it done without")
    assert namespace_with("gpu", 0) is np


@pytest.mark.one_in(5)
@pytest.mark.parametrize("basis", [Landmarks(40), AllRows(), NystromFeatures(40)])
def test_a_calibration_measures_the_device(xp: ModuleType, basis: BasisSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    X = _rows(200, 4)
    source = ArraySource(X, X[:, 0], None, SourceInfo(200, 4, "regression", None, Scaling(), None, 1, True))
    settings = FitSettings(Gaussian(2.0), Squared(), basis, EigenPro(), device="gpu")
    plan = upper_bound_plan(source, settings, 1, 1, 1 << 30, 1 << 30)
    assert plan.sizes is not None
    settled: list[Any] = []
    monkeypatch.setattr(speeds, "settle", settled.append)
    rates = calibrate(source, settings, plan.sizes, 1, with_disk=False)
    assert all(isinstance(made, xp.ndarray) for made in settled)
    assert len(settled) > 6
    assert all(getattr(rates, field.name) > 0 for field in fields(Rates) if field.name != "disk")


@pytest.mark.long
@pytest.mark.one_in(3)
def test_a_gpu_is_measured_once_for_the_same_operands(xp: ModuleType) -> None:
    X, cache = np.random.default_rng(0).standard_normal((40, 3)), SpeedCache()
    first = speeds.speeds(Gaussian(2.0), X, X[:20], 2, 16, 1, xp, cache)
    assert speeds.speeds(Gaussian(2.0), X, X[:20], 2, 16, 1, xp, cache) is first
    for kernel, left, outputs in ((Gaussian(3.0), X, 2), (Gaussian(2.0), X[:30], 2), (Gaussian(2.0), X, 3)):
        assert speeds.speeds(kernel, left, X[:20], outputs, 16, 1, xp, cache) is not first
    host = speeds.speeds(Gaussian(2.0), X, X[:20], 2, 16, 1, np, cache)
    assert speeds.speeds(Gaussian(2.0), X, X[:20], 2, 16, 1, np, cache) is not host  # of a host: anew


def test_speeds_are_measured_again_after_a_while() -> None:
    made = [Speeds(*[float(number)] * 7) for number in range(4)]
    measurements = iter(made)
    lasting, short = SpeedCache(), SpeedCache(seconds=0.0)  # others may have slowed a device down then
    assert [lasting.get(key, lambda: next(measurements)) for key in "aab"] == [made[0], made[0], made[1]]
    assert [short.get("a", lambda: next(measurements)) for _ in range(2)] == made[2:]
