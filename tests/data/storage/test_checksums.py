"""Checksums of parts make the checksum of the whole."""

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskkern.data.storage.checksums import Checksum, combine


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_two_sums_make_the_sum_of_both(first: bytes, second: bytes) -> None:
    assert combine(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_chunks_of_a_large_array_make_its_sum() -> None:
    rows = np.random.default_rng(0).normal(size=(5000, 33)).astype(np.float32)
    total = Checksum()
    for start in range(0, len(rows), 512):
        total.add(rows[start : start + 512])
    assert total.whole == zlib.crc32(rows.data)
    assert total.chunks[3] == zlib.crc32(rows[1536:2048].data)
