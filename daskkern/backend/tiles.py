"""Cache-sized tiles of matrix products, and their distribution over threads.

A kernel product is cut into tiles whose shape depends on the operands alone, so the results do not depend on
the number of threads. Inside :func:`tile_pool` the tiles are spread over a pool; outside it they run one after
the other, and BLAS chooses its own threads.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from types import ModuleType
from typing import TypeVar

import numpy as np

from daskkern.arrays import Array

TILE_ROWS = 512
TILE_COLUMNS = 1024  # a float32 tile of 512 x 1024 is 2 MiB: it stays in one core's L2 from GEMM to profile
_LANES = 16  # float32 numbers in the widest vector register; skinny products run twice as fast in full lanes

_PRODUCT_ROWS = 256  # rows of a skinny product's tile: fewer would use BLAS's slow path for small matrices
_PRODUCT_TILES = 16  # and most tiles, because BLAS is slow on short ones

SMALL = 1 << 24
"""Multiply-adds that take one thread a quarter of a millisecond: waking another takes about half of that."""

_local = threading.local()
Tile = TypeVar("Tile")


def slices(n: int, step: int) -> list[slice]:
    """Cut ``range(n)`` into consecutive slices of at most `step`."""
    if 0 < n <= step:
        return [slice(0, n)]  # the usual case in small steps
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def tile_shape(xp: ModuleType, m: int, p: int) -> tuple[int, int]:
    """Return rows and columns of a tile: cache-sized on the host, the whole block on a GPU."""
    return (TILE_ROWS, TILE_COLUMNS) if xp is np else (max(m, 1), max(p, 1))


def balanced(n: int, step: int) -> list[slice]:
    """Cut ``range(n)`` into the fewest consecutive slices of at most `step`, of nearly equal length."""
    if 0 < n <= step:
        return [slice(0, n)]
    count = -(-n // step)
    edges = [n * k // count for k in range(count + 1)] if count else []
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def within(part: slice, step: int) -> list[slice]:
    """Cut the slice `part` into nearly equal slices of at most `step`."""
    if 0 < part.stop - part.start <= step:
        return [part]
    return [slice(part.start + cut.start, part.start + cut.stop) for cut in balanced(part.stop - part.start, step)]


@contextmanager
def tile_pool(pool: Executor | None, n_threads: int = 1) -> Iterator[None]:
    """Within the context, spread this thread's tiles over `n_threads`: itself, and the others of `pool`.

    With None this thread computes them alone, also where :func:`product_threads` would add others.
    """
    entered, previous = in_tile_pool(), getattr(_local, "helpers", None)
    _local.helpers = None if pool is None or n_threads < 2 else (pool, n_threads - 1)
    try:
        yield
    finally:
        if entered:
            _local.helpers = previous
        else:
            del _local.helpers


def in_tile_pool() -> bool:
    """Return whether the threads of this thread's tiles are already set: it is in a :func:`tile_pool` or in a tile."""
    return hasattr(_local, "helpers")


def for_each(tiles: Sequence[Tile], work: Callable[[Tile], None], size: float = SMALL) -> None:
    """Call `work` on every tile (or other item), on the pool of :func:`tile_pool` if there is one.

    Parameters
    ----------
    tiles : sequence
        Each goes to the first free thread; so no tile may depend on another's result.
    work : callable
    size : float
        Approximate number of multiply-adds of all tiles: below :data:`SMALL`, other threads would only start when this
        one is done, so it works alone.
    """
    helpers = getattr(_local, "helpers", None)
    if helpers is None or len(tiles) < 2 or size < SMALL:
        for tile in tiles:
            work(tile)
        return
    pool, others = helpers
    waiting = deque(tiles)

    def take() -> None:
        while waiting:
            try:
                tile = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                work(tile)
            except BaseException:
                waiting.clear()
                raise

    def help_out() -> None:
        with tile_pool(None):
            take()

    futures = [pool.submit(help_out) for _ in range(min(others, len(tiles) - 1))]
    _local.helpers = None  # a tile that is cut again stays on its thread
    try:
        take()
    finally:
        _local.helpers = helpers
        _await(futures)


