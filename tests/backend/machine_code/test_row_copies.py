"""Columns copied into rows by compiled blocks: the same bits as a copy of NumPy, and nothing else is written."""

import numpy as np
import pytest

from daskkern.backend.machine_code.compiler import register_bytes
from daskkern.backend.machine_code.row_copies import copy_compiled, copy_rows


@pytest.mark.skipif(not register_bytes(), reason="nothing is compiled here; run on x86-64 or arm64")
@pytest.mark.parametrize(("m", "d"), [(16, 16), (17, 16), (16, 31), (100, 306), (33, 48)])
def test_blocks_change_places(m: int, d: int) -> None:
    columns = np.random.default_rng(0).normal(size=(d, m + 3)).astype(np.float32)
    columns[3, 5] = np.nan
    rows = np.full((m + 2, d + 5), 7, np.float32)
    copy_compiled(rows[1:-1, 2:-3], columns[:, :m].T)
    expected = np.full_like(rows, 7)
    expected[1:-1, 2:-3] = columns[:, :m].T
    np.testing.assert_array_equal(rows.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize(("m", "d"), [(0, 20), (40, 3), (5, 40), (40, 40)])
def test_any_rows_are_copied(m: int, d: int, dtype: type, order: str) -> None:
    block = np.asarray(np.random.default_rng(0).integers(0, 99, (m, d)), dtype, order=order)  # type: ignore[call-overload]
    out = np.zeros((m, d), dtype)
    copy_rows(out, block)
    np.testing.assert_array_equal(out, block)
    double = np.zeros((m, d))
    copy_rows(double, block)
    np.testing.assert_array_equal(double, block)


def test_arrays_of_unusual_memory_are_copied_as_by_numpy() -> None:
    values = np.random.default_rng(0).normal(size=(40, 40)).astype(np.float32)
    own, expected = values.copy(), values.T.copy()
    copy_rows(own, own.T)
    np.testing.assert_array_equal(own, expected)
    memory = np.arange(40 * 82, dtype=np.uint8)
    block = np.ndarray((20, 40), np.float32, memory, strides=(4, 82))  # columns 82 bytes apart
    out = np.zeros((20, 40), np.float32)
    copy_rows(out, block)
    np.testing.assert_array_equal(out.view(np.uint32), block.copy().view(np.uint32))


def test_memory_that_is_read_only_is_not_written() -> None:
    out = np.zeros((32, 32), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copy_rows(out, np.ones((32, 32), np.float32, order="F"))
    assert not out.any()
