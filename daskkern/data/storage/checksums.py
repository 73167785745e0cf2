"""CRC-32 of an array and of each of its chunks, from one pass over the bytes.

The checksum of a whole is computed from those of its parts: appending n bytes to a message multiplies its CRC by
``x**(8 n)`` modulo the CRC's polynomial over GF(2), and adds the CRC of the new bytes.

References
----------
zlib, ``crc32_combine`` (Mark Adler), which does the same.
"""

import zlib
from functools import lru_cache
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.machine_code.crc32 import crc32
from daskkern.data.rows.csr import is_sparse

_POLYNOMIAL = 0xEDB88320  # of CRC-32, bits reversed: the highest bit is the coefficient of x**0


def checksum_of(values: Any) -> int | None:
    """Return the CRC-32 of an array (objects: of their representations) or of the parts of CSR rows; None of None."""
    if values is None:
        return None
    parts = (values.data, values.indices, values.indptr) if is_sparse(values) else (values,)
    total = 0
    for part in parts:
        total = zlib.crc32(_bytes(np.asarray(part)), total)
    return total


class Checksum:
    """Checksums of chunks as they are written: `chunks` one by one, `whole` for all together."""

    def __init__(self) -> None:
        self.whole = 0
        self.chunks: list[int] = []

    def add(self, chunk: HostArray) -> None:
        """Add the bytes of a contiguous chunk."""
        self.add_sum(crc32(chunk), chunk.nbytes)

    def add_sum(self, crc: int, n_bytes: int) -> None:
        """Add a chunk of which only the CRC-32 and the size are known."""
        self.chunks.append(crc)
        self.whole = combine(self.whole, crc, n_bytes)

    def state(self) -> HostArray:
        """Return the sums so far as one array, for :meth:`restored`."""
        return np.array([self.whole, *self.chunks], np.uint32)

    @classmethod
    def restored(cls, state: HostArray) -> "Checksum":
        """Return the sums of a :meth:`state`."""
        result = cls()
        result.whole, *result.chunks = (int(value) for value in state)
        return result


def _bytes(part: HostArray) -> bytes | memoryview:
    if part.dtype.kind == "O":
        return repr(part.tolist()).encode()
    return np.ascontiguousarray(part).data.cast("B") if part.size else b""


def combine(first: int, second: int, second_length: int) -> int:
    """Return the CRC-32 of two messages in sequence, from the CRC-32 of each and the bytes of the second."""
    return _product(_shift(second_length), first) ^ second


@lru_cache(maxsize=64)
def _shift(n_bytes: int) -> int:
    """Return ``x**(8 n_bytes)`` modulo the polynomial, by repeated squaring."""
    power, square, exponent = 1 << 31, 1 << 30, 8 * n_bytes  # the polynomials 1 and x
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power


def _product(a: int, b: int) -> int:
    """Return the product of two polynomials over GF(2), modulo the CRC's."""
    product = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