def _await(futures: list[Future[None]]) -> None:
    """Wait until all futures have ended, and raise the first exception."""
    failures = [future.exception() for future in futures if not future.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure


def pad_columns(array: Array, xp: ModuleType) -> Array:
    """Return the 2-d `array` with zero columns up to a multiple of the vector width, on the host only.

    A product with 10 columns costs more than one with 16; callers drop the extra columns afterwards.
    """
    surplus = -array.shape[1] % _LANES
    if xp is not np or surplus == 0 or array.shape[1] == 1:
        return array
    return np.concatenate([array, np.zeros((array.shape[0], surplus), array.dtype)], axis=1)


def skinny_size(block: Array) -> float:
    """Return the size for :func:`for_each` of a product of `block` with few columns, which is bound by reading it."""
    return _LANES * float(block.size)


def multiply(left: Array, right: Array, xp: ModuleType) -> Array:
    """Return ``left @ right`` for a tall or wide `left` (m, p) and a skinny `right` (p, c), tiled over rows."""
    m, c = left.shape[0], right.shape[1]
    rows = max(_PRODUCT_ROWS, -(-m // _PRODUCT_TILES)) if xp is np else max(m, 1)
    padded = pad_columns(right, xp)
    out = xp.empty((m, padded.shape[1]), right.dtype)

    def one(tile: slice) -> None:
        xp.matmul(left[tile], padded, out=out[tile])

    for_each(balanced(m, rows), one, skinny_size(left))
    return out[:, :c]


def multiply_blocks(left: Array, right: Array, blocks: Sequence[slice], xp: ModuleType) -> Array:
    """Return ``left @ right`` in float64, summed over column blocks of `left` (m, p) and row blocks of `right` (p, c).

    Each block's product is taken in the working dtype and the blocks are added in float64. Blocks that do not depend
    on the distribution of the columns make the sum over ranks the same for every number of ranks, up to rounding in
    float64: coefficients of a kernel model cancel, and sums of p products in float32 differ by 1e-4 of
    the result when their order does.
    """
    if xp is not np:
        total = xp.zeros((left.shape[0], right.shape[1]), np.float64)
        for block in blocks:
            total += left[:, block] @ right[block]
        return total
    rows = balanced(left.shape[0], max(_PRODUCT_ROWS, -(-left.shape[0] // _PRODUCT_TILES)))
    padded = pad_columns(right, xp)
    out = np.zeros((left.shape[0], padded.shape[1]))

    def one(tile: slice) -> None:
        for block in blocks:
            out[tile] += left[tile, block] @ padded[block]

    for_each(rows, one, skinny_size(left))
    return out[:, : right.shape[1]]


def multiply_transposed_blocks(left: Array, right: Array, blocks: Sequence[slice], xp: ModuleType) -> Array:
    """Return ``left.T @ right`` in float64 for `left` (p, r) and `right` (p, c), summed over blocks of their rows."""
    out = xp.zeros((left.shape[1], right.shape[1]))
    for block in blocks:
        out += multiply_transposed(left[block], right[block], xp)
    return out


def multiply_transposed(left: Array, right: Array, xp: ModuleType) -> Array:
    """Return ``left.T @ right`` for `left` (m, p) and a skinny `right` (m, c), tiled over the columns of `left`."""
    if xp is not np:
        return xp.matmul(left.T, right)
    p, c = left.shape[1], right.shape[1]
    _, columns = tile_shape(xp, left.shape[0], p)
    padded = xp.ascontiguousarray(pad_columns(right, xp).T)  # (c, m): row-major times row-major is the fast order
    out = xp.empty((padded.shape[0], p), right.dtype)

    def one(tile: slice) -> None:
        out[:, tile] = padded @ left[:, tile]

    for_each(slices(p, columns), one, skinny_size(left))
    return xp.ascontiguousarray(out[:c].T)
