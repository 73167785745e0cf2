"""The base class of kernels with a length scale: a number, one per feature, a matrix, or the median distance."""

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from daskkern.arrays import Array, FloatArray
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.columns.coordinates import Coordinates
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS, LengthScale, check_length_scale, plain

_SMALLEST, _LARGEST = 1e-12, 1e12  # scales whose squares stay in the range of float32, with room


@dataclass(frozen=True)
class ScaledDistanceKernel(Kernel):
    """A function of the distance of two rows, whatever distance that is, in units of a length scale.

    Parameters
    ----------
    length_scale : float, "median", sequence (d,) or matrix (d, d)
        In the units of the features. "median" is the median distance between training rows. One per feature: features
        are divided by them. A matrix L: rows are ``L^-1 x``, the same for a diagonal L.
    """

    length_scale: LengthScale = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "length_scale", check_length_scale(self.name, self.length_scale))

    @abstractmethod
    def median(self, rows: Array) -> float:
        """Return the median distance of different `rows` (m, d), float64, already transformed.

        Raises
        ------
        DataError
            With fewer than two rows, or when all are equal.
        """

    def median_numbers(self, n_features: int) -> int:
        """Return how many numbers :meth:`median` holds at once: tables of all pairs of its rows."""
        del n_features
        return int(3.5 * MEDIAN_ROWS**2)

    @abstractmethod
    def distances(self, gaps: Array) -> Array:
        """Return the distances (m,) of pairs of rows that differ by `gaps` (m, d)."""

    @abstractmethod
    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients (m, c, d), float64, of ``sum_j w_ij k(x_i, z_j) A_jc`` by the rows x_i of X (m, d).

        Z is (p, d), A is (p, c), and w is `weights` (m, p), or ones. Where the kernel has no derivative by a feature, 0
        is used.
        """

    def shared(self, pair: Pair) -> Expression:
        """Return what kernels read of a pair that differ in the length scale only."""
        return pair.distance

    def weighted(self, factor: npt.ArrayLike, length_scale: LengthScale = "median") -> Self:
        """Return the kernel of rows whose features are multiplied with the weights `factor` (d,), or of ``F^T x``.

        Parameters
        ----------
        factor : (d,) positive numbers or (d, k) matrix F
            A matrix is for radial kernels.
        length_scale : float or "median"
            Of the weighted rows. A number divides the weights; "median" needs rows: see :meth:`resolve`.

        Raises
        ------
        SpecError
            For a matrix and a kernel that is not radial, and for weights with length scale "median".
        """
        weights = np.asarray(factor, np.float64)
        if weights.ndim != 1 or isinstance(length_scale, str | tuple):
            raise SpecError(
                f"got a factor of {weights.ndim} dimensions and length_scale={length_scale!r:.40} for the {self.name} "
                "kernel; expected one weight per feature, and a number"
            )
        return replace(self, length_scale=tuple(length_scale / weights))

    @property
    def feature_weights(self) -> FloatArray | None:
        """Weights (d,) of the squared differences of single features in the distance; None where they are the same."""
        if self._map is None or not self._map.values.ndim:
            return None
        values = self._map.values
        found: FloatArray = 1 / values**2 if values.ndim == 1 else (values**2).sum(axis=1)
        return found

    def spec(self) -> Spec:
        return {"name": self.name, "length_scale": plain(self.length_scale)}

    def resolve(self, sample: Array) -> Self:
        if not isinstance(self.length_scale, str):
            return self
        return replace(self, length_scale=self.median(self.transform(sample[:MEDIAN_ROWS].astype(np.float64))))

    @property
    def has_units(self) -> bool:
        return not isinstance(self.length_scale, str)

    @property
    def coordinates(self) -> Hashable:
        return (self._applied,) if self._map is not None else ()

    def transform(self, rows: Array) -> Array:
        return rows if self._map is None else self._map.forward(rows)

    @property
    def unit(self) -> float:
        """The length scale after :meth:`transform`, in which distances are measured; 1 when rows were divided."""
        if isinstance(self.length_scale, str):
            raise SpecError(
                f"the {self.name} kernel's length scale is {self.length_scale!r}: call kernel.resolve(rows) first, or "
                "give a number"
            )
        return self.length_scale if self._applied is None and not isinstance(self.length_scale, tuple) else 1.0

    @property
    def _applied(self) -> LengthScale | None:
        """The length scale that is applied to rows: not a number, or one whose square is out of range."""
        scale = self.length_scale
        if isinstance(scale, str) or (not isinstance(scale, tuple) and _SMALLEST <= scale <= _LARGEST):
            return None
        return scale

    @cached_property
    def _map(self) -> Coordinates | None:
        if self._applied is None:
            return None
        applied = np.asarray(self._applied)
        return Coordinates(self.name, np.linalg.inv(applied).T if applied.ndim == 2 else applied)
