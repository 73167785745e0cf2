"""Sums, checks, and squares of rows on a GPU, in one or two launches each."""

from types import ModuleType

import numpy as np
import pytest

from daskkern.backend.namespace import to_host
from daskkern.backend.reductions import (
    add_parts,
    all_finite,
    all_within,
    row_squares,
    sum_all,
    sum_products,
    takes_rows,
)
from daskkern.kernels import Laplacian
from daskkern.kernels.norms import squared_norms
from tests.support.gpu.fake_arrays import launches_counted
from tests.support.gpu.fake_gpu import FakeGpu

each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


@each_dtype
@pytest.mark.parametrize("made", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (25, 700, 3), (4, 0, 3), (0, 3, 2)])
def test_parts_are_added_in_float64(xp: ModuleType, shape: tuple[int, ...], dtype: str, made: str) -> None:
    parts = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    found = add_parts(xp.asarray(parts), made)
    assert found.dtype == made
    expected = parts.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(to_host(found), expected, rtol=1e-6 if made == "float32" else 1e-14, atol=1e-13)
    assert add_parts(parts, made).dtype == made


@each_dtype
@pytest.mark.parametrize(("m", "d"), [(1, 1), (9, 31), (20, 33), (3, 1000)])
def test_squares_of_rows_are_those_of_float64(xp: ModuleType, m: int, d: int, dtype: str) -> None:
    rows = np.random.default_rng(0).standard_normal((m, d + 3)).astype(dtype)
    given = xp.asarray(rows)[:, 1:-2]
    assert takes_rows(given)
    exact = (rows[:, 1:-2].astype(np.float64) ** 2).sum(axis=1)
    found = row_squares(given)
    assert found.dtype == dtype
    np.testing.assert_allclose(to_host(found), exact, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(to_host(squared_norms(given)), to_host(found))
    scaled = row_squares(given, factor=0.5)
    np.testing.assert_array_equal(to_host(scaled), 0.5 * to_host(found))


def test_rows_out_of_range_have_no_norm(xp: ModuleType) -> None:
    rows = np.ones((5, 40), np.float32)
    rows[1, 3], rows[2, 5], rows[4, 0] = 2e19, np.nan, np.inf
    found = to_host(row_squares(xp.asarray(rows), float(np.finfo(np.float32).max) / 4))
    np.testing.assert_array_equal(np.isnan(found), [False, True, True, False, True])
    np.testing.assert_array_equal(found[[0, 3]], 40)


def test_a_left_side_takes_one_launch(stand_in: FakeGpu) -> None:
    with stand_in.installed() as xp:
        Z = np.random.default_rng(0).standard_normal((30, 7)).astype(np.float32)
        kernel = Laplacian(2.0)
        points = kernel.points(xp.asarray(Z))
        given = xp.asarray(Z)
        with launches_counted() as names:
            left = kernel.left(given, points)
        assert names == ["row_squares"]
        np.testing.assert_array_equal(kernel.block(left, points).get().diagonal(), 1)


def test_other_rows_are_left_to_the_library(xp: ModuleType) -> None:
    table = xp.asarray(np.ones((4, 6), np.float32))
    assert not takes_rows(table[:, ::2])
    assert not takes_rows(np.ones((3, 2)))


@each_dtype
@pytest.mark.parametrize("shape", [(1,), (255,), (300, 7), (40_000,), (3, 0)])
def test_all_values_are_added_in_float64(xp: ModuleType, shape: tuple[int, ...], dtype: str) -> None:
    values = (1e4 + np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    found = sum_all(xp.asarray(values))
    assert (found.shape, found.dtype) == ((), np.float64)
    np.testing.assert_allclose(float(found), values.sum(dtype=np.float64), rtol=1e-14)
    np.testing.assert_allclose(float(sum_all(xp.asarray(values)[::2])), values[::2].sum(dtype=np.float64), rtol=1e-14)
    assert float(sum_all(values)) == values.sum(dtype=np.float64)


@each_dtype
@pytest.mark.parametrize("shape", [(1,), (255,), (300, 7), (40_000,), (3, 0)])
def test_products_are_added_in_float64_without_being_written(
    xp: ModuleType, shape: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    exact = (left.astype(np.float64) * right).sum()
    with launches_counted() as names:
        found = sum_products(xp.asarray(left), xp.asarray(right))
    assert "mul" not in names or not left.size
    assert (found.shape, found.dtype) == ((), np.float64)
    bound = 1e-14 * np.abs(left.astype(np.float64) * right).sum()
    np.testing.assert_allclose(float(found), exact, rtol=0, atol=bound)
    for side in (np, xp):
        scaled = sum_products(side.asarray(left), side.asarray(right), 0.5)
        np.testing.assert_allclose(float(scaled), 0.5 * exact, rtol=0, atol=bound)
    strided = (array[::2] for array in (xp.asarray(left), xp.asarray(right)))
    np.testing.assert_allclose(float(sum_products(*strided)), (left[::2].astype(float) * right[::2]).sum(), atol=bound)


@each_dtype
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3.5, -3.5])
@pytest.mark.parametrize("place", [0, 20_000, 39_999])
def test_one_value_out_of_range_is_found(xp: ModuleType, dtype: str, bad: float, place: int) -> None:
    values = np.full(40_000, 3.25, dtype)
    values[1::2] *= -1
    for given in (values, xp.asarray(values), xp.asarray(values)[::3]):
        assert all_within(given, 3.25)
        assert all_finite(given)
    values[place] = bad
    for given in (values, xp.asarray(values), xp.asarray(values[place::3])[::2]):
        assert not all_within(given, 3.25)
        assert all_finite(given) == bool(np.isfinite(bad))
