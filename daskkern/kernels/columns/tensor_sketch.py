"""TensorSketch: random features of the polynomial kernel.

    phi(x) = F^-1 prod_k F(C_k(x)) ,      C_k a count sketch of (gamma^(1/2) x, coef0^(1/2)) into `width` numbers ,

the sketch of the tensor power of a row as a circular convolution of `degree` sketches, F being the discrete Fourier
transform. ``phi(x)^T phi(z)`` is an unbiased estimate of ``(gamma x.z + coef0)^degree``.

References
----------
Pham and Pagh, "Fast and scalable polynomial kernels via explicit feature maps", KDD 2013.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS, slices
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Spec
from daskkern.kernels.columns.count_sketch import CountSketch
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.parameters import as_number, whole
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rows import as_rows, module_of
from daskkern.kernels.unscaled_rows import UnscaledRows

_STREAM = 84
_HELD = 3  # numbers of a piece for each of a tile that plans count, of which there are two
_LEAST_ROWS = 8
_LEAST = {"degree": 1, "width": 1, "seed": 0, "n_features": 1}


@dataclass(frozen=True)
class TensorSketch(UnscaledRows, TwoProducts):
    """Columns ``phi_j(x)``, j below `width`, of the sketch; not a kernel. Its points are column numbers, (p, 1).

    The sketch of a row has all columns at once: every rank computes it, and keeps its own.

    Parameters
    ----------
    degree, gamma, coef0
        Of the polynomial kernel.
    width : int
        Columns in all.
    seed : int
        Seed of the draws.
    n_features : int
        Of the rows.

    Raises
    ------
    SpecError
        For numbers that are not possible.
    """

    name: ClassVar[str] = "tensor_sketch"

    degree: int
    gamma: float
    coef0: float
    width: int
    seed: int
    n_features: int

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            object.__setattr__(self, name, whole("a TensorSketch", name, getattr(self, name), least))
        if not (0 < as_number(self.gamma) < np.inf and 0 <= as_number(self.coef0) < np.inf):
            raise SpecError(
                f"got gamma={self.gamma!r} and coef0={self.coef0!r} for a TensorSketch; give a positive number and "
                "one of 0 or more"
            )

    def formula(self, pair: Pair) -> Expression:
        raise SpecError("a TensorSketch is not a formula of two rows and has no gradients; take the polynomial kernel")

    def spec(self) -> Spec:
        return {"name": self.name, **{item.name: getattr(self, item.name) for item in fields(self)}}

    def features_of(self, points: Array) -> int:
        del points
        return self.n_features

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        del placement
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        numbers = to_host(Z)
        if Z.shape[1] != 1 or (numbers.size and not 0 <= numbers.min() <= numbers.max() < self.width):
            raise DataError(f"got columns {Z.shape} of a TensorSketch; expected one number below {self.width} for each")
        cuts, side = cut_blocks(Z.shape[0], blocks), Side(Z, None, None, None)
        return Points(Z.shape[0], self.n_features, Z.dtype, PLAIN, cuts, side, precision=precision)

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(X, right)
        return Left(X.shape, X.dtype, Side(rounded(X, right.precision), None, None, None))

    def sketch(self, X: Array) -> Array:
        """Return phi of rows (m, d), dense or CSR, as (m, width) in their dtype."""
        xp = module_of(X)
        product: Array | None = None
        for sketch in self.sketches:
            part = xp.fft.rfft(sketch.of(X, self.gamma**0.5, self.coef0**0.5))
            product = part if product is None else product * part
        return xp.fft.irfft(product, self.width).astype(X.dtype)

    @cached_property
    def sketches(self) -> tuple[CountSketch, ...]:
        """The count sketch of each factor, made from the seed and kept."""
        rngs = (generator(self.seed, _STREAM, k) for k in range(self.degree))
        return tuple(CountSketch.drawn(rng, self.n_features, self.width) for rng in rngs)

    @property
    def table_bytes(self) -> int:
        """Bytes of what is kept in addition to the numbers of the columns."""
        return sum(sketch.nbytes for sketch in self.sketches)

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        xp = self._namespace(left)
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        for rows, values in self._pieces(left, right):
            result[rows] = values
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        total = namespace_of(A).zeros((left.shape[0], A.shape[1]))
        for rows, values in self._pieces(left, right):
            total[rows] = values.astype(np.float64) @ A
            if head is not None:
                head[rows] = values[:, : head.shape[1]]
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        total = namespace_of(G).zeros((right.size, G.shape[1]))
        for rows, values in self._pieces(left, right):
            total += values.astype(np.float64).T @ G[rows]
        return total.astype(right.dtype)

    def _pieces(self, left: Left, right: Points) -> Iterator[tuple[slice, Array]]:
        """Yield the values of the columns at pieces of the rows."""
        assert left.side is not None
        assert right.side is not None
        numbers = right.side.rows[:, 0].astype(np.int64)
        step = TILE_ROWS * TILE_COLUMNS // (_HELD * self.width)
        for rows in slices(left.shape[0], max(_LEAST_ROWS, step)):
            yield rows, self.sketch(left.side.rows[rows])[:, numbers]
