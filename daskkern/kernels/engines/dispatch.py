"""The choice of the engine for a product: compiled code on a CPU, CUDA on a GPU, or tiles in NumPy or CuPy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.kernels.engines import cuda, native, tiled
from daskkern.kernels.formula import Program
from daskkern.kernels.points import Left, Points
from daskkern.kernels.precision import exact_precision
from daskkern.kernels.rows import module_of

Between = Callable[[Array, slice], Array]
_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain_products() -> Iterator[None]:
    """Within the context, points are prepared for the NumPy twin of the compiled engine: for tests and comparison."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def is_plain() -> bool:
    """Return whether this is within :func:`plain_products`."""
    return _plain.get()


def is_compiled(what: Program, Z: Array) -> bool:
    """Return whether points `Z` are to be prepared for the compiled engine."""
    return module_of(Z) is np and not is_plain() and native.is_supported(what, np.dtype(Z.dtype).itemsize)


class Engine(Protocol):
    """The products of one pair of sides; see :class:`daskkern.kernels.Kernel` for what each returns."""

    def block(self, out: Array) -> None:
        """Write the block (m, p)."""

    def matvec(self, A: Array, head: Array | None) -> Array:
        """Return ``K A``, float64."""

    def rmatvec(self, G: Array) -> Array:
        """Return ``K^T G`` in the working dtype."""

    def double_product(self, V: Array, between: Between | None) -> Array:
        """Return ``K^T op(K V)``, float64."""


@dataclass(frozen=True)
class Tiled:
    """Products of tiles that any function `fill` writes."""

    fill: tiled.Fill
    n_rows: int
    blocks: tuple[slice, ...]

    def block(self, out: Array) -> None:
        tiled.block(self.fill, self.n_rows, self.blocks, out)

    def matvec(self, A: Array, head: Array | None) -> Array:
        return tiled.matvec(self.fill, self.n_rows, self.blocks, A, head)

    def rmatvec(self, G: Array) -> Array:
        return tiled.rmatvec(self.fill, self.n_rows, self.blocks, G)

    def double_product(self, V: Array, between: Between | None) -> Array:
        return tiled.double_product(self.fill, self.n_rows, self.blocks, V, between)


@dataclass(frozen=True)
class Compiled:
    """Compiled products; many outputs at once go through compiled tiles and BLAS. `symmetric`: both sides are equal."""

    what: Program
    left: native.LeftRows
    right: native.Packed
    tiles: Tiled
    symmetric: bool

    def block(self, out: Array) -> None:
        if out.strides[1] != out.itemsize:
            self.tiles.block(out)
        elif self.symmetric:
            native.symmetric_block(self.what, self.left, self.right, out)
        else:
            native.block_all(self.what, self.left, self.right, out)

    def matvec(self, A: Array, head: Array | None) -> Array:
        if A.shape[1] > native.MOST_OUTPUTS or (head is not None and head.strides[1] != head.itemsize):
            return self.tiles.matvec(A, head)
        if self.symmetric and head is None:
            return native.symmetric_matvec(self.what, self.left, self.right, A)
        return native.matvec(self.what, self.left, self.right, A, head)

    def rmatvec(self, G: Array) -> Array:
        if G.shape[1] > native.MOST_OUTPUTS:
            return self.tiles.rmatvec(G)
        return native.rmatvec(self.what, self.left, self.right, G)

    def double_product(self, V: Array, between: Between | None) -> Array:
        if V.shape[1] > native.MOST_OUTPUTS:
            return self.tiles.double_product(V, between)
        return native.double_product(self.what, self.left, self.right, V, between)


@dataclass(frozen=True)
class Widened:
    """Products that `inner` computes in float64, for operands and results in `dtype`."""

    inner: Engine
    fill: tiled.Fill
    n_rows: int
    blocks: tuple[slice, ...]
    dtype: np.dtype

    def block(self, out: Array) -> None:
        tiled.block(self.fill, self.n_rows, self.blocks, out)

    def matvec(self, A: Array, head: Array | None) -> Array:
        wide = None if head is None else namespace_of(head).empty(head.shape, np.float64)
        scores = self.inner.matvec(A.astype(np.float64), wide)
        if head is not None:
            head[...] = wide
        return scores

    def rmatvec(self, G: Array) -> Array:
        return self.inner.rmatvec(G.astype(np.float64)).astype(self.dtype)

    def double_product(self, V: Array, between: Between | None) -> Array:
        return self.inner.double_product(V.astype(np.float64), between)


def widened_fill(fill: tiled.Fill) -> tiled.Fill:
    """Return the function that writes a tile which `fill` computes in float64."""

    def widened(rows: slice, k: int, out: Array) -> None:
        values = namespace_of(out).empty(out.shape, np.float64)
        fill(rows, k, values)
        out[...] = values

    return widened


@dataclass(frozen=True)
class OnGpu:
    """CUDA products."""

    operands: cuda.Operands
    dtype: np.dtype

    def block(self, out: Array) -> None:
        cuda.block(self.operands, out)

    def matvec(self, A: Array, head: Array | None) -> Array:
        return cuda.matvec(self.operands, A, head)

    def rmatvec(self, G: Array) -> Array:
        return cuda.rmatvec(self.operands, G).astype(self.dtype)

    def double_product(self, V: Array, between: Between | None) -> Array:
        return cuda.double_product(self.operands, V, between)


def engine_for(what: Program, left: Left, right: Points, *, same: bool) -> Engine:
    """Return the engine that both sides of a formula were prepared for; `same`: they are the same rows.

    Raises
    ------
    SpecError
        When they were prepared for different ones.
    """
    tiles = Tiled(fill_for(what, left, right), left.shape[0], right.blocks)
    rows, packed = left.native, right.packed
    if rows is not None and packed is not None:
        return Compiled(what, rows, packed, tiles, same and native.is_mirrored(rows))
    operands = _on_gpu(what, left, right)
    return tiles if operands is None else OnGpu(operands, right.dtype)


def _on_gpu(what: Program, left: Left, right: Points) -> cuda.Operands | None:
    """Return both sides for the CUDA engine; None where they were not prepared for it."""
    if right.table is None or left.side is None or right.side is None:
        return None
    device = cuda.device_of(module_of(right.side.rows))
    precision = right.precision or exact_precision(right.dtype)
    return cuda.Operands(device, what, left.side, right.side, right.blocks, right.table, precision)


def fill_for(what: Program, left: Left, right: Points) -> tiled.Fill:
    """Return the writer of one tile of the block; SpecError when the sides were prepared for different engines."""
    rows, packed = left.native, right.packed
    if rows is not None and packed is not None:
        return lambda part, k, out: native.block(what, rows, packed, part, k, out)
    operands = _on_gpu(what, left, right)
    if operands is not None:  # of a member of a sum or product
        return lambda part, k, out: cuda.fill(operands, part, right.blocks[k], out)
    if left.side is None or right.side is None:
        raise SpecError("X was prepared for another engine than the points; prepare both in one place")
    return tiled.formula_fill(what, left.side, right.side, right.blocks)
