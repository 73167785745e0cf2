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
    assert {crc32(values) for _ in range(40)} == {expected}
    assert crc32(values[:300], 7) == zlib.crc32(values[:300].tobytes(), 7)
