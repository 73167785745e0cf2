"""The base class of function spaces: the properties and methods through which other packages use any of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.nested_parameters import NestedParameters
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.kernels.functions.spectral import has_spectrum
from daskkern.landmarks import LandmarkSelector, LandmarkSet

FeatureMap = Callable[[Callable[[HostArray], HostArray]], HostArray]
"""Returns the values (n, ...) of a function of the features of rows, at all training rows in their order."""


@dataclass(frozen=True)
class ColumnRequest:
    """What columns are made from, in addition to the rows.

    Attributes
    ----------
    kernel : Kernel
        With every parameter known.
    seed : int
    dtype : "float32" or "float64"
    device : "cpu", "gpu" or "auto"
        Where matrices are decomposed.
    n_steps : int
        Steps of the fit, for columns that grow with them.
    map_features : callable or None
        Computes a function at all rows where Dask runs; None for here, chunk by chunk.
    """

    kernel: Kernel
    seed: int
    dtype: str
    device: str = "cpu"
    n_steps: int = 0
    map_features: FeatureMap | None = None


@dataclass(frozen=True)
class ColumnSet:
    """The function of the columns, and their points: landmarks, or the parameters of features.

    `leaves` (p,) int64 are the leaves of a partition that the columns belong to; None without one. The columns are all
    rows then, of several partitions once for each.
    """

    kernel: Kernel
    chosen: LandmarkSet
    leaves: IntArray | None = None

    @classmethod
    def of(cls, kernel: Kernel, points: HostArray) -> "ColumnSet":
        """Return columns whose points (p, ...) are not rows."""
        return cls(kernel, LandmarkSet(points, None, None))


@dataclass(frozen=True, eq=False)
class BasisSpec(NestedParameters, ABC):
    """A function space. Class attributes and properties answer what depends on which one it is."""

    name: ClassVar[str]
    all_rows: ClassVar[bool] = False
    """Whether every training row is a centre: column j is ``k(., x_j)``."""
    is_explicit: ClassVar[bool] = False
    """Whether columns are explicit features, in whose coordinates the norm of a function is that of its coefficients;
    else they are kernel functions of points."""
    is_mapped: ClassVar[bool] = False
    """Whether explicit features are a linear map of kernel functions of landmarks."""
    is_linear: ClassVar[bool] = False
    """Whether columns are the features of the rows themselves."""
    of_features: ClassVar[bool] = False
    """Whether each column is a feature of the rows, or 1, times a factor from 0 to 1, so that all of them at a row x
    are at most as long as ``(x, 1)``."""
    has_blocks: ClassVar[bool] = True
    """Whether the values of the columns at a batch are computed as a block, which may be kept for later epochs."""
    of_one_fit: ClassVar[bool] = False
    """Whether columns belong to the rows or the steps of one fit, so that they mean nothing for other rows."""

    @property
    def uses_kernel(self) -> bool:
        """Whether the functions depend on the chosen kernel."""
        return True

    def suits(self, kernel: Kernel) -> bool:
        """Return whether columns can be made of a radial `kernel`: random features only where its spectrum is known."""
        return self.has_centres or has_spectrum(kernel)

    @property
    def needs_projection(self) -> bool:
        """Whether the gradient at a batch lies outside the span of the columns, and is projected onto it."""
        return not (self.all_rows or self.is_explicit)

    @property
    def has_centres(self) -> bool:
        """Whether the columns are kernel functions of points of the rows' space, or a map of such."""
        return self.is_mapped or not self.is_explicit

    @property
    def drawn_per_step(self) -> int:
        """Columns that each step adds, drawn again whenever they are used; 0 where columns are fixed."""
        return 0

    @property
    def selection(self) -> LandmarkSelector | None:
        """The rule that chooses landmarks; None where none are chosen."""
        return None

    @property
    def own_points(self) -> HostArray | None:
        """The user's own landmarks (p, d)."""
        return None

    @property
    def n_landmarks(self) -> int | None:
        """The requested number of landmarks; None where there are none."""
        return None

    @property
    def leaf_size(self) -> int | None:
        """Rows of a leaf, where a tree partitions the rows into leaves with columns of their own; else None."""
        return None

    def resized(self, n: int) -> "BasisSpec":
        """Return the function space with `n` columns, or `n` a step; as it is where their number follows from data."""
        del n
        return self

    def with_changed_points(self, change: Callable[[HostArray], HostArray]) -> "BasisSpec":
        """Return the function space with ``change(points)`` for the user's own landmarks, where it has them."""
        del change
        return self

    @abstractmethod
    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        """Return the most columns of a fit to `n_rows` rows, before it begins. `n_steps` returns its most steps."""

    def table_bytes(self, kernel: Kernel, n_features: int, seed: int) -> int:
        """Return the bytes of tables that columns are made from, which are then numbers; 0 where they are points."""
        del kernel, n_features, seed
        return 0

    @abstractmethod
    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        """Return the columns of a fit to `rows`: their function and their points.

        With all rows as centres the points stay where they are, and only their numbers are returned.
        """
