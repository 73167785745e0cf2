"""What a precision rounds, what it refuses, and how cuBLAS is called for it."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Gaussian, Kernel, Laplacian, LinearKernel, plain_products
from daskkern.kernels.engines.cuda.device import Cupy
from daskkern.kernels.precision import PRECISIONS, Precision, check_precision, rounded, working_dtype

HALF_STEP: dict[Precision, float] = {"tf32": 2.0**-11, "float16": 2.0**-11, "float32": 0.0, "float64": 0.0}


def _rows(m: int, d: int, seed: int = 0, dtype: str = "float32") -> HostArray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(dtype)


@given(st.lists(st.floats(-6e4, 6e4, width=32).filter(lambda v: v == 0 or abs(v) > 1e-4), min_size=1, max_size=40))
def test_rounding_errs_by_half_a_step_and_happens_once(values: list[float]) -> None:
    rows = np.array([values], np.float32)
    for precision in ("tf32", "float16"):
        once = rounded(rows, precision)
        assert once.dtype == np.float32
        assert (np.abs(once - rows) <= HALF_STEP[precision] * np.abs(rows)).all()
        np.testing.assert_array_equal(rounded(once, precision), once)


def test_tf32_rounds_to_even_and_keeps_what_is_no_number() -> None:
    step = 2.0**-10
    given = np.array([[1 + step / 2, 1 + 1.5 * step, 3e38, np.inf, -np.inf, np.nan, 1e-30, -0.0]], np.float32)
    found = rounded(given, "tf32")[0]
    assert found[0] == 1
    assert found[1] == np.float32(1 + 2 * step)
    assert np.isfinite(found[2])
    assert (found[3], found[4]) == (np.inf, -np.inf)
    assert np.isnan(found[5])
    assert found[6] == pytest.approx(1e-30, rel=step)


def test_tf32_of_normal_numbers_is_float16_where_float16_has_their_exponent() -> None:
    rows = _rows(50, 20) * 10 + np.sign(_rows(50, 20)) * 1e-3
    rows = rows[np.abs(rows).min(axis=1) > 1e-3]
    np.testing.assert_array_equal(rounded(rows, "tf32"), rounded(rows, "float16"))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kernel", [Gaussian(4.0), Laplacian(4.0), LinearKernel()], ids=lambda kernel: kernel.name)
def test_values_are_those_of_rounded_rows(kernel: Kernel, precision: Precision) -> None:
    X, Z, A = _rows(30, 20), _rows(40, 20, 1), _rows(40, 3, 2)
    points = kernel.points(Z, precision=precision)
    assert points.dtype == working_dtype(precision)
    exact = kernel.points(rounded(Z, precision).astype(points.dtype))
    expected = kernel.block(rounded(X, precision).astype(points.dtype), exact)
    np.testing.assert_array_equal(kernel.block(X, points), expected)
    left = kernel.left(X, points)
    np.testing.assert_allclose(kernel.matvec(left, points, A), expected @ A.astype(points.dtype), rtol=1e-4, atol=1e-5)
    with plain_products():
        np.testing.assert_allclose(
            kernel.block(X, kernel.points(Z, precision=precision)), expected, rtol=1e-5, atol=1e-5
        )
    joined = points.join(kernel.points(Z[:3], precision=precision))
    assert joined.precision == precision


def test_equal_rows_stay_equal_in_low_precision() -> None:
    Z = _rows(50, 30) + 3
    for precision in PRECISIONS:
        K = Laplacian(2.0).block(Z.copy(), Laplacian(2.0).points(Z, precision=precision))
        np.testing.assert_array_equal(K.diagonal(), 1)


def test_sparse_rows_are_rounded_as_dense_ones_are() -> None:
    Z = _rows(20, 30) * (np.abs(_rows(20, 30)) > 1)
    found = rounded(sparse.csr_matrix(Z), "float16")
    np.testing.assert_array_equal(found.toarray(), rounded(Z, "float16"))


def test_contradictions_and_unknown_precisions_are_refused() -> None:
    with pytest.raises(SpecError, match="got precision 'half'; choose one of 'float64', 'float32'"):
        check_precision("half")
    with pytest.raises(SpecError, match="got precision 'fp32'"):
        Gaussian().points(_rows(3, 2), precision="fp32")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="got both dtype float64 and precision 'tf32'"):
        Gaussian().points(_rows(3, 2), dtype=np.float64, precision="tf32")
    assert Gaussian().points(_rows(3, 2), dtype=np.float64, precision="float64").dtype == np.float64


def test_features_beyond_float16_are_refused() -> None:
    with pytest.raises(DataError, match="a feature is 70000 in size and float16 ends at 65504"):
        rounded(np.full((2, 2), 7e4, np.float32), "float16")
    assert rounded(np.zeros((0, 2), np.float32), "float16").shape == (0, 2)


class _OnDevice(np.ndarray[Any, Any]):
    """A NumPy array that has its address where CuPy has it."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


