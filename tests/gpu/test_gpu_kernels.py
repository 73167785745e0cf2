"""Every CUDA kernel against its twin, and every kernel on the GPU against itself on the CPU."""

from types import ModuleType

import numpy as np
import pytest

from daskkern.arrays import Array, HostArray
from daskkern.backend import tiles
from daskkern.backend.namespace import to_host
from daskkern.kernels import KERNELS, Gaussian, Kernel, Laplacian, PowerLaplacian, plain_products
from daskkern.kernels.engines import cuda as cuda_engine
from daskkern.kernels.engines.cuda import engine, launch
from daskkern.kernels.points import make_side
from daskkern.kernels.precision import PRECISIONS, Precision, exact_precision
from tests.support.gpu import cuda_twins as twins
from tests.support.kernels.formulas import WITH_FORMULA

pytestmark = pytest.mark.gpu
RESOLVED = [KERNELS[name].kernel().resolve(np.random.default_rng(9).standard_normal((40, 5))) for name in WITH_FORMULA]
RESOLVED.append(PowerLaplacian(2.0, 1.5, 1.0))
each_kernel = pytest.mark.parametrize("kernel", RESOLVED, ids=lambda kernel: kernel.name)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
SHAPES = [(1, 1, 1, 1), (300, 1100, 5, 10), (2000, 700, 18, 10), (513, 1025, 64, 17), (300, 1100, 200, 10)]


def _rows(m: int, d: int, dtype: str, seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


def _close(found: Array, expected: HostArray, dtype: str) -> None:
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    scale = max(1e-30, float(np.abs(expected).max(initial=0)))
    exponent = max(1.0, -np.log(scale) / 10) if scale < 1 else 1.0  # of exp(-s): the rounding of s is a share of s
    np.testing.assert_allclose(to_host(found), expected, rtol=0, atol=tolerance * exponent * scale)


def _operands(cupy: ModuleType, kernel: Kernel, X: HostArray, Z: HostArray, step: int) -> cuda_engine.Operands:
    device = cuda_engine.device_of(cupy)
    blocks = [slice(start, min(start + step, len(Z))) for start in range(0, len(Z), step)]
    left = make_side(cupy.asarray(X), kernel.program, left=True)
    right = make_side(cupy.asarray(Z), kernel.program, left=False)
    table = cuda_engine.block_table(device, blocks)
    return cuda_engine.Operands(device, kernel.program, left, right, blocks, table, exact_precision(X.dtype))


@each_kernel
@each_dtype
def test_scores_equal_their_twin(cupy: ModuleType, kernel: Kernel, dtype: str) -> None:
    of = _operands(cupy, kernel, _rows(300, 5, dtype), _rows(700, 5, dtype, 1), 100)
    A, G = cupy.asarray(_rows(700, 19, dtype, 2)), cupy.asarray(_rows(300, 3, dtype, 3))
    what = kernel.program
    expected = twins.scores(what, of.left, of.right, of.blocks, A)
    _close(cuda_engine.matvec(of, A, None), to_host(expected), dtype)
    expected = twins.scores(what, of.right, of.left, [slice(0, 300)], G)
    _close(cuda_engine.rmatvec(of, G), to_host(expected), dtype)


@each_dtype
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "p", "c", "step"), [(1, 70, 1, 32), (300, 1100, 10, 96), (1000, 5000, 32, 192)])
def test_sums_of_blocks_equal_their_twin_and_the_loop(
    cupy: ModuleType, m: int, p: int, c: int, step: int, turned: bool, dtype: str
) -> None:
    blocks = [slice(start, min(start + step, p)) for start in range(0, p, step)]
    left, right = _rows(m, p, dtype), cupy.asarray(_rows(p, c, dtype, 1))
    there = cupy.asarray(np.ascontiguousarray(left.T) if turned else left)
    device = cuda_engine.device_of(cupy)
    found = cuda_engine.sum_over_blocks(device, there, right, blocks, turned=turned)
    _close(found, to_host(twins.block_sums(cupy.asarray(left), right, blocks, turned)), dtype)
    multiply = tiles.multiply_transposed_blocks if turned else tiles.multiply_blocks
    _close(found, to_host(multiply(there, right, blocks, cupy)), dtype)
    again = cuda_engine.sum_over_blocks(device, there, right, blocks, turned=turned)
    assert bool((again == found).all())


