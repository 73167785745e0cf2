"""Products in cache-sized tiles, for any function that fills a tile: the reference engine, in NumPy and CuPy.

Each function takes `fill(rows, k, out)`, which writes the kernel's values for a slice of rows and the k-th block of
columns. The compiled engine fills tiles here too where it has no fused product of its own.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, IntArray
from daskkern.backend.csr import library_matrix
from daskkern.backend.namespace import is_sparse, namespace_of, to_host
from daskkern.backend.tiles import TILE_ROWS, balanced, for_each, multiply, multiply_transposed, slices
from daskkern.kernels.formula import DIFFERENCES, Program, evaluate
from daskkern.kernels.norms import Difference
from daskkern.kernels.points import Side
from daskkern.kernels.rows import module_of

Fill = Callable[[slice, int, Array], None]
_GROUPS = 16
_STRIPE_BYTES = 4 << 20
_DEPTH = 256  # features whose differences are summed before their sum is added to the others'


def formula_fill(what: Program, left: Side, right: Side, blocks: Sequence[slice]) -> Fill:
    """Return the fill of a formula: one matrix product, or a sum of differences, then the formula on the whole tile."""

    difference = what.difference
    if difference is not None:
        difference = replace(difference, caps=right.caps)

    def fill(rows: slice, k: int, out: Array) -> None:
        cols = blocks[k]
        if difference is None:
            inner_products(left.rows[rows], right.rows[cols], out)
        else:
            difference_sums(left.rows[rows], right.rows[cols], difference, out)
        xp = namespace_of(out)
        with np.errstate(over="ignore"):  # exp(-inf) is 0; infinite values show in the result
            out[...] = evaluate(what, _symbols(what, out, left, right, rows, cols, xp), xp)

    return fill


def inner_products(X: Array, Z: Array, out: Array) -> None:
    """Write ``X Z^T`` to `out`; neither side is made dense."""
    if not is_sparse(X) and not is_sparse(Z):
        namespace_of(out).matmul(X, Z.T, out=out)
        return
    X, Z = library_matrix(X), library_matrix(Z)
    product = X @ Z.T if is_sparse(X) else (Z @ X.T).T
    out[...] = product.toarray() if is_sparse(product) else product


def difference_sums(X: Array, Z: Array, difference: Difference, out: Array) -> None:
    """Write the sums of the terms of ``x_ik - z_jk`` to `out`, feature by feature.

    One more tile is held, whatever their number.
    Of sparse rows, only the features that occur in the tile are made dense, a few at a time.
    """
    xp = namespace_of(out)
    gaps, part = xp.empty(out.shape, out.dtype), xp.empty(out.shape, out.dtype)
    out[...] = 0
    for features, x, z in _features_of(X, Z):
        part[...] = 0
        for k, feature in enumerate(features):
            xp.subtract(x[:, k, None], z[None, :, k], out=gaps)
            part += difference.of(xp.absolute(gaps, out=gaps), feature)
        out += part


def _features_of(X: Array, Z: Array) -> Iterator[tuple[Sequence[int], Array, Array]]:
    """Yield a few features at a time, and dense columns (m, w) and (p, w): those in which some row is not 0."""
    if not is_sparse(X) and not is_sparse(Z):
        for cut in slices(X.shape[1], _DEPTH):
            yield range(cut.start, cut.stop), X[:, cut], Z[:, cut]
        return
    occurring = np.zeros(X.shape[1], bool)
    for rows in (X, Z):
        occurring[to_host(rows.indices) if is_sparse(rows) else slice(None)] = True
    features = np.flatnonzero(occurring)
    for cut in slices(features.size, _DEPTH):
        some = features[cut]
        yield some.tolist(), _dense_columns(X, some), _dense_columns(Z, some)


def _dense_columns(rows: Array, features: IntArray) -> Array:
    some = library_matrix(rows)[:, module_of(rows).asarray(features)]
    return some.toarray() if is_sparse(some) else some


def _symbols(
    what: Program, inner: Array, left: Side, right: Side, rows: slice, cols: slice, xp: ModuleType
) -> dict[str, Array]:
    """Return a tile for each symbol; only the inner product's own tile is shared with `inner`."""
    if what.symbols <= set(DIFFERENCES):
        return dict.fromkeys(DIFFERENCES, inner)
    values: dict[str, Array] = {}
    if left.squared is not None and right.squared is not None:
        squared = inner * -2
        squared += left.squared[rows, None]
        squared += right.squared[None, cols]
        values["squared_distance"] = xp.maximum(squared, 0, out=squared)
        if "distance" in what.symbols:
            values["distance"] = xp.sqrt(squared, out=None if "squared_distance" in what.symbols else squared)
    if left.inverse is not None and right.inverse is not None:
        cosine = inner * left.inverse[rows, None]
        cosine *= right.inverse[None, cols]
        values["cosine"] = xp.clip(cosine, -1, 1, out=cosine)
    if left.norm is not None and right.norm is not None and "norms" in what.symbols:
        values["norms"] = left.norm[rows, None] * right.norm[None, cols]
    values["inner"] = inner
    return values


