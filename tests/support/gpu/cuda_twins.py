"""The CUDA kernels in NumPy and CuPy: the same tiles, the same order of sums, one function for each kernel.

They are for tests: a kernel and its twin differ by the rounding of fused multiply-adds only. The engine that
serves where the CUDA engine is switched off is ``daskkern.kernels.engines.tiled``.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import slices
from daskkern.kernels.engines.cuda.launch import OUTPUTS_PER_PASS, score_grid
from daskkern.kernels.engines.cuda.source import BLOCK_TILE, KernelSizes
from daskkern.kernels.formula import DIFFERENCES, Program, evaluate
from daskkern.kernels.points import Side

_CHUNK_COLUMNS = 64


def scores(what: Program, rows: Side, columns: Side, blocks: Sequence[slice], factor: Array) -> Array:
    """Return what ``scores`` of scores.cu and the sum over its groups give: ``K factor`` (m, c), float64."""
    xp = namespace_of(factor)
    m, d = rows.rows.shape
    total = xp.zeros((m, factor.shape[1]), np.float64)
    if not (m and blocks):
        return total
    sizes = KernelSizes(factor.itemsize, d, min(factor.shape[1], OUTPUTS_PER_PASS))
    grid = score_grid(m, len(blocks), sizes)
    each = grid.blocks_per_group
    for group in range(grid.groups):
        partial = xp.zeros_like(total)
        for cut in blocks[group * each : (group + 1) * each]:
            sums = xp.zeros(total.shape, factor.dtype)
            for start in range(cut.start, cut.stop, _CHUNK_COLUMNS):
                chunk = slice(start, min(start + _CHUNK_COLUMNS, cut.stop))
                raw = pair_sums(what, rows.rows, columns.rows[chunk], columns.caps)
                values = _values(what, raw, rows.stats, _cut(columns, chunk))
                for j in range(values.shape[1]):
                    sums += values[:, j, None] * factor[chunk.start + j]
            partial += sums
        total += partial
    return total


def write_block(what: Program, rows: Side, columns: Side) -> Array:
    """Return what ``write_block`` of block.cu writes: K (m, p)."""
    xp = namespace_of(rows.rows)
    out = xp.empty((rows.rows.shape[0], columns.rows.shape[0]), rows.rows.dtype)
    for part in slices(out.shape[0], BLOCK_TILE):
        for chunk in slices(out.shape[1], BLOCK_TILE):
            inner = pair_sums(what, rows.rows[part], columns.rows[chunk], columns.caps)
            out[part, chunk] = _values(what, inner, _cut(rows, part), _cut(columns, chunk))
    return out


def block_sums(left: Array, right: Array, blocks: Sequence[slice], turned: bool = False) -> Array:
    """Return what ``block_sums`` of sums.cu and the sum over the blocks give: ``left @ right`` (m, c), float64.

    The threads of a warp have every 32nd column each, or where it is `turned` the warps every eighth.
    """
    xp, step = namespace_of(left), 8 if turned else 32
    total = xp.zeros((left.shape[0], right.shape[1]), np.float64)
    for cut in blocks:
        parts = []
        for place in range(step):
            sums = xp.zeros(total.shape, right.dtype)
            for k in range(cut.start + place, cut.stop, step):
                sums += left[:, k, None] * right[k]
            parts.append(sums)
        total += sum(parts) if turned else sum(part.astype(np.float64) for part in parts)
    return total


def profile(what: Program, rows: Side, columns: Side, inner: Array) -> Array:
    """Return what ``profile`` of profile.cu makes of a tile (m, p) of inner products."""
    return _values(what, inner, rows.stats, columns.stats)


Stats = tuple[Array | None, Array | None, Array | None]


def pair_sums(what: Program, X: Array, Z: Array, caps: Array | None = None) -> Array:
    """Return inner products (m, p), or sums of differences with `caps`, summed feature by feature."""
    terms = what.difference if what.difference is None else replace(what.difference, caps=caps)
    out = namespace_of(X).zeros((X.shape[0], Z.shape[0]), X.dtype)
    for k in range(X.shape[1]):
        x, z = X[:, k, None], Z[None, :, k]
        out += x * z if terms is None else terms.of(abs(x - z), k)
    return out


def _cut(side: Side, part: slice) -> Stats:
    squared, norm, inverse = (None if stat is None else stat[part] for stat in side.stats)
    return squared, norm, inverse


def _values(what: Program, inner: Array, row: Stats, column: Stats) -> Array:
    """Return the formula's values as ``kernel_value`` computes them: see ``source.value_function``."""
    xp = namespace_of(inner)
    squared, norm, inverse = (
        (None, None) if a is None or b is None else (a[:, None], b[None, :]) for a, b in zip(row, column, strict=True)
    )
    symbols = {"inner": inner.copy(), **{name: inner.copy() for name in DIFFERENCES}}
    if squared[0] is not None:
        symbols["squared_distance"] = xp.maximum((squared[0] + squared[1]) - 2 * inner, 0)
        symbols["distance"] = xp.sqrt(symbols["squared_distance"])
    if inverse[0] is not None:
        symbols["cosine"] = xp.clip(inner * (inverse[0] * inverse[1]), -1, 1)
    if norm[0] is not None:
        symbols["norms"] = norm[0] * norm[1]
    out = xp.empty_like(inner)
    out[...] = evaluate(what, symbols, xp)
    return out
