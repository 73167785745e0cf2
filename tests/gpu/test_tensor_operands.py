"""Rows are put into the form of tensor cores once, when they are prepared, and not at every product."""

from collections import Counter
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from daskkern.backend.namespace import to_host
from daskkern.basis import Landmarks
from daskkern.errors import DataError
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.kernels.engines.cuda import operand_bytes
from daskkern.kernels.precision import Precision
from daskkern.kernels.rows import unchecked_rows
from daskkern.solvers import EigenPro
from daskkern.training.planning.memory_plan import plan_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.run.fit import fit
from tests.support.gpu.fake_arrays import launches_counted, waits_counted
from tests.support.plans import CENTRES, planned_settings, planned_source


def _rows(m: int, d: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, d)).astype(np.float32)


@pytest.mark.parametrize(
    ("d", "precision", "n_bytes"),
    [(64, "float16", 0), (65, "float16", 144), (72, "float16", 144), (65, "tf32", 272), (68, "tf32", 0), (70, None, 0)],
)
def test_lines_are_whole_numbers_of_16_bytes(d: int, precision: Precision | None, n_bytes: int) -> None:
    assert operand_bytes(d, precision) == n_bytes


@pytest.mark.parametrize("kernel", [Gaussian(9.0), pytest.param(Laplacian(9.0), marks=pytest.mark.repeated)])
@pytest.mark.parametrize(("precision", "d"), [("float16", 70), ("float16", 72), ("tf32", 70), ("tf32", 72)])
def test_products_are_those_of_the_cpu(xp: ModuleType, kernel: Kernel, precision: Precision, d: int) -> None:
    X, Z, A = _rows(40, d, 1), _rows(300, d, 2), _rows(300, 3, 3)
    of_cpu = kernel.points(Z, precision=precision)
    points = kernel.points(xp.asarray(Z), precision=precision)
    rows = xp.asarray(X)
    for left in (rows, kernel.left(rows, points)):
        scores = to_host(kernel.matvec(left, points, xp.asarray(A)))
        np.testing.assert_allclose(scores, kernel.matvec(X, of_cpu, A), rtol=0, atol=2e-4)
    pulled = to_host(kernel.rmatvec(rows, points, xp.asarray(A[:40])))
    np.testing.assert_allclose(pulled, kernel.rmatvec(X, of_cpu, A[:40]), rtol=0, atol=2e-4)
    halves = points.join(kernel.points(xp.asarray(X), precision=precision))
    both = to_host(kernel.block(rows, halves))
    np.testing.assert_allclose(both[:, :300], kernel.block(X, of_cpu), rtol=0, atol=2e-5)
    assert np.isfinite(both).all()


def test_centres_are_converted_once_and_nobody_waits(xp: ModuleType) -> None:
    if xp.__version__ != "stand-in":
        pytest.skip("only the stand-in counts launches")
    kernel = Gaussian(9.0)
    X, A = xp.asarray(_rows(40, 70, 1)), xp.asarray(_rows(300, 3, 3))
    points = kernel.points(xp.asarray(_rows(300, 70, 2)), precision="float16")
    with launches_counted() as launched, waits_counted() as waited, unchecked_rows():
        left = kernel.left(X, points)
        prepared = Counter(launched)
        launched.clear()
        for _ in range(3):
            kernel.matvec(left, points, A)
    assert not waited
    assert prepared["astype"] <= 4  # of 40 rows: rounded there and back, and statistics
    assert "astype" not in launched  # 6 before: of all centres and of the rows, at every call
    assert Counter(launched)["gemmEx"] == 3


def test_features_beyond_float16_make_no_numbers_on_a_gpu_without_a_wait(xp: ModuleType) -> None:
    kernel, Z = Gaussian(9.0), _rows(30, 70, 2)
    points = kernel.points(xp.asarray(Z), precision="float16")
    X = _rows(4, 70, 1)
    X[1, 3] = 7e4
    values = to_host(kernel.block(xp.asarray(X), points))
    np.testing.assert_array_equal(np.isfinite(values).all(axis=1), [True, False, True, True])
    with pytest.raises(DataError, match="float16 ends at 65504"):
        kernel.points(xp.asarray(X), precision="float16")


@pytest.mark.repeated
def test_a_fit_with_temporary_centres_agrees_with_the_cpu(xp: ModuleType) -> None:
    source = planned_source(600, 70)
    settings = planned_settings(
        Landmarks(120), EigenPro(window=4, averaging=0.0), precision="float16", max_epochs=2, batch_size=60
    )
    on_cpu = fit(source, settings).model.scores(source.X[:50])
    on_gpu = fit(source, replace(settings, device="gpu")).model.scores(source.X[:50])
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-2 * np.abs(on_cpu).max())


@pytest.mark.parametrize("by", ["centres", "fit"])
def test_the_plan_counts_them(by: str) -> None:
    gpu = replace(CENTRES, device="gpu")
    if by == "centres":
        more = plan_memory(replace(gpu, operand_bytes=208), 0, 1).device_total - plan_memory(gpu, 0, 1).device_total
        assert more >= 208 * (gpu.own + gpu.m)
        return
    source = planned_source(300, 70)
    settings = planned_settings(Landmarks(100), EigenPro(), batch_size=50, max_epochs=1)
    sizes = [
        upper_bound_plan(source, replace(settings, precision=precision), 1, 1, 1 << 34, 1 << 34).sizes
        for precision in (None, "tf32", "float16")
    ]
    assert [size and size.operand_bytes for size in sizes] == [0, 288, 144]
