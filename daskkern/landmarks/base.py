"""What a landmark selector returns, and how duplicates are left out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray, IntArray
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


def first_occurrences(points: HostArray) -> IntArray:
    """Return the ascending numbers of the rows that equal no earlier row, compared bit by bit."""
    rows = np.ascontiguousarray(points + 0.0)  # -0.0 and 0.0 are one point
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0]
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)
