"""Random features that are regenerated for each use, so that a model stores only their column numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.activations import Neuron
from daskkern.kernels.functions.arc_cosine import ArcCosine
from daskkern.kernels.functions.spectral import in_row_coordinates, seen_features, spectral_kernel, spread
from daskkern.kernels.parameters import whole
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rows import as_rows, module_of

_STREAM = 83
MOST_DRAWN = 1 << 24
"""Largest number of columns: float32 represents their numbers exactly."""
KEPT_BYTES = 1 << 26
"""Bytes of weights that points cache for their next product; others are drawn again, at three times the cost of a
product with batches of 128 rows."""
_GRADIENT_COLUMNS = 2048
_PADDED = 256
"""Columns by which a prepared piece may be longer."""


@dataclass(frozen=True, eq=False)
class DrawnPoints(Points):
    """Column numbers, with the weights of the first whole pieces once a product has used them.

    Pieces are cached up to column `keeps`, at most KEPT_BYTES. They belong to the kernel `owner`, and no other can use
    them. Threads may share the points: an entry of `kept` is the same whichever thread computes it.
    """

    owner: Kernel | None = None
    keeps: int = 0
    kept: dict[int, Points] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawn(TwoProducts):
    """Columns in blocks of random features, not a kernel; its points are column numbers, (p, 1).

    Column number j is feature ``j % width`` of block ``j // width``, whose weights come from (seed, block number) by a
    counter-based generator: the same on every machine, and not part of a model. Prepared points cache those of
    their first columns, up to KEPT_BYTES, from one product to the next. The inner product of the features of a block
    is an unbiased estimate of the kernel: every block is a sample of its own.

    Parameters
    ----------
    kernel : Gaussian, Laplacian, Matern, Cauchy or ArcCosine
        The kernel whose random features are drawn.
    seed : int
        Seed of the draws.
    width : int
        Features of a block; an even number for Fourier features.
    n_features : int
        Of the rows.
    """

    name: ClassVar[str] = "drawn"

    kernel: Kernel
    seed: int
    width: int
    n_features: int

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("width", 1), ("n_features", 1)):
            object.__setattr__(self, name, whole("drawn features", name, getattr(self, name), least))
        if isinstance(self.kernel, ArcCosine):
            return
        spectral_kernel(self.kernel)
        if self.width % 2:
            raise SpecError(f"got blocks of {self.width} random Fourier features; give an even number")

    def formula(self, pair: Pair) -> Expression:
        return pair.inner

    def spec(self) -> Spec:
        own = {"seed": self.seed, "width": self.width, "n_features": self.n_features}
        return {"name": self.name, "kernel": dict(self.kernel.spec()), **own}

    def features_of(self, points: Array) -> int:
        del points
        return self.n_features

    def weights(self, number: int) -> FloatArray:
        """Return the weights (width, d) float64 of block `number`."""
        rng = generator(self.seed, _STREAM, number)
        if isinstance(self.kernel, ArcCosine):
            return rng.standard_normal((self.width, self.n_features))
        radial = spectral_kernel(self.kernel)
        normal = rng.standard_normal((seen_features(radial, self.n_features), self.width // 2))
        half = in_row_coordinates(radial, spread(radial, normal, rng), self.n_features).T
        return np.concatenate([half, -half])

    def as_neurons(self, numbers: HostArray) -> tuple[Neuron, FloatArray]:
        """Return columns (p,) as neurons with weights (p, d) float64 that are stored, and no longer drawn."""
        return self._neuron, self._weights_of(numbers)

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
        xp = module_of(Z)
        numbers = to_host(Z)[:, 0].astype(np.int64)
        if Z.shape[1] != 1 or (numbers.size and not 0 <= numbers.min() <= numbers.max() < MOST_DRAWN):
            raise DataError(f"got drawn columns {Z.shape}; expected one number below {MOST_DRAWN} for each")
        like = self._neuron.points(xp.zeros((1, self.n_features), Z.dtype), precision=precision)
        side = Side(numbers, None, None, None)
        cuts = cut_blocks(Z.shape[0], blocks)
        return DrawnPoints(
            Z.shape[0], self.n_features, Z.dtype, PLAIN, cuts, side, parts=(like,), precision=precision,
            owner=self, keeps=_keeps(cuts, self.n_features * Z.dtype.itemsize),
        )  # fmt: skip

    def left(self, X: Array, right: Points) -> Left:
        return self._neuron.left(X, right.parts[0])

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        xp = module_of(self._like(right))
        result = xp.empty((left.shape[0], right.size), right.dtype) if out is None else out
        for run, points in self._runs(right):
            result[:, run] = self._neuron.block(left, points)
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        self._write_head(head, left, right)
        total = namespace_of(A).zeros((left.shape[0], A.shape[1]))
        for run, points in self._runs(right, A):
            total += self._neuron.matvec(left, points, A[run])
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        out = namespace_of(G).empty((right.size, G.shape[1]), right.dtype)
        for run, points in self._runs(right):
            out[run] = self._neuron.rmatvec(left, points, G)
        return out

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of a model of drawn features by its rows; a piece of the weights is held at a time."""
        numbers = to_host(Z)[:, 0].astype(np.int64)
        xp = module_of(as_rows(X))
        total = xp.zeros((X.shape[0], A.shape[1], self.n_features))
        for run in slices(numbers.size, _GRADIENT_COLUMNS):
            rows = xp.asarray(self._weights_of(numbers[run]))
            each = None if weights is None else weights[:, run]
            total += self._neuron.gradient_matvec(X, rows, A[run], each)
        return total

    def _runs(self, right: Points, A: Array | None = None) -> Iterator[tuple[slice, Points]]:
        """Yield each piece of the columns with its weights, without columns at its ends whose rows of `A` are 0."""
        assert right.side is not None
        numbers, like = right.side.rows, right.parts[0]
        own = isinstance(right, DrawnPoints) and right.owner is self
        kept, keeps = (right.kept, right.keeps) if isinstance(right, DrawnPoints) and own else ({}, 0)
        xp = module_of(self._like(right))
        for cut in right.blocks:
            run = cut if A is None else _without_zeros(cut, A)
            if run.start == run.stop:
                continue
            points = kept.get(cut.start) if run == cut else None
            if points is None:
                rows = self._weights_of(numbers[run]).astype(right.dtype)
                points = self._neuron.points(xp.asarray(rows), precision=like.precision)
                if run == cut and cut.stop <= keeps:
                    kept[cut.start] = points
            yield run, points

    def _weights_of(self, numbers: HostArray) -> FloatArray:
        """Return the weights (k, d) of columns."""
        rows = np.empty((numbers.size, self.n_features))
        owners = numbers // self.width
        for number in np.unique(owners).tolist():
            here = owners == number
            rows[here] = self.weights(number)[numbers[here] % self.width]
        return rows

    def _like(self, right: Points) -> Array:
        """Return an array in the memory of the rows: the numbers themselves stay on the host."""
        like = right.parts[0]
        return np.empty(0) if like.side is None else like.side.rows

    @property
    def _neuron(self) -> Neuron:
        degrees = ("step", "relu", "relu2")
        activation = degrees[self.kernel.degree] if isinstance(self.kernel, ArcCosine) else "fourier"
        return Neuron(activation, self.width)


def _keeps(cuts: Sequence[slice], column_bytes: int) -> int:
    """Return up to which column the pieces `cuts` are within KEPT_BYTES."""
    stop, columns = 0, 0
    for cut in cuts:
        columns += cut.stop - cut.start + _PADDED
        if columns * column_bytes > KEPT_BYTES:
            break
        stop = cut.stop
    return stop


def _without_zeros(cut: slice, A: Array) -> slice:
    """Return the part of `cut` from the first row of `A` that is not 0 to the last."""
    rows = np.flatnonzero(to_host(A[cut].any(axis=1)))
    if not rows.size:
        return slice(cut.start, cut.start)
    return slice(cut.start + int(rows[0]), cut.start + int(rows[-1]) + 1)
