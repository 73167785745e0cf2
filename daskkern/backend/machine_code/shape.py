"""The register tile: how many numbers a processor computes at once in its vector registers."""

from dataclasses import dataclass
from functools import cache

_ROWS = {64: 12, 32: 6, 16: 12}  # by bytes of a register: 24 of 32 accumulators, or 12 of 16


@dataclass(frozen=True)
class Shape:
    """The capacity of the processor's registers.

    Attributes
    ----------
    itemsize : int
        4 for float32, 8 for float64.
    lanes : int
        Elements of one vector register.
    rows : int
        Rows of the register tile; its width is two vectors. 2 * rows accumulators must stay in registers.
    avx512 : bool
        Whether vectors are AVX-512 registers, so that its instructions may be used.
    """

    itemsize: int
    lanes: int
    rows: int
    avx512: bool = False

    @property
    def panel(self) -> int:
        """Columns of the register tile, and of one packed panel."""
        return 2 * self.lanes


@cache
def shape_of(itemsize: int, register_bytes: int, avx512: bool) -> Shape:
    """Return the register tile for elements of `itemsize` bytes in registers of 64, 32 or 16 bytes."""
    return Shape(itemsize, register_bytes // itemsize, _ROWS[register_bytes], avx512 and register_bytes == 64)
