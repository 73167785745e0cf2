"""The compiled engine against its plain twin: every register width, every edge, any number of threads."""

import itertools
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.arrays import Array, HostArray
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.machine_code import compiler as machine
from daskkern.errors import DataError
from daskkern.kernels import Gaussian, Kernel, Laplacian, Matern, Polynomial, plain_products
from daskkern.kernels.engines.native import compiler, is_supported
from daskkern.kernels.engines.native.engine import whole_tiles
from daskkern.kernels.engines.native.invoke import LEAST_ROWS
from daskkern.kernels.formula import PAIR, Expression, Pair, exp, log, maximum, program, sqrt

WIDTHS = [16, 32, 64]
pytestmark = pytest.mark.skipif(
    machine.register_bytes() == 0, reason="this processor has no vectors that the engine knows; run on x86-64 or arm64"
)
each_width = pytest.mark.parametrize("width", WIDTHS)


@pytest.fixture
def registers(width: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compile for registers of `width` bytes; LLVM splits those that this processor has not."""
    monkeypatch.setattr(machine, "register_bytes", lambda: width)
    return width


def _rows(m: int, d: int, dtype: str = "float32", seed: int = 0) -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


def _csr(rows: HostArray, share: float = 0.4, seed: int = 0) -> scipy.sparse.csr_array:
    kept = np.random.default_rng(seed).random(rows.shape) < share
    kept[:: max(1, rows.shape[0] // 3)] = False  # empty rows
    return scipy.sparse.csr_array(rows * kept)


def _plain(kernel: Kernel, X: Array, Z: Array) -> HostArray:
    with plain_products():
        block: HostArray = kernel.block(X, Z)
    return block


@pytest.mark.long
@pytest.mark.one_in(47)
@each_width
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "p", "d", "c"), [(1, 1, 1, 1), (13, 31, 3, 2), (51, 700, 300, 7), (250, 90, 17, 11)])
@pytest.mark.parametrize("sparse", ["", "X", "Z", "XZ"])
@pytest.mark.usefixtures("registers")
def test_every_product_equals_the_plain_twin(dtype: str, m: int, p: int, d: int, c: int, sparse: str) -> None:
    kernel = Gaussian(d**0.5)
    X: Array = _rows(m, d, dtype)
    Z: Array = _rows(p, d, dtype, seed=1)
    X = _csr(X) if "X" in sparse else X
    Z = _csr(Z, seed=1) if "Z" in sparse else Z
    A, G = _rows(p, c, dtype, seed=2), _rows(m, c, dtype, seed=3)
    block = _plain(kernel, X, Z).astype(np.float64)
    rounding = 2e-6 if dtype == "float32" else 1e-13
    head = np.full((m, min(p, 40)), np.nan, dtype)
    np.testing.assert_allclose(kernel.block(X, Z), block, rtol=0, atol=rounding)
    np.testing.assert_allclose(kernel.matvec(X, Z, A, head), block @ A, rtol=0, atol=rounding * 4 * p**0.5)
    np.testing.assert_allclose(head, block[:, : head.shape[1]], rtol=0, atol=rounding)
    np.testing.assert_allclose(kernel.rmatvec(X, Z, G), block.T @ G, rtol=0, atol=rounding * 4 * m**0.5)
    double = block.T @ (block @ A)
    scale = max(1.0, float(np.abs(double).max()))
    np.testing.assert_allclose(kernel.double_product(X, Z, A), double, rtol=0, atol=rounding * 4 * p**0.5 * scale)


@pytest.mark.one_in(5)
@each_width
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", [Gaussian(4.0), Laplacian(4.0), Matern(4.0, 1.5)], ids=lambda kernel: kernel.name)
@pytest.mark.usefixtures("registers")
def test_processors_without_avx512_give_the_same_values(
    kernel: Kernel, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_avx512", lambda: False)
    X, Z = _rows(31, 17, dtype), _rows(90, 17, dtype, seed=1)
    X[:5] = Z[:5]
    rounding = 2e-6 if dtype == "float32" else 1e-13
    found = kernel.block(X, Z)
    np.testing.assert_allclose(found, _plain(kernel, X, Z), rtol=0, atol=rounding)
    if kernel.program.cuts_off:
        np.testing.assert_array_equal(found[:5, :5].diagonal(), np.ones(5))


@pytest.mark.one_in(11)
@pytest.mark.parametrize("n", [1, 300, 513, 1100])
@pytest.mark.parametrize("c", [1, 9, 40])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_symmetric_case_is_exactly_symmetric_and_equals_the_twin(n: int, c: int, sparse: bool) -> None:
    kernel = Laplacian(9.0)
    X: Array = _csr(_rows(n, 70)) if sparse else _rows(n, 70)
    A = _rows(n, c, seed=1)
    expected = _plain(kernel, X, X).astype(np.float64)
    block = kernel.block(X, X)
    assert np.array_equal(block, block.T)
    assert np.array_equal(np.diagonal(block), np.ones(n))
    np.testing.assert_allclose(block, expected, rtol=0, atol=5e-6)
    np.testing.assert_allclose(kernel.matvec(X, X, A), expected @ A, rtol=0, atol=5e-6 * 4 * n**0.5)


def test_the_function_between_the_two_sides_sees_every_row_once() -> None:
    kernel = Gaussian(2.0)
    X, Z, V, y = _rows(1300, 4), _rows(900, 4, seed=1), _rows(900, 2, seed=2), _rows(1300, 2, seed=3)
    seen = np.zeros(1300, int)

    def hinge(scores: HostArray, rows: slice) -> HostArray:
        seen[rows] += 1
        return np.maximum(scores - y[rows], 0)

    with compute_threads(2):
        found = kernel.double_product(X, Z, V, hinge)
    K = _plain(kernel, X, Z).astype(np.float64)
    assert (seen == 1).all()
    expected = K.T @ np.maximum(K @ V - y, 0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@given(
    p=st.integers(1, 300),
    edges=st.lists(st.integers(0, 300), max_size=4),
    m=st.integers(1, 60),
    c=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_columns_that_are_split_over_two_owners_give_the_same_sums(p: int, edges: list[int], m: int, c: int) -> None:
    cuts = sorted({0, p, *(edge for edge in edges if edge < p)})
    blocks = [slice(start, stop) for start, stop in itertools.pairwise(cuts)]
    kernel = Gaussian(3.0)
    X, Z, A = _rows(m, 5), _rows(p, 5, seed=1), _rows(p, c, seed=2)
    whole = kernel.matvec(X, kernel.points(Z, blocks=blocks), A)
    parts = np.zeros_like(whole)
    for block in blocks:
        parts += kernel.matvec(X, kernel.points(Z[block]), A[block])
    np.testing.assert_allclose(parts, whole, rtol=1e-14, atol=1e-14 * p)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("product", ["block", "matvec", "rmatvec", "double_product"])
def test_any_number_of_threads_gives_the_same_bits(product: str) -> None:
    kernel = Laplacian(2.0)
    X, Z = _rows(1500, 6), _rows(2100, 6, seed=1)
    factor = {"block": [], "rmatvec": [_rows(1500, 3)]}.get(product, [_rows(2100, 3)])
    alone = getattr(kernel, product)(X, Z, *factor)
    for n_threads in (2, 5):
        with compute_threads(n_threads):
            assert np.array_equal(getattr(kernel, product)(X, Z, *factor), alone)


def test_joined_points_are_the_points_of_the_joined_rows() -> None:
    kernel = Gaussian(2.0)
    first, later, X = _rows(45, 3), _rows(70, 3, seed=1), _rows(20, 3, seed=2)
    A, G = _rows(115, 4, seed=3), _rows(20, 4, seed=4)
    joined = kernel.points(first).join(kernel.points(later))
    rows = np.concatenate([first, later])
    assert joined.size == 115
    np.testing.assert_allclose(kernel.block(X, joined), kernel.block(X, rows), atol=1e-7)
    np.testing.assert_allclose(kernel.matvec(X, joined, A), kernel.matvec(X, rows, A), atol=1e-5)
    np.testing.assert_allclose(kernel.rmatvec(X, joined, G), kernel.rmatvec(X, rows, G), atol=1e-5)
    again = joined.join(kernel.points(later))
    np.testing.assert_allclose(kernel.block(X, again)[:, 115:], kernel.block(X, later), atol=1e-7)


def test_rows_with_gaps_and_transposed_rows_are_read_right() -> None:
    kernel = Gaussian(2.0)
    base = _rows(60, 12)
    for X in (base[::2], base[:, ::3], np.asfortranarray(base), base[::-1]):
        Z = X[:7]
        np.testing.assert_allclose(kernel.block(X, Z), _plain(kernel, np.ascontiguousarray(X), Z), atol=2e-6)
    out = np.zeros((60, 2, 7), np.float32)[:, 0, :]
    np.testing.assert_allclose(kernel.block(base, base[:7], out), _plain(kernel, base, base[:7]), atol=2e-6)
    assert np.shares_memory(kernel.block(base, base[:7], out), out)
    strided = np.zeros((60, 14), np.float32)[:, ::2]
    np.testing.assert_allclose(kernel.block(base, base[:7], strided), _plain(kernel, base, base[:7]), atol=2e-6)


def test_what_is_not_a_number_stays_visible() -> None:
    X, Z = _rows(5, 3), _rows(40, 3, seed=1)
    X[2, 1] = np.nan
    block = Gaussian(1.0).block(X, Z)
    assert np.isnan(block[2]).all()
    assert np.isfinite(block[[0, 1, 3, 4]]).all()
    assert np.isnan(Gaussian(1.0).matvec(X, Z, np.ones((40, 1), np.float32))[2]).all()


class Unusual(Kernel):
    """A formula with every instruction, and without a finite value at zero."""

    name = "unusual"

    def formula(self, pair: Pair) -> Expression:
        squared = pair.squared_distance
        return sqrt(maximum(log(squared), 0.5)) / (1 + exp(2 - squared)) - 3 / squared

    def spec(self) -> dict[str, object]:
        return {"name": self.name}


@each_width
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("registers")
def test_formulas_without_a_value_at_zero_do_not_spoil_their_neighbours(dtype: str) -> None:
    kernel = Unusual()
    X, Z = _rows(9, 4, dtype), _rows(37, 4, dtype, seed=1)
    A = _rows(37, 2, dtype, seed=2)
    block = _plain(kernel, X, Z).astype(np.float64)
    np.testing.assert_allclose(kernel.block(X, Z), block, rtol=2e-5)
    np.testing.assert_allclose(kernel.matvec(X, Z, A), block @ A, rtol=0, atol=2e-5 * np.abs(block).max())


@given(st.lists(st.floats(-200, 200), min_size=1, max_size=50))
@settings(max_examples=50, deadline=None)
def test_exponentials_are_right_to_two_units_in_the_last_place(exponents: list[float]) -> None:
    class Exponential(Kernel):
        name = "exponential"

        def formula(self, pair: Pair) -> Expression:
            return exp(pair.inner)

        def spec(self) -> dict[str, object]:
            return {"name": self.name}

    X = np.array(exponents, np.float32)[:, None]
    one = np.ones((1, 1), np.float32)
    found = Exponential().block(X, one)[:, 0].astype(np.float64)
    with np.errstate(over="ignore"):
        expected = np.exp(X[:, 0].astype(np.float64))
    finite = expected < 3.4e38
    # The exponent x log2(e) is rounded once: its relative error eps becomes |x| eps in the result.
    allowed = (np.abs(X[:, 0]) + 2) * 2.0**-23 * expected + 2.4e-38
    assert (np.abs(found - expected)[finite] <= allowed[finite]).all()
    assert np.isinf(found[expected > 3.5e38]).all()


class Falling(Kernel):
    """An exponential whose argument is known to be at most 0."""

    name = "falling"

    def formula(self, pair: Pair) -> Expression:
        return exp(maximum(pair.inner, 0) * -math.log(2))

    def spec(self) -> dict[str, object]:
        return {"name": self.name}


class Distance(Kernel):
    """The distance itself."""

    name = "distance"

    def formula(self, pair: Pair) -> Expression:
        return pair.distance

    def spec(self) -> dict[str, object]:
        return {"name": self.name}


@pytest.mark.parametrize("avx512", [True, False])
def test_falling_exponentials_are_right_to_two_units_in_the_last_place_and_end_at_the_smallest_normal_number(
    avx512: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_avx512", lambda: avx512 and machine._features().get("avx512f", False))
    exponents = np.concatenate(
        [np.linspace(0, 126, 20_011), np.arange(127), [0, -1, 125.99, 126.5, 130, 150, 1e4, 1e30, 3e38, np.inf, np.nan]]
    ).astype(np.float32)
    found = Falling().block(exponents[:, None], np.ones((1, 1), np.float32))[:, 0]
    expected = np.exp2(-np.maximum(exponents.astype(np.float64), 0))
    ordinary = exponents <= 125.98
    assert (np.abs(found - expected)[ordinary] <= 2.0**-23 * 1.5 * expected[ordinary]).all()
    np.testing.assert_array_equal(found[exponents <= 0], np.float32(1))
    whole = ordinary & (exponents == np.rint(exponents))
    np.testing.assert_array_equal(found[whole], expected[whole].astype(np.float32))
    assert ((found[exponents > 125.98] >= 1.17e-38) & (found[exponents > 125.98] <= 1.2e-38)).all()
    assert np.isnan(found[-1])


@pytest.mark.parametrize("avx512", [True, False])
def test_distances_are_right_to_two_units_in_the_last_place_and_0_for_equal_rows(
    avx512: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "has_avx512", lambda: avx512 and machine._features().get("avx512f", False))
    rows = np.random.default_rng(0).integers(-1500, 1500, (20_000, 2)).astype(np.float32)  # squares are exact
    rows[0] = 0
    found = Distance().block(np.zeros((1, 2), np.float32), Distance().points(rows))[0]
    expected = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    assert found[0] == 0
    assert (np.abs(found - expected) <= 2 * np.spacing(expected.astype(np.float32))).all()
    scales = 2.0 ** np.arange(-60, 61, 4)
    huge = (scales[:, None] * np.array([[3, 4]])).astype(np.float32)
    np.testing.assert_allclose(Distance().block(huge[:1] * 0, Distance().points(huge))[0], 5 * scales, rtol=2e-7)


@given(m=st.integers(0, 5000), most=st.integers(1, 600))
def test_parts_of_the_rows_are_whole_tiles(m: int, most: int) -> None:
    parts = whole_tiles(m, most)
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(m))
    lengths = [part.stop - part.start for part in parts]
    assert all(length % LEAST_ROWS == 0 for length in lengths[:-1])
    assert all(0 < length <= max(most, LEAST_ROWS) for length in lengths)


def test_length_scales_share_compiled_code() -> None:
    X = _rows(3, 2)
    Gaussian(1.25).block(X, X[:2])
    before = len(compiler._compiled)
    for length_scale in (0.5, 2.5, 17.0):
        Gaussian(length_scale).block(X, X[:2])
    assert len(compiler._compiled) == before
    assert program(Gaussian(1.0).formula(PAIR)).instructions == program(Gaussian(2.0).formula(PAIR)).instructions


def test_many_threads_may_ask_for_the_same_function_first() -> None:
    X = _rows(4, 2)
    kernels = [Polynomial(7, gamma=0.1 * k + 0.1) for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda kernel: kernel.block(X, X[:3]), kernels))
    for kernel, block in zip(kernels, blocks, strict=True):
        np.testing.assert_allclose(block, _plain(kernel, X, X[:3]), rtol=1e-5)


def test_wrong_shapes_are_refused_in_one_sentence() -> None:
    X, Z = _rows(5, 3), _rows(4, 3, seed=1)
    with pytest.raises(DataError, match=r"A must have shape \(4, c\)"):
        Gaussian().matvec(X, Z, np.ones((5, 1), np.float32))
    with pytest.raises(DataError, match="expected rows of 3 features"):
        Gaussian().block(_rows(5, 2), Gaussian().points(Z))
    with pytest.raises(DataError, match="rows must be real numbers"):
        Gaussian().block(np.array([["a"]]), Z)
    with pytest.raises(DataError, match="rows must be a table"):
        Gaussian().block(np.ones(3), Z)


def test_without_llvmlite_products_fall_back_to_the_plain_twin() -> None:
    script = (
        "import sys; sys.modules['llvmlite'] = None\n"
        "import numpy as np\n"
        "from daskkern.kernels import Gaussian\n"
        "from daskkern.kernels.engines import native\n"
        "X = np.arange(12, dtype=np.float32).reshape(4, 3)\n"
        "assert not native.is_supported(Gaussian().program, 4)\n"
        "assert np.allclose(Gaussian(9.0).block(X, X)[0, 1], np.exp(-27 / 162))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_this_processor_is_supported_for_every_common_kernel() -> None:
    assert all(is_supported(kernel.program, size) for kernel in (Gaussian(), Laplacian()) for size in (4, 8))