def block(fill: Fill, m: int, blocks: Sequence[slice], out: Array) -> None:
    """Write the whole block (m, p)."""

    def unit(work: tuple[slice, int]) -> None:
        rows, k = work
        fill(rows, k, out[rows, blocks[k]])

    for_each(list(itertools.product(_row_tiles(m, namespace_of(out)), range(len(blocks)))), unit)


def matvec(fill: Fill, m: int, blocks: Sequence[slice], A: Array, head: Array | None) -> Array:
    """Return ``K A`` (m, c), float64, and the first columns of K in `head`."""
    xp = namespace_of(A)
    count = len(blocks)
    groups = [range(part.start, part.stop) for part in balanced(count, max(1, -(-count // _GROUPS)))]
    partial = xp.zeros((len(groups), m, A.shape[1]), np.float64)
    n_head = 0 if head is None else head.shape[1]
    widest = max((cut.stop - cut.start for cut in blocks), default=0)

    def unit(work: tuple[slice, int]) -> None:
        rows, group = work
        buffer = xp.empty((rows.stop - rows.start, widest), A.dtype)
        for k in groups[group]:
            cols = blocks[k]
            values = buffer[:, : cols.stop - cols.start]
            fill(rows, k, values)
            partial[group, rows] += multiply(values, A[cols], xp)
            if head is not None and cols.start < n_head:
                width = min(cols.stop, n_head) - cols.start
                head[rows, cols.start : cols.start + width] = values[:, :width]

    for_each(list(itertools.product(_row_tiles(m, xp), range(len(groups)))), unit)
    return partial.sum(axis=0)  # in the order of the groups, whichever thread computed them


def rmatvec(fill: Fill, m: int, blocks: Sequence[slice], G: Array) -> Array:
    """Return ``K^T G`` (p, c) in the dtype of `G`."""
    xp = namespace_of(G)
    out = xp.zeros((blocks[-1].stop if blocks else 0, G.shape[1]), G.dtype)

    def strip(k: int) -> None:
        cols = blocks[k]
        total = xp.zeros((cols.stop - cols.start, G.shape[1]), np.float64)
        buffer = xp.empty((min(TILE_ROWS, m) if xp is np else m, cols.stop - cols.start), G.dtype)
        for rows in _row_tiles(m, xp):
            values = buffer[: rows.stop - rows.start]
            fill(rows, k, values)
            total += multiply_transposed(values, G[rows], xp)
        out[cols] = total

    for_each(range(len(blocks)), strip)
    return out


def double_product(
    fill: Fill, m: int, blocks: Sequence[slice], V: Array, between: Callable[[Array, slice], Array] | None
) -> Array:
    """Return ``K^T op(K V)`` (p, c), float64, in one pass: each block of K is computed once and used on both sides."""
    xp = namespace_of(V)
    p = blocks[-1].stop if blocks else 0
    height = max(1, min(m, _STRIPE_BYTES // (max(p, 1) * V.dtype.itemsize))) if xp is np else max(m, 1)
    stripes = balanced(m, height)
    groups = [range(part.start, part.stop) for part in balanced(len(stripes), max(1, -(-len(stripes) // _GROUPS)))]
    partial = xp.zeros((len(groups), p, V.shape[1]), np.float64)

    def unit(group: int) -> None:
        buffer = xp.empty((height, p), V.dtype)
        for at in groups[group]:
            rows = stripes[at]
            values = buffer[: rows.stop - rows.start]
            scores = xp.zeros((values.shape[0], V.shape[1]), np.float64)
            for k, cols in enumerate(blocks):
                fill(rows, k, values[:, cols])
                scores += values[:, cols] @ V[cols]
            g = scores if between is None else between(scores, rows)
            partial[group] += multiply_transposed(values, g.astype(V.dtype), xp)

    for_each(range(len(groups)), unit)
    return partial.sum(axis=0)


def _row_tiles(m: int, xp: ModuleType) -> list[slice]:
    return balanced(m, TILE_ROWS if xp is np else max(m, 1))
