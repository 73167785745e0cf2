"""The base class of landmark selectors, their result, and the removal of duplicates."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.nested_parameters import NestedParameters
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Kernel


@dataclass(frozen=True)
class LandmarkSet:
    """Chosen landmarks; all three fields are in the same order.

    Attributes
    ----------
    points : (p, d) array in the dtype of the rows
    indices : (p,) int64 or None
        Row numbers, where the landmarks are rows.
    weights : (p,) float64 or None
        Importance weights, where the rule has them.
    """

    points: HostArray
    indices: IntArray | None
    weights: HostArray | None


class LandmarkSelector(NestedParameters, ABC):
    """A rule that chooses landmarks from rows that may not fit in memory."""

    name: ClassVar[str]
    uses_kernel: ClassVar[bool] = True
    """Whether the choice depends on the kernel."""

    @abstractmethod
    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        """Return at most `n` distinct landmarks, in random order: every prefix is a fair sample by the same rule.

        Memory: the landmarks, a chunk of rows, and `working_bytes`. Fewer than `n` come back when rows are duplicates.
        """

    def working_bytes(self, n_rows: int, n: int, d: int, itemsize: int) -> int:
        """Return the peak bytes of choosing `n` landmarks of `n_rows` rows, besides the landmarks and a chunk.

        A row takes `d` numbers of `itemsize` bytes.
        """
        del n_rows, n, d, itemsize
        return 0


def sampled_rows(rows: Rows, size: int, rng: np.random.Generator) -> tuple[HostArray, IntArray]:
    """Return at most `size` rows, drawn without replacement and ascending, and their numbers."""
    numbers = np.sort(rng.choice(rows.n_rows, size=min(size, rows.n_rows), replace=False)).astype(np.int64)
    points = take(rows, numbers, Fields.X).X
    if points is None:
        raise DataError("the source has no feature rows to choose landmarks from")
    return points, numbers


def sample_bytes(n_rows: int, size: int, d: int, itemsize: int) -> int:
    """Return the bytes of :func:`sampled_rows` and of a copy in another order."""
    return min(n_rows, size) * (2 * d * itemsize + 16) + 8 * n_rows  # numpy permutes all numbers


def check_rows_each(rows_each: object, name: str) -> None:
    """Raise SpecError unless a rule's sample is a whole number of rows for each landmark."""
    check_at_least_one("rows_each", rows_each, name)


def check_at_least_one(parameter: str, value: object, name: str) -> None:
    """Raise SpecError unless a parameter of a rule is a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise SpecError(f"got {parameter}={value!r} for {name} landmarks; give 1 or more")


def rows_as_landmarks(rows: Rows, indices: IntArray) -> LandmarkSet:
    """Return the rows at `indices` as landmarks, without repeated rows: those make K_ZZ singular."""
    points = take(rows, indices, Fields.X).X
    if points is None:
        raise DataError("the source has no feature rows to choose landmarks from")
    return distinct(points, indices)


def distinct(points: HostArray, indices: IntArray, weights: HostArray | None = None) -> LandmarkSet:
    """Return the rows `points`, whose numbers are `indices`, as landmarks, without repeated rows."""
    keep = first_occurrences(points)
    if keep.size == indices.size:
        return LandmarkSet(points, indices, weights)
    return LandmarkSet(points[keep], indices[keep], None if weights is None else weights[keep])


def first_occurrences(points: Array) -> IntArray:
    """Return the ascending numbers of the rows, dense or CSR, that equal no earlier row, compared bit by bit."""
    if is_sparse(points):
        return _first_sparse(points)
    rows = np.ascontiguousarray(points + 0.0)  # -0.0 and 0.0 are one point
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)


def _first_sparse(points: Array) -> IntArray:
    seen: set[bytes] = set()
    first = []
    for row in range(points.shape[0]):
        part = slice(points.indptr[row], points.indptr[row + 1])
        there = points.data[part] != 0
        key = points.indices[part][there].tobytes() + points.data[part][there].tobytes()
        if key not in seen:
            seen.add(key)
            first.append(row)
    return np.array(first, np.int64)
