"""CRC-32 by carry-less products: the sums of zlib, of any bytes."""

import zlib

import numpy as np
import pytest

from daskkern.backend.machine_code.crc32 import crc32, crc32_compiled, is_available

compiled = pytest.mark.skipif(not is_available(), reason="needs carry-less products; run on x86-64 with PCLMULQDQ")


@compiled
@pytest.mark.parametrize("size", [0, 1, 15, 63, 64, 65, 127, 128, 191, 1000, 4096, 100_003])
@pytest.mark.parametrize("start", [0, 1, 0xDEADBEEF, 0xFFFFFFFF])
@pytest.mark.parametrize("at", [0, 3])
def test_compiled_sums_are_those_of_zlib(size: int, start: int, at: int) -> None:
    values = np.random.default_rng(size).integers(0, 256, size + at, dtype=np.uint8)[at:]
    assert crc32_compiled(values, start) == zlib.crc32(values.tobytes(), start)


@compiled
@pytest.mark.parametrize("byte", [0, 255])
def test_equal_bytes(byte: int) -> None:
    values = np.full(640, byte, np.uint8)
    assert crc32_compiled(values) == zlib.crc32(values.tobytes())


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_sums_stay_the_same_after_many_bytes(dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 2, (1000, 3000)).astype(dtype)
    expected = zlib.crc32(values.tobytes())
    n_times = (540 << 20) // values.nbytes + 1  # the last ones in compiled code
    assert {crc32(values) for _ in range(n_times)} == {expected}
    assert crc32(values[:300], 7) == zlib.crc32(values[:300].tobytes(), 7)


def test_arrays_that_are_not_contiguous_have_the_sums_of_their_bytes_in_order() -> None:
    values = np.random.default_rng(0).normal(size=(3000, 3000))
    for _ in range(9):  # 648 MB: the last time in compiled code
        crc32(values)
    for part in (values[::2, :50], values[:50].T, values[::-1, 5:], values[:, :1]):
        assert crc32(part) == zlib.crc32(part.tobytes())


@compiled
def test_compiled_sums_of_arrays_that_are_not_contiguous() -> None:
    values = np.arange(4000, dtype=np.int32).reshape(40, 100)
    values.flags.writeable = False
    for part in (values, values.T, values[::3, 1:], values[:, ::-1]):
        assert crc32_compiled(part, 5) == zlib.crc32(part.tobytes(), 5)
