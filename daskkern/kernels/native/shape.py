"""The register tile: how many numbers a processor works on at once."""

from dataclasses import dataclass

CHUNK = 4
"""Panels of a chunk of columns."""
_ROWS = {64: 12, 32: 6, 16: 12}  # by bytes of a register: 24 of 32 accumulators, or 12 of 16


@dataclass(frozen=True)
class Shape:
    """What the processor's registers hold.

    Attributes
    ----------
    itemsize : int
        4 for float32, 8 for float64.
    lanes : int
        Elements of one vector register.
    rows : int
        Rows of the register tile; its width is two vectors. 2 * rows accumulators must stay in registers.
    """

    itemsize: int
    lanes: int
    rows: int

    @property
    def panel(self) -> int:
        """Columns of the register tile, and of one packed panel."""
        return 2 * self.lanes


def shape_of(itemsize: int, register_bytes: int) -> Shape:
    """Return the register tile for elements of `itemsize` bytes in registers of 64, 32 or 16 bytes."""
    return Shape(itemsize, register_bytes // itemsize, _ROWS[register_bytes])
