"""What the user asks for: which functions the model is a sum of."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.landmarks import LandmarkSelector, parse_selector


@dataclass(frozen=True)
class AllRows:
    """One kernel column a training row: ``f(x) = sum_i k(x, x_i) a_i``."""


@dataclass(frozen=True, eq=False)
class Landmarks:
    """``n`` kernel columns: ``f(x) = sum_j k(x, z_j) a_j`` (the Nystrom method).

    Parameters
    ----------
    n : int
        Number of landmarks p; at most the number of training rows is used.
    selector : {"uniform", "stratified"} or LandmarkSelector
        How they are chosen.
    points : (p, d) array, optional
        Your own landmarks, in the units of the features as training sees them (after a store's scaling); `n` and
        `selector` are then not used.
    """

    n: int = 10_000
    selector: str | LandmarkSelector = "uniform"
    points: HostArray | None = None

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 1:
            raise SpecError(f"{self.n!r} landmarks were asked; give a whole number of at least 1")
        parse_selector(self.selector)
        if self.points is not None:
            points = np.asarray(self.points)
            if points.ndim != 2 or points.size == 0 or points.dtype.kind not in "fiu" or not np.isfinite(points).all():
                raise DataError(f"landmark points must be a finite (p, d) table of numbers; found {points.shape}")


BasisSpec = AllRows | Landmarks