class _Cublas:
    """cublasGemmEx by its definition: matrices by columns, at addresses."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_GEMM_DEFAULT = 0, 1, -1
    CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F = 68, 77, 70

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def gemmEx(  # noqa: N802
        self, handle: int, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, a: int, a_type: int, lda: int,
        b: int, b_type: int, ldb: int, beta: int, c: int, c_type: int, ldc: int, compute: int, algo: int,
    ) -> None:  # fmt: skip
        assert handle == 7
        A = _columns(a, a_type, (k, m) if op_a else (m, k), lda)
        B = _columns(b, b_type, (n, k) if op_b else (k, n), ldb)
        C = _columns(c, c_type, (m, n), ldc)
        scale, keep = (_columns(number, c_type, (1, 1), 1)[0, 0] for number in (alpha, beta))
        assert (scale, keep) == (1, 0)
        C[...] = (A.T if op_a else A).astype(C.dtype) @ (B.T if op_b else B).astype(C.dtype)
        self.calls.append((a_type, c_type, compute))


_TYPES = {0: np.dtype("float32"), 1: np.dtype("float64"), 2: np.dtype("float16")}
_RUNTIME = SimpleNamespace(CUDA_R_32F=0, CUDA_R_64F=1, CUDA_R_16F=2)


def _columns(address: int, kind: int, shape: tuple[int, int], line: int) -> HostArray:
    assert line >= shape[0]
    dtype = _TYPES[kind]
    count = (shape[1] - 1) * line + shape[0]
    flat = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, (dtype.itemsize, line * dtype.itemsize))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (1, 4, 6), (6, 1, 1), (1, 1, 9)])
@pytest.mark.parametrize("turn_left", [False, True])
@pytest.mark.parametrize("turn_right", [False, True])
def test_cublas_is_called_for_tables_by_rows(
    precision: Precision, m: int, n: int, k: int, turn_left: bool, turn_right: bool
) -> None:
    cublas = _Cublas()
    handle = SimpleNamespace(get_cublas_handle=lambda: 7)
    xp: Any = SimpleNamespace(float16=np.float16, cuda=SimpleNamespace(cublas=cublas, runtime=_RUNTIME, device=handle))
    dtype = "float64" if precision == "float64" else "float32"

    def within(shape: tuple[int, int], seed: int) -> Any:
        return _rows(shape[0] + 2, shape[1] + 3, seed, dtype).view(_OnDevice)[1:-1, 2:-1]

    left, right = within((k, m) if turn_left else (m, k), 1), within((n, k) if turn_right else (k, n), 2)
    out = within((m, n), 3)
    Cupy(xp).multiply(left, right, out, turn_left=turn_left, turn_right=turn_right, precision=precision)
    expected = (left.T if turn_left else left) @ (right.T if turn_right else right)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-2 if precision == "float16" else 1e-5)
    computes = {"float64": 70, "float32": 68, "tf32": 77, "float16": 68}
    taken = {"float64": 1, "float32": 0, "tf32": 0, "float16": 2}
    assert cublas.calls == [(taken[precision], int(dtype == "float64"), computes[precision])]


def test_an_empty_inner_side_gives_zero() -> None:
    out = np.ones((2, 3), np.float32)
    xp: Any = SimpleNamespace()
    Cupy(xp).multiply(
        np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), out,
        turn_left=False, turn_right=False, precision="float32",
    )  # fmt: skip
    np.testing.assert_array_equal(out, 0)
