"""Fastfood: random Fourier features by fast transforms, whose frequencies no model stores.

    phi(x) = (cos t + sin t, cos t - sin t) / width^(1/2) ,   t = S H G P H B x / (D^(1/2) length_scale)

group by group: of D features or fewer, the next power of two from the number of features of a row on, all from one
transform, which every rank makes that has columns of the group.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.backend.random import generator
from daskkern.backend.tiles import TILE_COLUMNS, TILE_ROWS, for_each, multiply_transposed_blocks, slices
from daskkern.errors import DataError, SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.hadamard import FastFrequencies, group_size
from daskkern.kernels.columns.regenerated_features import MOST_DRAWN
from daskkern.kernels.columns.two_products import TwoProducts
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.activations import Neuron
from daskkern.kernels.functions.spectral import has_spectrum, spectral_kernel, spread
from daskkern.kernels.parameters import whole
from daskkern.kernels.points import PLAIN, Left, Placement, Points, Side, cut_blocks, rows_like
from daskkern.kernels.precision import Precision, agreed_dtype, rounded
from daskkern.kernels.rows import as_rows, module_of

STREAM = 81
"""That of the other random Fourier features: those of all kinds are drawn from it."""
_HELD = 8  # numbers for each of a group's frequencies and each row
_DEVICE_NUMBERS = 1 << 25
_LEAST_ROWS = 16
_GRADIENT_COLUMNS = 2048
_WORTHWHILE = 192
_LEAST_GROUP = 256


@dataclass(frozen=True, eq=False)
class FastPoints(Points):
    """Column numbers, cut into runs of one group each."""

    runs: tuple["Run", ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """Neighbouring columns `where` of one group: all of its features in order, or those in `chosen`."""

    where: slice
    group: int
    chosen: HostArray | None


@dataclass(frozen=True)
class Fastfood(TwoProducts):
    """Columns ``phi_j(x)``, j below `width`, not a kernel; its points are column numbers, (p, 1).

    Parameters
    ----------
    kernel : Gaussian, Laplacian, Matern or Cauchy
        Of one length scale.
    width : int
        Columns in all; an even number.
    seed : int
        Of the random numbers.
    n_features : int
        Of the rows.

    Raises
    ------
    SpecError
        For other kernels, and numbers that are not possible.
    """

    name: ClassVar[str] = "fastfood"

    kernel: Kernel
    width: int
    seed: int
    n_features: int

    def __post_init__(self) -> None:
        for name, least in (("width", 2), ("seed", 0), ("n_features", 1)):
            object.__setattr__(self, name, whole("Fastfood features", name, getattr(self, name), least))
        if self.width % 2 or max(self.width, self.n_features) > MOST_DRAWN:
            raise SpecError(
                f"got {self.width} Fastfood features of rows of {self.n_features}; give an even number, and both at "
                f"most {MOST_DRAWN}"
            )
        if spectral_kernel(self.kernel).coordinates != ():
            raise SpecError("got several length scales or a metric for Fastfood features; give one length scale")

    def formula(self, pair: Pair) -> Expression:
        return pair.inner

    def spec(self) -> Spec:
        own = {"width": self.width, "seed": self.seed, "n_features": self.n_features}
        return {"name": self.name, "kernel": dict(self.kernel.spec()), **own}

    def features_of(self, points: Array) -> int:
        del points
        return self.n_features

    @cached_property
    def frequencies(self) -> FastFrequencies:
        """The frequencies, made from the seed and kept."""
        kernel, half = spectral_kernel(self.kernel), self.width // 2
        rng = generator(self.seed, STREAM)
        drawn = FastFrequencies.drawn(rng, self.n_features, half)
        return drawn.scaled(spread(kernel, np.ones((1, half)), rng)[0] / kernel.unit)

    def as_neurons(self, numbers: HostArray) -> tuple[Neuron, FloatArray]:
        """Return columns (p,) as neurons with weights (p, d) float64 that are stored."""
        rows = np.empty((numbers.size, self.n_features))
        for run in self._runs(numbers):
            half = self.frequencies.products(np.eye(self.n_features), run.group)
            both = np.concatenate([half, -half])
            rows[run.where] = both if run.chosen is None else both[run.chosen]
        return Neuron("fourier", self.width), rows

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
            raise DataError(
                f"got columns {Z.shape} of Fastfood features; expected one number below {self.width} for each"
            )
        runs = tuple(self._runs(numbers[:, 0].astype(np.int64)))
        cuts, side = cut_blocks(Z.shape[0], blocks), Side(Z, None, None, None)
        return FastPoints(
            Z.shape[0], self.n_features, Z.dtype, PLAIN, cuts, side, precision=precision, runs=runs
        )  # fmt: skip

    def left(self, X: Array, right: Points) -> Left:
        X = rows_like(X, right)
        return Left(X.shape, X.dtype, Side(rounded(X, right.precision), None, None, None))

    def block(self, X: Array | Left, Z: Array | Points, out: Array | None = None) -> Array:
        left, right = self._sides(X, Z)
        result = self._namespace(left).empty((left.shape[0], right.size), right.dtype) if out is None else out

        def one(rows: slice) -> None:
            for run, values in self._values(left, right, rows):
                result[rows, run.where] = values.T

        for_each(self._tiles(left), one)
        return result

    def _matvec(self, X: Array | Left, Z: Array | Points, A: Array, head: Array | None) -> Array:
        left, right = self._sides(X, Z)
        A = self._factor("A", A, right.size, right)
        xp = namespace_of(A)
        total = xp.zeros((left.shape[0], A.shape[1]))
        width = 0 if head is None else head.shape[1]

        def one(rows: slice) -> None:
            for run, values in self._values(left, right, rows):
                own = A[run.where]
                total[rows] += multiply_transposed_blocks(values, own, slices(len(own), TILE_COLUMNS), xp)
                if head is not None and run.where.start < width:
                    shown = slice(run.where.start, min(run.where.stop, width))
                    head[rows, shown] = values[: shown.stop - shown.start].T

        for_each(self._tiles(left), one)
        return total

    def _rmatvec(self, X: Array | Left, Z: Array | Points, G: Array) -> Array:
        left, right = self._sides(X, Z)
        G = self._factor("G", G, left.shape[0], right)
        total = namespace_of(G).zeros((right.size, G.shape[1]))

        def one(run: Run) -> None:
            for rows in self._tiles(left):
                total[run.where] += self._of(run, left, rows) @ G[rows]

        for_each(_of(right), one)
        return total.astype(right.dtype)

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients of a model of these features by its rows; a piece of the weights is held at a time."""
        numbers = to_host(Z)[:, 0].astype(np.int64)
        xp = module_of(as_rows(X))
        total = xp.zeros((X.shape[0], A.shape[1], self.n_features))
        for run in slices(numbers.size, _GRADIENT_COLUMNS):
            neuron, rows = self.as_neurons(numbers[run])
            each = None if weights is None else weights[:, run]
            total += neuron.gradient_matvec(X, xp.asarray(rows), A[run], each)
        return total

    def _values(self, left: Left, right: Points, rows: slice) -> Iterator[tuple[Run, Array]]:
        for run in _of(right):
            yield run, self._of(run, left, rows)

    def _of(self, run: Run, left: Left, rows: slice) -> Array:
        """Return the values (h, m) of a run's columns at some rows."""
        assert left.side is not None
        xp = self._namespace(left)
        t = self.frequencies.products(left.side.rows[rows], run.group)
        values = xp.empty((2, *t.shape), t.dtype)
        sine = xp.sin(t)
        cosine = xp.cos(t, out=t)
        xp.add(cosine, sine, out=values[0])
        xp.subtract(cosine, sine, out=values[1])
        values *= t.dtype.type(self.width**-0.5)
        both = values.reshape(-1, t.shape[1])
        return both if run.chosen is None else both[xp.asarray(run.chosen)]

    def _tiles(self, left: Left) -> list[slice]:
        """Return pieces of the rows: in cache on the host, long on a GPU, and the same for any part of the columns."""
        numbers = 2 * TILE_ROWS * TILE_COLUMNS if self._namespace(left) is np else _DEVICE_NUMBERS
        return slices(left.shape[0], max(_LEAST_ROWS, numbers // (_HELD * group_size(self.n_features))))

    def _runs(self, numbers: HostArray) -> Iterator[Run]:
        """Yield the neighbours of one group among column numbers (p,)."""
        size, half = group_size(self.n_features), self.width // 2
        groups = numbers // (2 * size)
        edges = np.flatnonzero(np.diff(groups)) + 1
        for start, stop in zip([0, *edges], [*edges, numbers.size], strict=True):
            if start == stop:
                continue
            group = int(groups[start])
            own = numbers[start:stop] - 2 * size * group
            whole = np.array_equal(own, np.arange(2 * min(size, half - group * size)))
            yield Run(slice(int(start), int(stop)), group, None if whole else own)


def _of(right: Points) -> tuple[Run, ...]:
    assert isinstance(right, FastPoints)
    return right.runs


def is_faster(kernel: Kernel, width: int, n_features: int) -> bool:
    """Return whether transforms are faster than products with the frequencies: from about 200 features on.

    Measured on two processors with AVX-512, 1,024 rows and 8,192 columns, against the compiled products of neurons: 2
    times at 256 features, 5 times at 784 and 1,024, 8 times at 2,048 and 14 times at 4,096. Below, blocks are slower.
    """
    if not has_spectrum(kernel) or kernel.coordinates != ():
        return False
    size, half = group_size(n_features), width // 2
    return size >= _LEAST_GROUP and half * n_features >= _WORTHWHILE * size * -(-half // size)


def table_bytes(width: int, n_features: int) -> int:
    """Return the bytes of the frequencies, which are kept in addition to the numbers of the columns."""
    size = group_size(n_features)
    return -(-width // (2 * size)) * (4 * n_features + 24 * size)
