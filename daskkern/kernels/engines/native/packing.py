"""The right-hand side of compiled products: packed panels, or CSR rows, with padded statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.tiles import balanced, for_each
from daskkern.kernels.engines.native.chunks import CHUNK, chunk_panels

_ALIGNMENT = 64
_GROUP = 1 << 18  # elements that are worth a thread


@dataclass(frozen=True)
class Packed:
    """p columns in panels.

    Attributes
    ----------
    panels : (n_panels + CHUNK, d, panel) array or None
        The points, feature by feature; columns beyond a block repeat its last point. None for CSR points.
    csr : CSRParts or None
        The points when they are sparse.
    squared, norm, inverse : (slots,) array or None
        Statistics of the points, by slot.
    blocks : (n_blocks, 5) int64
        First panel, panels, first column, columns, and number of the first chunk, of each block.
    runs : tuple of (slice, slice)
        Columns and their slots.
    slots, panel : int
        Columns with those that fill panels up, and columns of one panel.
    caps : (d,) array or None
        The largest differences that count of each feature, for formulas of capped ones.
    """

    panels: HostArray | None
    csr: "CSRParts | None"
    squared: HostArray | None
    norm: HostArray | None
    inverse: HostArray | None
    blocks: IntArray
    runs: tuple[tuple[slice, slice], ...]
    slots: int
    panel: int
    caps: HostArray | None = None

    @property
    def chunks(self) -> int:
        """Chunks of all blocks."""
        return self.chunks_of(range(len(self.blocks)))

    def chunks_of(self, blocks: Sequence[int]) -> int:
        """Return the chunks of some consecutive blocks."""
        panels = self.blocks[blocks[0] : blocks[-1] + 1, 1] if blocks else self.blocks[:0, 1]
        return int((-(-panels // chunk_panels(sparse_columns=self.csr is not None))).sum())


@dataclass(frozen=True)
class CSRParts:
    """The arrays of a CSR matrix with 64-bit indices."""

    values: HostArray
    columns: IntArray
    starts: IntArray
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: Any) -> "CSRParts":
        """Return the parts; indices are copied when they have 32 bits."""
        return cls(
            np.ascontiguousarray(rows.data),
            np.ascontiguousarray(rows.indices, np.int64),
            np.ascontiguousarray(rows.indptr, np.int64),
            rows.shape,
        )

    def followed_by(self, later: "CSRParts") -> "CSRParts":
        """Return these rows followed by others; a copy."""
        return CSRParts(
            np.concatenate([self.values, later.values]),
            np.concatenate([self.columns, later.columns]),
            np.concatenate([self.starts, self.starts[-1] + later.starts[1:]]),
            (self.shape[0] + later.shape[0], self.shape[1]),
        )


def pack(
    rows: Any,
    stats: tuple[HostArray | None, HostArray | None, HostArray | None],
    blocks: Sequence[slice],
    panel: int,
    caps: HostArray | None = None,
) -> Packed:
    """Copy points (p, d) into panels, each block from a panel of its own; CSR points keep their layout.

    `stats` are squared norms, norms and inverse norms, each (p,) or None; `panel` columns make one panel, and `caps`
    are (d,) or None.
    """
    d = rows.shape[1]
    counts = [-(-(block.stop - block.start) // panel) for block in blocks]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    chunk = chunk_panels(sparse_columns=not isinstance(rows, np.ndarray))
    chunks = np.concatenate([[0], np.cumsum([-(-count // chunk) for count in counts])])
    table = np.array(
        [(first[k], counts[k], block.start, block.stop - block.start, chunks[k]) for k, block in enumerate(blocks)],
        np.int64,
    ).reshape(-1, 5)
    runs = tuple(
        (block, slice(int(first[k]) * panel, int(first[k]) * panel + block.stop - block.start))
        for k, block in enumerate(blocks)
    )
    slots = int(first[-1]) * panel
    total = int(first[-1]) + CHUNK  # whole chunks are read at the end
    panels = csr = None
    if isinstance(rows, np.ndarray):
        panels = aligned((total, d, panel), rows.dtype)
        panels[first[-1] :] = 0
        for_each(_shares(blocks, d), lambda part: _fill_blocks(panels, rows, blocks, first, part), 8.0 * rows.size)
    else:
        csr = CSRParts.of(rows)
    squared, norm, inverse = (None if stat is None else _spread(stat, runs, panel, total * panel) for stat in stats)
    return Packed(panels, csr, squared, norm, inverse, table, _merged(runs), slots, panel, caps)


def join_packed(first: Packed, later: Packed) -> Packed:
    """Return the points of both, in panels of their own; both are copied. Both are dense, or both CSR."""
    panel = first.panel
    here, there = first.slots // panel, later.slots // panel
    total = here + there + CHUNK
    panels = csr = None
    if first.panels is not None and later.panels is not None:
        panels = aligned((total, *first.panels.shape[1:]), first.panels.dtype)
        panels[:here] = first.panels[:here]
        panels[here:] = later.panels
    if first.csr is not None and later.csr is not None:
        csr = first.csr.followed_by(later.csr)
    width = max((columns.stop for columns, _ in first.runs), default=0)
    squared, norm, inverse = (
        None if mine is None or theirs is None else np.concatenate([mine[: first.slots], theirs])
        for mine, theirs in zip(_stats(first), _stats(later), strict=True)
    )
    moved = [(_moved(columns, width), _moved(slots, first.slots)) for columns, slots in later.runs]
    blocks = np.concatenate([first.blocks, later.blocks + np.array([here, 0, width, 0, first.chunks])])
    runs, slots = _merged([*first.runs, *moved]), first.slots + later.slots
    return Packed(panels, csr, squared, norm, inverse, blocks, runs, slots, panel, first.caps)


def _stats(packed: Packed) -> tuple[HostArray | None, ...]:
    return packed.squared, packed.norm, packed.inverse


def _moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> HostArray:
    """Return an uninitialised array that starts at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _shares(blocks: Sequence[slice], d: int) -> list[slice]:
    """Return the blocks in groups that are worth a thread."""
    elements = sum(block.stop - block.start for block in blocks) * max(d, 1)
    return balanced(len(blocks), max(1, -(-len(blocks) // max(1, elements // _GROUP))))


def _fill_blocks(panels: HostArray, rows: HostArray, blocks: Sequence[slice], first: IntArray, part: slice) -> None:
    for k in range(part.start, part.stop):
        _fill(panels[first[k] : first[k + 1]], rows[blocks[k]])


def _fill(panels: HostArray, rows: HostArray) -> None:
    n, panel = rows.shape[0], panels.shape[2]
    whole = n // panel
    panels[:whole] = rows[: whole * panel].reshape(whole, panel, rows.shape[1]).transpose(0, 2, 1)
    if whole < panels.shape[0]:
        rest = n - whole * panel
        panels[whole, :, :rest] = rows[whole * panel :].T
        panels[whole, :, rest:] = rows[-1, :, None]


def _spread(stat: HostArray, runs: Sequence[tuple[slice, slice]], panel: int, size: int) -> HostArray:
    out = aligned((size,), stat.dtype)
    out[...] = stat[-1] if stat.size else 0
    for columns, slots in runs:
        out[slots] = stat[columns]
        out[slots.stop : -(-slots.stop // panel) * panel] = stat[columns.stop - 1]
    return out


def _merged(runs: Sequence[tuple[slice, slice]]) -> tuple[tuple[slice, slice], ...]:
    """Join neighbours that are consecutive on both sides."""
    merged: list[tuple[slice, slice]] = []
    for columns, slots in runs:
        if merged and merged[-1][0].stop == columns.start and merged[-1][1].stop == slots.start:
            previous = merged.pop()
            columns, slots = slice(previous[0].start, columns.stop), slice(previous[1].start, slots.stop)
        merged.append((columns, slots))
    return tuple(merged)