@each_kernel
@each_dtype
def test_written_blocks_equal_their_twin(cupy: ModuleType, kernel: Kernel, dtype: str) -> None:
    of = _operands(cupy, kernel, _rows(130, 5, dtype), _rows(200, 5, dtype, 1), 100)
    out = cupy.full((134, 210), 12345.0, dtype)
    cuda_engine.block(of, out[2:-2, 3:-7])
    _close(out[2:-2, 3:-7], to_host(twins.write_block(kernel.program, of.left, of.right)), dtype)
    out[2:-2, 3:-7] = 12345
    assert bool((out == 12345).all())


@each_kernel
@each_dtype
def test_profiles_equal_their_twin(cupy: ModuleType, kernel: Kernel, dtype: str) -> None:
    of = _operands(cupy, kernel, _rows(130, 5, dtype), _rows(200, 5, dtype, 1), 100)
    tile = twins.pair_sums(kernel.program, of.left.rows, of.right.rows)
    expected = to_host(twins.profile(kernel.program, of.left, of.right, tile))
    launch.apply_profile(of.device, kernel.program, of.left, of.right, tile)
    _close(tile, expected, dtype)


@each_kernel
@each_dtype
@pytest.mark.parametrize(("m", "p", "d", "c"), SHAPES)
def test_products_are_those_of_the_cpu(
    cupy: ModuleType, kernel: Kernel, dtype: str, m: int, p: int, d: int, c: int
) -> None:
    scale = (5 / d) ** 0.5
    X, Z, A, G = _rows(m, d, dtype) * scale, _rows(p, d, dtype, 1) * scale, _rows(p, c, dtype, 2), _rows(m, c, dtype, 3)
    X, Z = X.astype(dtype), Z.astype(dtype)
    with plain_products():
        expected = kernel.block(X.astype("float64"), kernel.points(Z.astype("float64")))
    points = kernel.points(cupy.asarray(Z))
    assert points.table is not None
    left = kernel.left(cupy.asarray(X), points)
    head = cupy.empty((m, min(p, 7)), dtype)
    A_gpu, G_gpu = cupy.asarray(A), cupy.asarray(G)
    _close(kernel.block(left, points), expected, dtype)
    total = float(np.abs(expected).sum())
    tolerance = (1e-6 if dtype == "float32" else 1e-14) * total
    assert np.abs(to_host(kernel.matvec(left, points, A_gpu, head)) - expected @ A).max() <= tolerance
    _close(head, expected[:, : head.shape[1]], dtype)
    assert np.abs(to_host(kernel.rmatvec(left, points, G_gpu)) - expected.T @ G).max() <= tolerance
    doubled = to_host(kernel.double_product(left, points, A_gpu))
    assert (
        np.abs(doubled - expected.T @ (expected @ A)).max() <= tolerance * max(1.0, float(np.abs(expected).max())) * m
    )


@each_kernel
def test_the_engine_equals_the_plain_one_on_the_same_device(cupy: ModuleType, kernel: Kernel) -> None:
    X, Z = cupy.asarray(_rows(400, 100, "float32") / 5), cupy.asarray(_rows(900, 100, "float32", 1) / 5)
    with plain_products():
        plain = kernel.points(Z)
    assert plain.table is None
    _close(kernel.block(X, kernel.points(Z)), to_host(kernel.block(X, plain)), "float32")


def test_the_same_call_gives_the_same_bits(cupy: ModuleType) -> None:
    X, Z = cupy.asarray(_rows(3000, 18, "float32")), cupy.asarray(_rows(5000, 18, "float32", 1))
    A = cupy.asarray(_rows(5000, 10, "float32", 2))
    points = Gaussian(4.0).points(Z)
    first = to_host(Gaussian(4.0).matvec(X, points, A))
    for _ in range(5):
        np.testing.assert_array_equal(to_host(Gaussian(4.0).matvec(X, points, A)), first)


