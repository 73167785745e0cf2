"""The CUDA kernels' logic without a GPU: their text as plain C++, against twins, naive formulas and the CPU."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import sparse

from daskkern.arrays import Array, HostArray
from daskkern.backend.tiles import multiply_blocks
from daskkern.kernels import (
    KERNELS,
    AdditiveLaplacian,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    Points,
    PowerLaplacian,
    plain_products,
)
from daskkern.kernels.engines import cuda as cuda_engine
from daskkern.kernels.engines.cuda import Operands, block_by_block, block_table, engine, float32_products
from daskkern.kernels.functions.differences.base import DifferenceKernel
from daskkern.kernels.points import make_side
from daskkern.kernels.precision import Precision, exact_precision
from tests.support import naive
from tests.support.gpu import cuda_twins as twins
from tests.support.gpu.cuda_on_host import HostDevice
from tests.support.kernels.formulas import WITH_FORMULA

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH; install a C++ compiler")
RESOLVED = [KERNELS[name].kernel().resolve(np.random.default_rng(9).standard_normal((40, 5))) for name in WITH_FORMULA]
RESOLVED.append(PowerLaplacian(2.0, 1.5, 1.0))
each_kernel = pytest.mark.parametrize("kernel", RESOLVED, ids=lambda kernel: kernel.name)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> HostDevice:
    return HostDevice(tmp_path_factory.mktemp("cuda"))


def _rows(m: int, d: int, dtype: str = "float32", seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


def _operands(
    device: HostDevice, kernel: Kernel, X: Array, Z: Array, blocks: list[slice], precision: Precision = "float32"
) -> Operands:
    caps = kernel.caps(X.shape[1])
    left = make_side(X, kernel.program, left=True, caps=caps)
    right = make_side(Z, kernel.program, left=False, caps=caps)
    return Operands(device, kernel.program, left, right, blocks, block_table(device, blocks), precision)


def _blocks(p: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, p)) for start in range(0, p, step)]


def _close(found: HostArray, expected: HostArray, dtype: str) -> None:
    tolerance = 5e-6 if dtype == "float32" else 2e-14
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1e-30, np.abs(expected).max()))


def _guarded(shape: tuple[int, int], dtype: str) -> tuple[HostArray, HostArray]:
    """Return an array within a larger one, whose margin is known."""
    whole = np.full((shape[0] + 6, shape[1] + 6), 12345.0, dtype)
    return whole, whole[3:-3, 3:-3]


def _margin_is_untouched(whole: HostArray) -> None:
    inside = np.zeros(whole.shape, bool)
    inside[3:-3, 3:-3] = True
    assert (whole[~inside] == 12345.0).all()


@pytest.mark.one_in(19)
@each_kernel
@each_dtype
def test_kernels_equal_their_twins(device: HostDevice, kernel: Kernel, dtype: str) -> None:
    X, Z, A = _rows(70, 5, dtype), _rows(150, 5, dtype, 1), _rows(150, 3, dtype, 2)
    of = _operands(device, kernel, X, Z, _blocks(150, 100))
    what, left, right = kernel.program, of.left, of.right
    whole, out = _guarded((70, 150), dtype)
    cuda_engine.block(of, out)
    _margin_is_untouched(whole)
    _close(out, twins.write_block(what, left, right), dtype)
    _close(cuda_engine.matvec(of, A, None), twins.scores(what, left, right, of.blocks, A), dtype)
    _close(cuda_engine.rmatvec(of, _rows(70, 3, dtype, 3)),
           twins.scores(what, right, left, [slice(0, 70)], _rows(70, 3, dtype, 3)), dtype)  # fmt: skip
    whole, tile = _guarded((70, 150), dtype)
    tile[...] = twins.pair_sums(what, X, Z)
    expected = twins.profile(what, left, right, tile)
    engine.launch.apply_profile(device, what, left, right, tile)
    _margin_is_untouched(whole)
    _close(tile, expected, dtype)


@pytest.mark.one_in(5)
@each_kernel
def test_kernels_equal_the_formulas_of_the_papers(device: HostDevice, kernel: Kernel) -> None:
    X, Z = _rows(9, 5, "float64"), _rows(13, 5, "float64", 1)
    X[4] = 0
    out = np.empty((9, 13))
    placed = kernel.transform(X), kernel.transform(Z)  # what the formula is of, as points and left sides have them
    cuda_engine.block(_operands(device, kernel, *placed, [slice(0, 13)], "float64"), out)
    np.testing.assert_allclose(out, naive.kernel_matrix(kernel.spec(), X, Z), rtol=1e-10, atol=1e-10)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("d", [5, 70])
@pytest.mark.parametrize("kernel", [
    L1Laplacian(4.0, categories=(1, 3)), PowerLaplacian(4.0, 1.5, 1.0, categories=(1, 3)),
    AdditiveLaplacian(0.7, degree=2, categories=(1, 3)),
], ids=lambda kernel: kernel.name)  # fmt: skip
@each_dtype
def test_kernels_with_categories_are_those_of_the_cpu(
    device: HostDevice, kernel: DifferenceKernel, d: int, dtype: str
) -> None:
    X, Z, A, G = _rows(70, d, dtype), _rows(150, d, dtype, 1), _rows(150, 3, dtype, 2), _rows(70, 3, dtype, 3)
    for rows in (X, Z):
        rows[:, [1, 3]] = np.random.default_rng(len(rows)).integers(0, 90_000, (len(rows), 2)) // 30_000
    kernel = kernel.resolve(X)
    K = kernel.block(X, Z)
    of = _operands(device, kernel, kernel.transform(X), kernel.transform(Z), _blocks(150, 100))
    out = np.empty((70, 150), dtype)
    cuda_engine.block(of, out)
    _close(out, K, dtype)
    _close(twins.write_block(kernel.program, of.left, of.right), K, dtype)
    _close(cuda_engine.matvec(of, A, None), K @ A, dtype)
    _close(cuda_engine.rmatvec(of, G), K.T @ G, dtype)
    if d == 5:
        _close(twins.scores(kernel.program, of.left, of.right, of.blocks, A), K @ A, dtype)
    few = replace(of, left=make_side(sparse.csr_array(of.left.rows), kernel.program, left=True, caps=kernel.caps(d)))
    cuda_engine.block(few, out)
    _close(out, K, dtype)


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("m", "p", "d", "c", "step"), [
    (1, 1, 1, 1, 1), (257, 3, 1, 4, 3), (130, 129, 17, 17, 64), (256, 70, 33, 2, 65), (3, 700, 64, 16, 7),
    (512, 64, 8, 32, 64), (600, 65, 2, 5, 512),
])  # fmt: skip
@each_dtype
def test_products_at_every_seam(device: HostDevice, m: int, p: int, d: int, c: int, step: int, dtype: str) -> None:
    X, Z, A, G = _rows(m, d, dtype), _rows(p, d, dtype, 1), _rows(p, c, dtype, 2), _rows(m, c, dtype, 3)
    kernel = Laplacian(3.0)
    of = _operands(device, kernel, X, Z, _blocks(p, step))
    with plain_products():
        K = kernel.block(X, kernel.points(Z)).astype(np.float64)
    head = np.full((m, min(p, 5)), np.nan, dtype)
    scale = np.abs(K).sum() * 1e-6 if dtype == "float32" else np.abs(K).sum() * 1e-15
    assert np.abs(cuda_engine.matvec(of, A, head) - K @ A).max() <= scale
    assert np.abs(cuda_engine.rmatvec(of, G) - K.T @ G).max() <= scale
    assert np.abs(cuda_engine.double_product(of, A, None) - K.T @ (K @ A)).max() <= scale * m
    whole, out = _guarded((m, p), dtype)
    cuda_engine.block(of, out)
    _margin_is_untouched(whole)
    np.testing.assert_array_equal(head, out[:, : head.shape[1]])
    _close(out, K, dtype)


@pytest.mark.one_in(5)
@each_dtype
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("m", "p", "c", "step"), [(1, 1, 1, 1), (7, 40, 3, 40), (33, 129, 10, 32), (70, 65, 17, 31), (3, 700, 32, 300)]
)
def test_sums_of_blocks_equal_their_twin_and_the_loop(
    device: HostDevice, m: int, p: int, c: int, step: int, turned: bool, dtype: str
) -> None:
    whole, table = _guarded((p, m) if turned else (m, p), dtype)
    table[...] = _rows(*table.shape, dtype)
    right, blocks = _rows(p, c, dtype, 1), _blocks(p, step)
    device.launches.clear()
    found = cuda_engine.sum_over_blocks(device, table, right, blocks, turned=turned)
    assert found.dtype == np.float64
    assert set(device.launches) == {"block_sums"}
    wide = table.T if turned else table
    _close(found, twins.block_sums(wide, right, blocks, turned), dtype)
    _close(found, multiply_blocks(np.ascontiguousarray(wide), right, blocks, np), dtype)
    whole[3:-3, 3:-3] = 12345.0
    _margin_is_untouched(whole)


def test_sums_of_some_blocks_leave_the_others_out(device: HostDevice) -> None:
    left, right = _rows(5, 90), _rows(90, 2, seed=1)
    some = [slice(3, 20), slice(40, 41), slice(60, 90)]
    found = cuda_engine.sum_over_blocks(device, left, right, some, turned=False)
    _close(found, sum(left[:, cut].astype(float) @ right[cut] for cut in some), "float32")
    turned = cuda_engine.sum_over_blocks(device, left.T.copy(), right, some, turned=True)
    _close(turned, found, "float32")
    nothing = cuda_engine.sum_over_blocks(device, left[:0], right, some, turned=False)
    assert nothing.shape == (0, 2)
    assert not cuda_engine.sum_over_blocks(device, left, right, [], turned=False).any()
    assert not cuda_engine.sum_over_blocks(device, left.T.copy(), right, [], turned=True).any()


@each_dtype
def test_a_transposed_product_adds_parts_of_the_rows(
    device: HostDevice, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = _rows(1100, 70, dtype), _rows(1100, 10, dtype, 1)
    found = cuda_engine.transposed_product(device, left, right, -0.5)
    assert found.dtype == left.dtype
    _close(found, -0.5 * left.T.astype(float) @ right, dtype)
    monkeypatch.setattr(block_by_block, "PARTIAL_BYTES", 3 * 10 * 30 * left.itemsize)
    np.testing.assert_array_equal(cuda_engine.transposed_product(device, left, right, -0.5), found)


def test_equal_rows_have_distance_zero(device: HostDevice) -> None:
    for d in (1, 18, 64):
        Z = _rows(100, d) + 30
        out = np.empty((100, 100), np.float32)
        cuda_engine.block(_operands(device, Laplacian(2.0), Z.copy(), Z, [slice(0, 100)]), out)
        np.testing.assert_array_equal(out.diagonal(), 1)


def test_sums_do_not_depend_on_how_columns_are_dealt(device: HostDevice) -> None:
    X, Z, A = _rows(40, 6), _rows(1024, 6, seed=1), _rows(1024, 3, seed=2)
    whole = cuda_engine.matvec(_operands(device, Gaussian(2.0), X, Z, _blocks(1024, 128)), A, None)
    parts = [
        cuda_engine.matvec(_operands(device, Gaussian(2.0), X, Z[cut], _blocks(512, 128)), A[cut], None)
        for cut in _blocks(1024, 512)
    ]
    np.testing.assert_allclose(parts[0] + parts[1], whole, rtol=1e-15, atol=1e-13)


@pytest.mark.one_in(11)
@pytest.mark.parametrize("budget", [1, 4000, 60_000, 256 << 20])
@pytest.mark.parametrize("sort", ["wide", "sparse rows", "sparse points", "sparse"])
@each_dtype
def test_wide_and_sparse_products_in_any_workspace(
    device: HostDevice, budget: int, sort: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WORKSPACE_BYTES", budget)
    X, Z, A, G = _rows(37, 70, dtype), _rows(90, 70, dtype, 1), _rows(90, 4, dtype, 2), _rows(37, 4, dtype, 3)
    if sort != "wide":
        X, Z = X * (np.abs(X) > 1), Z * (np.abs(Z) > 1)
    kernel = Gaussian(6.0)
    K = kernel.block(X, Z).astype(np.float64)
    rows = sparse.csr_matrix(X) if sort in ("sparse rows", "sparse") else X
    points = sparse.csr_matrix(Z) if sort in ("sparse points", "sparse") else Z
    of = _operands(device, kernel, rows, points, _blocks(90, 25), "float64" if dtype == "float64" else "float32")
    head = np.full((37, 30), np.nan, dtype)
    _close(cuda_engine.matvec(of, A, head), K @ A, dtype)
    _close(head, K[:, :30], dtype)
    _close(cuda_engine.rmatvec(of, G), K.T @ G, dtype)
    doubled = cuda_engine.double_product(of, A, lambda scores, rows: scores * (1 + np.arange(37)[rows, None]))
    _close(doubled, K.T @ ((1 + np.arange(37)[:, None]) * (K @ A)), dtype)
    whole, out = _guarded((37, 90), dtype)
    cuda_engine.block(of, out)
    _margin_is_untouched(whole)
    _close(out, K, dtype)


def test_a_wide_block_with_a_place_to_go_takes_one_product(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORKSPACE_BYTES", 4000)
    X, Z = _rows(37, 70), _rows(90, 70, seed=1)
    out = np.empty((37, 90), np.float32)
    device.launches.clear()
    cuda_engine.block(_operands(device, Gaussian(6.0), X, Z, _blocks(90, 25)), out)
    assert device.launches == ["profile"]
    _close(out, Gaussian(6.0).block(X, Z).astype(np.float64), "float32")


def test_points_become_terms_once_for_as_many_rows_as_there_is_room_for(
    device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WORKSPACE_BYTES", 4000)
    X, Z = _rows(37, 70), _rows(90, 70, seed=1)
    out = np.empty((37, 90), np.float32)
    of = _operands(device, Gaussian(6.0), X, Z, _blocks(90, 25))
    for room, launches in ((12 * 72 * 90, ["tf32_terms"] * 2 + ["profile"]), (12 * 72 * 30, None)):
        monkeypatch.setattr(float32_products, "TERMS_BYTES", room)
        device.launches.clear()
        with cuda_engine.products_by("tf32x3"):
            cuda_engine.block(of, out)
        assert launches is None or device.launches == launches
        _close(out, Gaussian(6.0).block(X, Z).astype(np.float64), "float32")


@each_dtype
@pytest.mark.parametrize("kernel", [Gaussian(10.0), Laplacian(10.0)], ids=lambda kernel: kernel.name)
def test_values_of_a_wide_product_are_never_written(
    device: HostDevice, kernel: Kernel, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Z, A = _rows(75, 90, dtype), _rows(130, 90, dtype, 1), _rows(130, 10, dtype, 2)
    of = _operands(device, kernel, X, Z, _blocks(130, 60), exact_precision(dtype))
    device.launches.clear()
    found = cuda_engine.matvec(of, A, None)
    assert device.launches == ["profile_sums"]
    _close(found, kernel.block(X, Z).astype("float64") @ A, dtype)
    monkeypatch.setattr(engine, "WORKSPACE_BYTES", 20 * 130 * A.itemsize)  # tiles of rows and of columns
    device.launches.clear()
    _close(cuda_engine.matvec(of, A, None), found, dtype)
    assert device.launches == ["profile_sums"] * 6
    head = np.empty((75, 5), dtype)
    device.launches.clear()
    _close(cuda_engine.matvec(of, A, head), found, dtype)
    assert set(device.launches) == {"profile", "block_sums"}


def test_many_outputs_go_through_tiles(device: HostDevice) -> None:
    X, Z, A, G = _rows(30, 4), _rows(50, 4, seed=1), _rows(50, 40, seed=2), _rows(30, 40, seed=3)
    of = _operands(device, Gaussian(2.0), X, Z, _blocks(50, 20))
    device.launches.clear()
    K = Gaussian(2.0).block(X, Z).astype(np.float64)
    _close(cuda_engine.matvec(of, A, None), K @ A, "float32")
    _close(cuda_engine.rmatvec(of, G), K.T @ G, "float32")
    assert set(device.launches) == {"write_block"}


@pytest.mark.parametrize(("m", "p"), [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("d", [3, 70])
def test_empty_sides_give_empty_or_zero_products(device: HostDevice, m: int, p: int, d: int) -> None:
    of = _operands(device, Gaussian(2.0), _rows(m, d), _rows(p, d), _blocks(p, 4))
    cuda_engine.block(of, np.empty((m, p), np.float32))
    np.testing.assert_array_equal(cuda_engine.matvec(of, _rows(p, 2), None), np.zeros((m, 2)))
    np.testing.assert_array_equal(cuda_engine.rmatvec(of, _rows(m, 2)), np.zeros((p, 2)))
    np.testing.assert_array_equal(cuda_engine.double_product(of, _rows(p, 2), None), np.zeros((p, 2)))


@pytest.mark.parametrize("d", [5, 70])
def test_a_kernel_uses_the_engine_where_its_points_are_on_a_gpu(
    device: HostDevice, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_host(xp: ModuleType) -> HostDevice:
        assert xp is np
        return device

    monkeypatch.setattr(cuda_engine, "device_of", on_host)
    X, Z, A, G = _rows(20, d), _rows(60, d, seed=1), _rows(60, 3, seed=2), _rows(20, 3, seed=3)
    kernel = Gaussian(3.0)

    def points(rows: HostArray) -> Points:
        with plain_products():
            plain = kernel.points(rows, blocks=_blocks(len(rows), 16))
        return replace(plain, table=block_table(device, plain.blocks))

    prepared = points(Z[:25]).join(points(Z[25:]))
    assert prepared.table is not None
    np.testing.assert_array_equal(prepared.table[:3], [[0, 16], [16, 25], [25, 41]])
    K = kernel.block(X, Z).astype(np.float64)
    device.launches.clear()
    _close(kernel.block(X, prepared), K, "float32")
    _close(kernel.matvec(X, prepared, A), K @ A, "float32")
    pulled = kernel.rmatvec(X, prepared, G)
    assert pulled.dtype == np.float32
    _close(pulled, K.T @ G, "float32")
    _close(kernel.double_product(X, prepared, A), K.T @ (K @ A), "float32")
    assert set(device.launches) == ({"scores", "write_block"} if d == 5 else {"profile", "block_sums", "profile_sums"})


def test_a_missing_barrier_would_be_seen(device: HostDevice) -> None:
    text = """
    extern "C" __global__ void turned(const float* x, float* out) {
        __shared__ float held[8];
        held[threadIdx.x] = x[threadIdx.x];
        %s
        out[threadIdx.x] = held[7 - threadIdx.x];
    }"""
    x = np.arange(8, dtype=np.float32)
    results = {}
    for name, barrier in (("with", "__syncthreads();"), ("without", "")):
        results[name] = np.zeros(8, np.float32)
        device.launch(text % barrier, "turned", (1, 1), 8, [x, results[name]])
    np.testing.assert_array_equal(results["with"], x[::-1])
    assert (results["without"] != x[::-1]).any()
    with pytest.raises(AssertionError, match="did not meet"):
        device.launch(text % "if (threadIdx.x) __syncthreads();", "turned", (1, 1), 8, [x, results["with"]])


def test_the_folder_of_the_stand_in_holds_one_library_a_text(device: HostDevice) -> None:
    assert all(path.suffix in (".cpp", ".so", ".h", ".gch") for path in Path(device.folder).iterdir())
