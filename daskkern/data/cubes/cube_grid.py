"""The grid of blocks that covers the cells of a cube: whole chunks, several at a time where they are small."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from daskkern.errors import DataError

LEAST_CELLS = 1 << 14
"""Cells of a block, at least: chunks of fewer are read several at once."""
_BLOCK_BYTES = 8 << 20  # of the features of a block that is in memory, which may be cut anywhere


@dataclass(frozen=True)
class CubeGrid:
    """Blocks of cells.

    Attributes
    ----------
    dims : tuple of str
        The sample dims.
    cuts : tuple of tuple of int
        Where blocks begin along each dim, and its length at the end.
    """

    dims: tuple[str, ...]
    cuts: tuple[tuple[int, ...], ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of blocks along each dim."""
        return tuple(len(cuts) - 1 for cuts in self.cuts)

    @property
    def n_blocks(self) -> int:
        """Number of all blocks."""
        return int(np.prod(self.counts))

    @property
    def n_cells(self) -> int:
        """Number of all cells."""
        return int(np.prod([cuts[-1] for cuts in self.cuts]))

    def block(self, number: int) -> dict[str, slice]:
        """Return where along each dim block number `number` is, counted with the last dim running fastest."""
        at = np.unravel_index(number, self.counts)
        return {
            dim: slice(cuts[int(k)], cuts[int(k) + 1]) for dim, cuts, k in zip(self.dims, self.cuts, at, strict=True)
        }


def grid_of(ds: Any, dims: Sequence[str], names: Sequence[str], n_features: int) -> CubeGrid:
    """Return the blocks of the cells of a Dataset, aligned with the chunks of its variables `names`.

    Where variables are chunked differently, those of the first with that dim count. Data in memory, which has no
    chunks, is cut into blocks of about 8 MB.
    """
    for dim in dims:
        if dim not in ds.dims:
            raise DataError(f"got the sample dim {dim!r}, which the Dataset does not have; its dims are {_dims(ds)}")
        if ds.sizes[dim] == 0:
            raise DataError(f"the dim {dim!r} of the Dataset has no cells; at least one is needed")
    cuts = chunk_edges_of(ds, dims, names, n_features)
    for axis in reversed(range(len(dims))):
        cells = int(np.prod([max(np.diff(cut)) for cut in cuts]))
        cuts[axis] = _joined(cuts[axis], -(-LEAST_CELLS // cells))
    return CubeGrid(tuple(dims), tuple(cuts))


def chunk_edges_of(ds: Any, dims: Sequence[str], names: Sequence[str], n_features: int) -> list[tuple[int, ...]]:
    """Return where the chunks of variables `names` of a Dataset begin along each dim, and its length at the end.

    Those of the first with that dim count; without one, blocks of about 8 MB of features.
    """
    sizes = [int(ds.sizes[dim]) for dim in dims]
    known = [_chunks(ds, dim, names) for dim in dims]
    cuts = [_cuts(chunks, size) for chunks, size in zip(known, sizes, strict=True)]
    most = max(1, _BLOCK_BYTES // (4 * max(1, n_features)))
    for axis, chunks in enumerate(known):
        if chunks is None:
            others = int(np.prod([max(np.diff(cut)) for k, cut in enumerate(cuts) if k != axis]))
            cuts[axis] = _even(sizes[axis], max(1, most // max(1, others)))
    return cuts


def _chunks(ds: Any, dim: str, names: Sequence[str]) -> tuple[int, ...] | int | None:
    """Return the chunks along a dim: their lengths, or that of each; None for data in memory."""
    for name in names:
        variable = ds[name].variable
        if dim not in variable.dims:
            continue
        axis = variable.dims.index(dim)
        if variable.chunks is not None:
            return tuple(int(length) for length in variable.chunks[axis])
        stored = variable.encoding.get("preferred_chunks") or {}
        if not variable._in_memory and dim in stored:
            return int(stored[dim]) if np.ndim(stored[dim]) == 0 else tuple(map(int, stored[dim]))
    return None


def _cuts(chunks: tuple[int, ...] | int | None, size: int) -> tuple[int, ...]:
    if chunks is None:
        return (0, size)
    if isinstance(chunks, int):
        return _even(size, chunks)
    return (0, *np.cumsum([length for length in chunks if length] or [0]).tolist())


def _even(size: int, step: int) -> tuple[int, ...]:
    return (0, *range(step, size, step), size)


def _joined(cuts: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the cuts of runs of `count` blocks each, fewer in the last."""
    kept = [begin for number, (begin, _) in enumerate(pairwise(cuts)) if number % max(1, count) == 0]
    return (*kept, cuts[-1])


def _dims(ds: Any) -> str:
    return ", ".join(map(str, ds.dims)) or "none"