@pytest.mark.parametrize("budget", [1 << 12, 1 << 20])
def test_wide_products_fit_any_workspace(cupy: ModuleType, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Z, A = _rows(300, 100, "float32"), _rows(700, 100, "float32", 1), _rows(700, 4, "float32", 2)
    kernel = Gaussian(10.0)
    points, rows, factor = kernel.points(cupy.asarray(Z)), cupy.asarray(X), cupy.asarray(A)
    expected = to_host(kernel.matvec(rows, points, factor))
    monkeypatch.setattr(engine, "WORKSPACE_BYTES", budget)
    _close(kernel.matvec(rows, points, factor), expected, "float32")


@pytest.mark.parametrize("d", [1, 18, 64, 200, 784])
def test_equal_rows_have_distance_zero(cupy: ModuleType, d: int) -> None:
    Z = cupy.asarray(_rows(300, d, "float32") + 30)
    K = to_host(Laplacian(2.0).block(Z.copy(), Z))
    np.testing.assert_array_equal(K.diagonal(), np.ones(300, np.float32))


@pytest.mark.parametrize("sort", ["rows", "points", "both"])
@each_dtype
def test_sparse_products_are_those_of_dense_rows(cupy: ModuleType, sort: str, dtype: str) -> None:
    cupyx_sparse = pytest.importorskip("cupyx.scipy.sparse")
    X, Z = _rows(200, 90, dtype), _rows(300, 90, dtype, 1)
    X, Z = X * (np.abs(X) > 1), Z * (np.abs(Z) > 1)
    A, G = _rows(300, 4, dtype, 2), _rows(200, 4, dtype, 3)
    kernel = Gaussian(8.0)
    K = kernel.block(X, Z).astype("float64")
    rows, given = cupy.asarray(X), cupy.asarray(Z)
    points = kernel.points(cupyx_sparse.csr_matrix(given) if sort != "rows" else given)
    assert points.table is not None
    left = kernel.left(cupyx_sparse.csr_matrix(rows) if sort != "points" else rows, points)
    _close(kernel.block(left, points), K, dtype)
    _close(kernel.matvec(left, points, cupy.asarray(A)), K @ A, dtype)
    _close(kernel.rmatvec(left, points, cupy.asarray(G)), K.T @ G, dtype)


def test_sparse_entries_of_one_place_are_added(cupy: ModuleType) -> None:
    cupyx_sparse = pytest.importorskip("cupyx.scipy.sparse")
    rng = np.random.default_rng(0)
    indptr = np.arange(0, 41 * 30, 30, dtype=np.int32)
    parts = (rng.standard_normal(1200), rng.integers(0, 9, 1200).astype(np.int32), indptr)
    dense = np.zeros((40, 9))
    np.add.at(dense, (np.repeat(np.arange(40), 30), parts[1]), parts[0])
    X = cupyx_sparse.csr_matrix(tuple(cupy.asarray(part) for part in parts), shape=(40, 9))
    _close(Gaussian(3.0).block(X, X), Gaussian(3.0).block(dense, dense), "float64")
    assert X.nnz == 1200  # the caller's matrix stays as it was


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("d", [18, 200])
def test_a_precision_means_the_same_as_on_the_cpu(cupy: ModuleType, precision: Precision, d: int) -> None:
    X, Z = _rows(200, d, "float32"), _rows(300, d, "float32", 1)
    kernel = Gaussian(d**0.5)
    on_cpu = kernel.block(X, kernel.points(Z, precision=precision))
    on_gpu = kernel.block(cupy.asarray(X), kernel.points(cupy.asarray(Z), precision=precision))
    _close(on_gpu, on_cpu, "float64" if precision == "float64" else "float32")


def test_float32_is_exact_whatever_cupy_is_told(cupy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPY_TF32", "1")
    X, Z = _rows(300, 784, "float32"), _rows(400, 784, "float32", 1)
    out = cupy.empty((300, 400), np.float32)
    cuda_engine.device_of(cupy).multiply(
        cupy.asarray(X), cupy.asarray(Z), out, turn_left=False, turn_right=True, precision="float32"
    )
    expected = X.astype(np.float64) @ Z.T.astype(np.float64)
    assert np.abs(to_host(out) - expected).max() < 1e-4  # TF32 errs by about 1e-2 here
