"""Explicit features of sampled rows, computed block by block for the set-up."""

from collections.abc import Iterator

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import namespace_with, to_device
from daskkern.backend.tiles import slices
from daskkern.kernels import Coordinate, Kernel, Mapped
from daskkern.preconditioners import FeatureBlocks

_BLOCK = 512
_SQUARES, _BLOCKS = 4, 3  # held at once: matrices of all pairs of rows; pieces, with what they are made of


def blocks_of(kernel: Kernel, points: HostArray, X: HostArray, device: str = "cpu") -> FeatureBlocks:
    """Return what yields the columns of rows `X` (s, d), a piece of them at a time, as often as it is called.

    Unless `device` is "cpu", they are made on a GPU of this process where there is one with room, and stay there, as
    do `X` and the points of a piece. A linear model's columns are the rows themselves, in one piece and in host memory.
    Columns that are maps of kernel values are one piece, too: each takes the kernel at all landmarks.
    """
    s, p = X.shape[0], points.shape[0]
    at_once = p if isinstance(kernel, Coordinate | Mapped) else min(p, _BLOCK)
    if isinstance(kernel, Coordinate):
        device = "cpu"
    numbers = _SQUARES * s * s + _BLOCKS * (s + X.shape[1] + points.shape[1]) * at_once + s * X.shape[1]
    xp = namespace_with(device, 8 * numbers)
    rows, placement = to_device(X, xp), kernel.placement_for(points).on(xp)

    def blocks() -> Iterator[tuple[slice, Array]]:
        for part in slices(p, at_once):
            placed = kernel.points(to_device(points[part], xp), placement)
            yield part, kernel.columns(rows, placed) if isinstance(kernel, Coordinate) else kernel.block(rows, placed)

    return blocks
