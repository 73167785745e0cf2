"""Inner products of float32 rows by three products of TF32, emulated: the error of float32, and the choice of a way."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import Landmarks
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.kernels.engines import cuda
from daskkern.kernels.engines.cuda import float32_products as products
from daskkern.kernels.points import make_side
from daskkern.kernels.precision import rounded
from daskkern.solvers import EigenPro
from daskkern.training.planning.device_choices import chosen_products
from tests.support.gpu.cuda_on_host import HostDevice
from tests.support.plans import planned_settings
from tests.support.threads import run_threads


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> HostDevice:
    return HostDevice(tmp_path_factory.mktemp("cuda"))


def _rows(n: int, d: int, seed: int) -> HostArray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 4), (3, 18), (2, 257)])
@pytest.mark.parametrize("left", [False, True])
def test_terms_are_those_of_numpy(device: HostDevice, n: int, d: int, left: bool) -> None:
    rows = _rows(n + 2, d + 3, 0)[1:-1, 2:-1]
    high = rounded(np.ascontiguousarray(rows), "tf32")
    low = rounded(rows - high, "tf32")
    found = products.tf32_terms(device, rows, left=left)
    terms = [low, high, high] if left else [high, low, high]
    padded = np.hstack([np.pad(term, ((0, 0), (0, -d % 4))) for term in terms])
    np.testing.assert_array_equal(found, padded)
    np.testing.assert_array_equal(found, rounded(found, "tf32"))


@pytest.mark.parametrize("d", [1, 18, 512, 784, 2048, 2051])
def test_tensor_cores_sum_few_large_terms_at_a_time(
    device: HostDevice, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed: list[int] = []
    multiply = HostDevice.multiply

    def watched(self: HostDevice, left: HostArray, right: HostArray, out: HostArray, **how: Any) -> None:
        summed.append(left.shape[1])
        assert (left.ctypes.data - start) % 16 == 0  # as tensor cores read them
        multiply(self, left, right, out, **how)

    def terms(device: HostDevice, rows: HostArray, *, left: bool) -> HostArray:
        nonlocal start
        found = made(device, rows, left=left)
        start = found.ctypes.data if left else start
        return found

    start, made = 0, products.tf32_terms
    monkeypatch.setattr(HostDevice, "multiply", watched)
    monkeypatch.setattr(products, "tf32_terms", terms)
    X, Z = _rows(7, d, 1), _rows(9, d, 2)
    out = np.empty((7, 9), np.float32)
    products.three_products(device, X, Z, out)
    np.testing.assert_allclose(out, X.astype(float) @ Z.T, rtol=0, atol=1e-6 * d**0.5 * 4)
    assert summed[0] == 2 * -(-d // 4) * 4
    assert max(summed[1:]) <= 512
    assert sum(summed) == 3 * -(-d // 4) * 4


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("d", "ratio"), [(18, 2.0), (784, 1.5)])
def test_the_error_is_that_of_float32(device: HostDevice, d: int, ratio: float) -> None:
    X, Z = _rows(300, d, 1), _rows(400, d, 2)
    exact = X.astype(np.float64) @ Z.astype(np.float64).T
    sizes = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(Z, axis=1)
    three = np.empty(exact.shape, np.float32)
    products.three_products(device, X, Z, three)

    def error(found: HostArray) -> float:
        return float((np.abs(found - exact) / sizes).max())

    assert error(three) < 3.5e-7
    assert error(three) < ratio * error(X @ Z.T)
    assert error(three) < 0.01 * error(rounded(X, "tf32") @ rounded(Z, "tf32").T)


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kernel", [Gaussian(28.0), Laplacian(28.0)], ids=lambda kernel: kernel.name)
def test_kernel_values_and_products_have_the_error_of_float32(device: HostDevice, kernel: Kernel) -> None:
    X, Z, A = _rows(120, 784, 1), _rows(200, 784, 2), _rows(200, 3, 3)
    blocks = [slice(0, 100), slice(100, 200)]
    operands = cuda.Operands(
        device,
        kernel.program,
        make_side(X, kernel.program, left=True),
        make_side(Z, kernel.program, left=False),
        blocks,
        cuda.block_table(device, blocks),
        "float32",
    )
    exact = kernel.block(X.astype(np.float64), Z.astype(np.float64))

    def errors(way: products.Way) -> tuple[float, float]:
        made = np.empty((120, 200), np.float32)
        with cuda.products_by(way):
            cuda.block(operands, made)
            scores = cuda.matvec(operands, A, None)
        size = exact @ np.abs(A)
        return float(np.abs(made - exact).max()), float((np.abs(scores - exact @ A) / size).max())

    for three, one in zip(errors("tf32x3"), errors("float32"), strict=True):
        assert three < 2 * one + 1e-7


def test_points_pass_in_pieces_of_bounded_memory(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Z = _rows(7, 65, 1), _rows(50, 65, 2)
    whole, pieces = np.empty((7, 50), np.float32), np.empty((7, 50), np.float32)
    products.three_products(device, X, Z, whole)
    assert products.terms_bytes(7, 50, 65) == 12 * 68 * 57
    monkeypatch.setattr(products, "TERMS_BYTES", 12 * 68 * 9)
    assert products.terms_bytes(7, 50, 65) == 12 * 68 * (7 + 9)
    products.three_products(device, X, Z, pieces)
    np.testing.assert_allclose(pieces, whole, rtol=0, atol=1e-4)


FLOAT32_S = 3.0


@pytest.mark.parametrize(
    ("three_s", "nine_s", "wrong", "chosen"),
    [
        (2.0, None, 0.0, "tf32x3"),
        (2.8, None, 0.0, "float32"),  # a gain of less than a tenth
        (2.0, None, 1e-3, "float32"),
        (2.0, 1.0, 0.0, "bf16x9"),
        (2.0, 2.5, 0.0, "tf32x3"),
        (2.0, 1.0, 1e-3, "bf16x9"),
        (2.8, 2.9, 0.0, "float32"),
    ],
)
def test_the_fastest_exact_way_is_chosen(
    three_s: float, nine_s: float | None, wrong: float, chosen: str, device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    class Timed(HostDevice):
        def __init__(self) -> None:
            self.__dict__ = device.__dict__

        def multiply(self, left: Any, right: Any, out: Any, **how: Any) -> None:
            taken = {"float32": FLOAT32_S, "tf32": three_s, "bf16x9": nine_s}[how["precision"]]
            if taken is None:
                raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")
            super().multiply(left, right, out, **how)
            if not how.get("add"):  # the first of the sums that make a product
                clock[0] += taken
            if how["precision"] == "tf32":
                out += wrong

    runtime = SimpleNamespace(getDevice=lambda: 0, getDeviceProperties=lambda number: {"multiProcessorCount": 1})
    stream = SimpleNamespace(synchronize=lambda: None)
    xp: Any = ModuleType("gpu")
    xp.__dict__.update(
        asarray=np.asarray, empty=np.empty, cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream)
    )
    timed = Timed()
    monkeypatch.setattr(products, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(products, "device_of", lambda module: timed)
    assert products.fastest_exact_way(xp, 70) == chosen


@pytest.mark.parametrize(
    ("ways", "chosen"),
    [
        (("tf32x3", "tf32x3"), "tf32x3"),
        (("bf16x9", "bf16x9"), "bf16x9"),
        (("tf32x3", "float32"), "float32"),
        (("tf32x3", "bf16x9"), "float32"),
    ],
)
def test_all_ranks_multiply_alike(ways: tuple[str, str], chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ModuleType("gpu")

    def ranks(d: int, **changes: Any) -> list[str]:
        def work(comm: Communicator) -> str:
            settings = replace(planned_settings(Landmarks(9), EigenPro(), **changes), device="gpu")
            with chosen_products(comm, gpu, settings, d):
                return products.float32_way()

        return run_threads(2, work)

    answers = iter(ways * 9)
    measured: Callable[[ModuleType, int], str] = lambda xp, d: next(answers)  # noqa: E731
    monkeypatch.setattr(cuda, "fastest_exact_way", measured)
    assert ranks(784, dtype="float32") == [chosen] * 2
    assert ranks(64, dtype="float32") == ["float32"] * 2
    assert ranks(784, dtype="float64") == ["float32"] * 2
    assert ranks(784, dtype="float32", precision="tf32") == ["float32"] * 2
    assert ranks(784, dtype="float32", virtual_shards=4) == ["float32"] * 2
