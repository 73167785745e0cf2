"""Specifications of the function space: the functions whose weighted sum is the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeGuard

import numpy as np
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend.namespace import is_sparse, namespace_with, to_device
from daskkern.basis.base import BasisSpec, ColumnRequest, ColumnSet
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.samples import sampled_rows
from daskkern.errors import DataError, SpecError
from daskkern.features import FOLLOWING, KINDS, random_columns, sketch_bytes
from daskkern.kernels import MOST_DRAWN, Coordinate, Drawn, Kernel, Mapped, nystrom_map
from daskkern.kernels.norms import squared_norms
from daskkern.kernels.rows import as_rows
from daskkern.landmarks import LandmarkSelector, LandmarkSet, first_occurrences, parse_selector

_EIGEN_BYTES = 6 * 8  # for each entry of the matrix


@dataclass(frozen=True)
class AllRows(BasisSpec):
    """One kernel column a training row: ``f(x) = sum_i k(x, x_i) a_i``."""

    name: ClassVar[str] = "all rows"
    all_rows: ClassVar[bool] = True
    of_one_fit: ClassVar[bool] = True

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return n_rows

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        none = np.empty((0, rows.n_features), request.dtype)
        return ColumnSet(request.kernel, LandmarkSet(none, np.arange(rows.n_rows), None))


@dataclass(frozen=True, eq=False)
class Landmarks(BasisSpec):
    """``n`` kernel columns: ``f(x) = sum_j k(x, z_j) a_j`` (the Nystrom method).

    Parameters
    ----------
    n : int
        Number of landmarks p; at most the number of training rows is used.
    selector : str or LandmarkSelector
        How they are chosen.
    points : (p, d) array, optional
        Your own landmarks, in the units of the rows passed to the fit (for a store that was scaled at ingestion, the
        scaled ones); a scaling that the fit learns is applied to them, too. `n` and `selector` are then not used.
    """

    name: ClassVar[str] = "landmarks"

    n: int = 10_000
    selector: str | LandmarkSelector = "uniform"
    points: HostArray | None = None

    def __post_init__(self) -> None:
        _check_count(self.n, "landmarks")
        parse_selector(self.selector)
        if self.points is not None:
            points = np.asarray(self.points)
            if points.ndim != 2 or points.size == 0 or points.dtype.kind not in "fiu" or not np.isfinite(points).all():
                raise DataError(f"got landmark points of shape {points.shape}; expected finite numbers (p, d)")

    @property
    def selection(self) -> LandmarkSelector | None:
        return parse_selector(self.selector) if self.points is None else None

    @property
    def own_points(self) -> HostArray | None:
        return self.points

    @property
    def n_landmarks(self) -> int:
        return self.n if self.points is None else len(self.points)

    def resized(self, n: int) -> BasisSpec:
        return replace(self, n=n)

    def with_changed_points(self, change: Callable[[HostArray], HostArray]) -> BasisSpec:
        return self if self.points is None else replace(self, points=change(self.points))

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return min(n_rows, self.n_landmarks)

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        if self.points is None:
            chosen = parse_selector(self.selector).select(rows, request.kernel, self.n, request.seed)
            return ColumnSet(request.kernel, chosen)
        points = as_rows(self.points, np.dtype(request.dtype))
        if points.shape[1] != rows.n_features:
            raise DataError(f"got points of {points.shape[1]} features; expected {rows.n_features}, as the rows have")
        return ColumnSet(request.kernel, LandmarkSet(points[first_occurrences(points)], None, None))


@dataclass(frozen=True)
class RandomFeatures(BasisSpec):
    """``n`` random functions: ``f(x) = sum_j phi(x; w_j) a_j``, whose inner products approximate the kernel's values.

    Parameters
    ----------
    n : int
        Number of features r.
    kind : str
        "auto" follows the kernel: random Fourier features of Gaussian, Laplacian, Matern and Cauchy kernels, hidden
        units of the arc-cosine kernels, a TensorSketch of the polynomial kernel. "orthogonal" draws Fourier features
        with less variance, and "fastfood" ones of products of Hadamard and diagonal matrices, by fast transforms of
        dense rows of about 200 features or more. "step", "relu", "relu2", "sigmoid" and "tanh" are hidden units with
        random weights, and "projection" is a random projection of the rows, whatever the kernel.
    """

    name: ClassVar[str] = "random features"
    is_explicit: ClassVar[bool] = True

    n: int = 10_000
    kind: str = "auto"

    def __post_init__(self) -> None:
        _check_count(self.n, "random features")
        if self.kind not in KINDS:
            raise SpecError(f"got random features of kind {self.kind!r}; choose one of {', '.join(KINDS)}")

    @property
    def uses_kernel(self) -> bool:
        return self.kind in FOLLOWING

    def resized(self, n: int) -> BasisSpec:
        return replace(self, n=n)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return self.n

    def table_bytes(self, kernel: Kernel, n_features: int, seed: int) -> int:
        return sketch_bytes(kernel, self.kind, self.n, n_features, seed)

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        sample = sampled_rows(rows, request.seed)
        scale = float(np.sqrt(np.mean(squared_norms(sample))))
        kernel, points = random_columns(
            request.kernel, self.kind, self.n, rows.n_features, request.seed, request.dtype, scale, is_sparse(sample)
        )
        return ColumnSet.of(kernel, points)


@dataclass(frozen=True)
class NystromFeatures(BasisSpec):
    """The span of landmarks in orthonormal coordinates: ``f(x) = phi(x)^T w``, ``phi(x) = Sigma^(-1/2) V^T k(Z, x)``.

    ``|w|`` is the norm of f, as methods for linear models need it. Coordinates whose eigenvalue is below the rounding
    of the dtype are left out. The trained model is a sum over landmarks.

    Parameters
    ----------
    n : int
        Number of landmarks p.
    selector : str or LandmarkSelector
        How landmarks are chosen: a name such as "uniform", or an object.
    """

    name: ClassVar[str] = "nystrom features"
    is_explicit: ClassVar[bool] = True
    is_mapped: ClassVar[bool] = True

    n: int = 1000
    selector: str | LandmarkSelector = "uniform"

    def __post_init__(self) -> None:
        _check_count(self.n, "landmarks")
        parse_selector(self.selector)

    @property
    def selection(self) -> LandmarkSelector | None:
        return parse_selector(self.selector)

    @property
    def n_landmarks(self) -> int:
        return self.n

    def resized(self, n: int) -> BasisSpec:
        return replace(self, n=n)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return min(n_rows, self.n)

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        chosen = parse_selector(self.selector).select(rows, request.kernel, self.n, request.seed)
        return _nystrom_columns(chosen.points, request)


@dataclass(frozen=True)
class Linear(BasisSpec):
    """The features themselves: ``f(x) = x^T w + b``. The kernel is not used.

    Parameters
    ----------
    intercept : bool
        Whether there is a constant column, for b; its coefficient is penalised like all others.
    """

    name: ClassVar[str] = "linear"
    is_explicit: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True
    of_features: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False

    intercept: bool = True

    @property
    def uses_kernel(self) -> bool:
        return False

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return n_features + self.intercept

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        d, dtype = rows.n_features, request.dtype
        units = scipy.sparse.identity(d, dtype, "csr")
        if self.intercept:
            units = scipy.sparse.vstack([units, scipy.sparse.csr_matrix((1, d), dtype=dtype)], format="csr")
        return ColumnSet.of(Coordinate(), units)


@dataclass(frozen=True)
class DoublyStochastic(BasisSpec):
    """Random features that grow with the steps: ``f(x) = sum_t sum_j phi(x; w_tj) a_tj``, a block of them a step.

    The features of a block approximate the kernel by themselves, and those of all steps more and more nearly. They are
    drawn again from the seed for each use, except for the first 64 MiB of them: a stored model has coefficients and no
    features. For Gaussian, Laplacian, Matern, Cauchy and arc-cosine kernels.

    Parameters
    ----------
    block : int
        Features of a step; an even number for Fourier features.
    """

    name: ClassVar[str] = "doubly stochastic"
    is_explicit: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False
    of_one_fit: ClassVar[bool] = True

    block: int = 128

    def __post_init__(self) -> None:
        _check_count(self.block, "random features a step")

    @property
    def drawn_per_step(self) -> int:
        return self.block

    def resized(self, n: int) -> BasisSpec:
        return DoublyStochastic(n)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return n_steps() * self.block

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        """Return the function of features that are drawn again, and their numbers (p, 1): a block for each step.

        Raises SpecError when there are more than float32 can number.
        """
        p = request.n_steps * self.block
        if p > MOST_DRAWN:
            raise SpecError(
                f"{request.n_steps} steps with {self.block} random features each are {p} features; "
                f"{MOST_DRAWN} is the most: take larger batches, fewer epochs or a smaller block"
            )
        kernel = Drawn(request.kernel, request.seed, self.block, rows.n_features)
        return ColumnSet.of(kernel, np.arange(p, dtype=request.dtype)[:, None])


def _nystrom_columns(Z: HostArray, request: ColumnRequest) -> ColumnSet:
    kernel: Kernel = request.kernel
    xp = namespace_with(request.device, _EIGEN_BYTES * Z.shape[0] ** 2)
    placed = to_device(Z, xp)
    K = kernel.block(placed, kernel.points(placed, kernel.placement_for(Z).on(xp))).astype(np.float64)
    if not bool(xp.isfinite(K).all()):
        raise DataError(f"the {kernel.name} kernel is not finite on the landmarks; scale the features")
    M = nystrom_map(K, 10 * float(np.finfo(request.dtype).eps))
    return ColumnSet.of(Mapped(kernel, Z), np.ascontiguousarray(M.astype(request.dtype)))


def _check_count(n: object, what: str) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SpecError(f"got {n!r} {what}; give a whole number of at least 1")


def uses_kernel(basis: BasisSpec) -> bool:
    """Return whether the functions depend on the chosen kernel."""
    return basis.uses_kernel


def is_basis(value: object) -> TypeGuard[BasisSpec]:
    """Return whether `value`, which may be anything that a user gives, is a function space."""
    return isinstance(value, BasisSpec)
