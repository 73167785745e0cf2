"""What a landmark selector returns, and how duplicates are left out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.rows import Fields, Rows, take
from daskkern.errors import DataError
from daskkern.kernels import Kernel


@dataclass(frozen=True)
class LandmarkSet:
    """Chosen landmarks. Always all three fields, in one order.

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


class LandmarkSelector(ABC):
    """A rule that chooses landmarks from rows that may not fit in memory."""

    name: ClassVar[str]
    chooses_rows: ClassVar[bool] = True
    """Whether landmarks are rows, whose numbers are known."""

    @abstractmethod
    def select(self, rows: Rows, kernel: Kernel, n: int, seed: int) -> LandmarkSet:
        """Return at most `n` distinct landmarks, in random order: every prefix is a fair sample by the same rule.

        Memory: the landmarks and one chunk of rows. Fewer than `n` come back when rows are duplicates.
        """


def rows_as_landmarks(rows: Rows, indices: IntArray) -> LandmarkSet:
    """Return the rows at `indices` as landmarks, without repeated rows: those make K_ZZ singular."""
    points = take(rows, indices, Fields.X).X
    if points is None:
        raise DataError("the source has no feature rows to choose landmarks from")
    keep = first_occurrences(points)
    return LandmarkSet(points if keep.size == indices.size else points[keep], indices[keep], None)


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
