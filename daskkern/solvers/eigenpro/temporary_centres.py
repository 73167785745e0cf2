"""The rows of a window as temporary centres of EigenPro, with their coefficients."""

import itertools
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse, namespace_of
from daskkern.errors import SpecError
from daskkern.kernels import Kernel, Points
from daskkern.kernels.engines.block_products import block_table
from daskkern.kernels.points import Left, Side
from daskkern.kernels.rows import unchecked_rows
from daskkern.linalg import even_slices
from daskkern.solvers.problem import AnyProblem, Batch

UNIT = 128  # rows of a batch that are temporary centres of one rank: enough for products at full speed
_JOINED = 1024  # temporary centres up to which later ones are joined to them: fewer calls, and little is copied


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory of a GPU for the centres of a whole window, of which one product takes all that are there.

    Attributes
    ----------
    points : Points
        The centres so far: views of `side`.
    side : Side
        With room for more of them.
    coefficients : (room, c) array
    """

    points: Points
    side: Side
    coefficients: Array

    @classmethod
    def of(cls, points: Points, coefficients: Array, room: int) -> "Buffer":
        """Return a buffer with these first centres, and room for `room` of them in all."""
        assert points.side is not None
        room = max(room, points.size)
        side = points.side
        rows, *stats, operand = (_enlarged(array, room) for array in (side.rows, *side.stats, side.operand))
        side = replace(Side(rows, *stats), caps=side.caps, operand=operand)
        return cls(points, side, _enlarged(coefficients, room))

    @staticmethod
    def takes(points: Points) -> bool:
        """Return whether such centres may be put into one: dense rows on a GPU, of one formula."""
        return points.side is not None and points.table is not None and not is_sparse(points.side.rows)

    def with_more(self, points: Points, coefficients: Array) -> "Buffer":
        """Return the buffer with later centres. Those before them are not copied where there is room."""
        before = self.points.size
        size = before + points.size
        room = self.coefficients.shape[0]
        whole = self if size <= room else Buffer.of(self.points, self.coefficients[:before], 2 * size)
        whole.put(before, points, coefficients)
        blocks = (*self.points.blocks, *(slice(before + cut.start, before + cut.stop) for cut in points.blocks))
        return whole.first(size, blocks)

    def put(self, start: int, points: Points, coefficients: Array) -> None:
        """Write centres and their coefficients to the places from `start` on."""
        own = points.side
        assert own is not None
        given = (own.rows, *own.stats, own.operand, coefficients)
        for place, array in zip((*self._arrays, self.coefficients), given, strict=True):
            if place is not None:
                place[start : start + points.size] = array

    def first(self, size: int, blocks: tuple[slice, ...]) -> "Buffer":
        """Return the buffer with its first `size` places as its centres, in these blocks."""
        rows, *stats, operand = (None if array is None else array[:size] for array in self._arrays)
        table = block_table(namespace_of(self.coefficients), blocks)
        side = replace(Side(rows, *stats), caps=self.side.caps, operand=operand)
        return replace(self, points=replace(self.points, size=size, blocks=blocks, side=side, table=table))

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.side.rows, *self.side.stats, self.side.operand


@dataclass(frozen=True)
class Temporary:
    """This rank's share of the window's rows as temporary centres, with their coefficients.

    Attributes
    ----------
    sets : tuple of (Points, (k, c) array)
        Points whose blocks are units: rows of a batch that stay together whatever the number of ranks.
    units : int
        How many the window has so far on all ranks.
    buffer : Buffer or None
        The centres where these are in one, in place of `sets`.
    """

    sets: tuple[tuple[Points, Array], ...] = ()
    units: int = 0
    buffer: Buffer | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no centres."""
        return self.buffer is None and not self.sets

    def add_scores(self, scores: Array, kernel: Kernel, rows: Array | Left) -> Array:
        """Return `scores` (m, c) float64 plus the values of these centres at `rows`."""
        if self.buffer is not None:
            points = self.buffer.points
            return scores + kernel.matvec(rows, points, self.buffer.coefficients[: points.size])
        if self.sets:
            scores += sum(kernel.matvec(rows, points, coefficients) for points, coefficients in self.sets)
        return scores

    def shrunk(self, factor: float) -> "Temporary":
        """Return the centres with their coefficients multiplied by `factor`."""
        if self.buffer is not None:
            return replace(self, buffer=replace(self.buffer, coefficients=self.buffer.coefficients * factor))
        return replace(self, sets=tuple((points, coefficients * factor) for points, coefficients in self.sets))

    def join(self, points: Points, coefficients: Array, room: int) -> "Temporary":
        """Return these centres and later ones of this rank; on a GPU there is `room` for so many."""
        if self.buffer is not None:
            return replace(self, buffer=self.buffer.with_more(points, coefficients))
        if Buffer.takes(points):
            return replace(self, buffer=Buffer.of(points, coefficients, room))
        on_gpu = points.table is not None  # sparse rows: one product of all takes fewer launches than their copy saves
        if not self.sets or (not on_gpu and self.sets[-1][0].size + points.size > _JOINED):
            return replace(self, sets=(*self.sets, (points, coefficients)))
        last, before = self.sets[-1]
        xp = namespace_of(before)
        joined = last.join(replace(points, table=None) if on_gpu else points)
        if on_gpu:  # the same in every window
            joined = replace(joined, table=block_table(xp, joined.blocks))
        return replace(self, sets=(*self.sets[:-1], (joined, xp.concatenate([before, coefficients]))))

    def with_batch(
        self,
        problem: AnyProblem,
        batch: Batch,
        coefficients: Array,
        owners: tuple[int, ...],
        rank: int,
        window: int,
    ) -> "Temporary":
        """Return the temporary centres with the units of the batch's rows that are this rank's.

        Rows and `coefficients` (m, c) are those of the whole batch, also where it is divided between groups. `owners`
        are the ranks of consecutive units, again and again; a window has `window` batches.
        """
        X = batch.all_features
        if X is None:
            raise SpecError("a window of more than one batch needs the rows of its batches")
        units = even_slices(batch.size, UNIT)
        own = [unit for at, unit in enumerate(units, self.units) if owners[at % len(owners)] == rank]
        counted = replace(self, units=self.units + len(units))
        if not own:
            return counted
        xp = namespace_of(coefficients)
        edges = np.cumsum([0, *(unit.stop - unit.start for unit in own)]).tolist()
        blocks = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
        like = problem.part.points
        if xp is np or len(own) < len(units):
            picked = xp.asarray(np.concatenate([np.arange(unit.start, unit.stop) for unit in own]))
            X, coefficients = X[picked], coefficients[picked]
        with nullcontext() if xp is np else unchecked_rows():
            points = problem.part.kernel.points(X, like.placement, blocks, precision=like.precision)
        return counted.join(points, coefficients, (window - 1) * len(own) * UNIT)


def _enlarged(array: Array | None, room: int) -> Array | None:
    """Return a copy of the array with as many rows, of which the first are its own."""
    if array is None:
        return None
    made = namespace_of(array).empty((room, *array.shape[1:]), array.dtype)
    made[: len(array)] = array
    return made
