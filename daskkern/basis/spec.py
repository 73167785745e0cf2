"""Specifications of the function space: the functions whose weighted sum is the model."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray
from daskkern.errors import DataError, SpecError
from daskkern.features import FOLLOWING, KINDS
from daskkern.landmarks import LandmarkSelector, parse_selector


@dataclass(frozen=True)
class AllRows:
    """One kernel column a training row: ``f(x) = sum_i k(x, x_i) a_i``."""

    name: ClassVar[str] = "all rows"


@dataclass(frozen=True, eq=False)
class Landmarks:
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
                raise DataError(f"landmark points must be a finite (p, d) table of numbers; found {points.shape}")


@dataclass(frozen=True)
class RandomFeatures:
    """``n`` random functions: ``f(x) = sum_j phi(x; w_j) a_j``, whose inner products approximate the kernel's values.

    Parameters
    ----------
    n : int
        Number of features r.
    kind : str
        "auto" follows the kernel: random Fourier features of Gaussian, Laplacian, Matern and Cauchy kernels, hidden
        units of the arc-cosine kernels. "orthogonal" draws Fourier features with less variance. "step", "relu",
        "relu2", "sigmoid" and "tanh" are hidden units with random weights, whatever the kernel.
    """

    name: ClassVar[str] = "random features"

    n: int = 10_000
    kind: str = "auto"

    def __post_init__(self) -> None:
        _check_count(self.n, "random features")
        if self.kind not in KINDS:
            raise SpecError(f"got random features of kind {self.kind!r}; choose one of {', '.join(KINDS)}")


@dataclass(frozen=True)
class NystromFeatures:
    """The span of landmarks in orthonormal coordinates: ``f(x) = phi(x)^T w``, ``phi(x) = Sigma^(-1/2) V^T k(Z, x)``.

    ``|w|`` is the norm of f, as methods for linear models need it. Coordinates whose eigenvalue is below the rounding
    of the dtype are left out. The trained model is a sum over landmarks.

    Parameters
    ----------
    n : int
        Number of landmarks p.
    selector : str or LandmarkSelector
    """

    name: ClassVar[str] = "nystrom features"

    n: int = 1000
    selector: str | LandmarkSelector = "uniform"

    def __post_init__(self) -> None:
        _check_count(self.n, "landmarks")
        parse_selector(self.selector)


@dataclass(frozen=True)
class Linear:
    """The features themselves: ``f(x) = x^T w + b``. The kernel is not used.

    Parameters
    ----------
    intercept : bool
        Whether there is a constant column, for b; its coefficient is penalised like all others.
    """

    name: ClassVar[str] = "linear"

    intercept: bool = True


@dataclass(frozen=True)
class DoublyStochastic:
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

    block: int = 128

    def __post_init__(self) -> None:
        _check_count(self.block, "random features a step")


def _check_count(n: object, what: str) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SpecError(f"got {n!r} {what}; give a whole number of at least 1")


def uses_kernel(basis: "BasisSpec") -> bool:
    """Return whether the functions depend on the chosen kernel."""
    own_units = isinstance(basis, RandomFeatures) and basis.kind not in FOLLOWING
    return not isinstance(basis, Linear) and not own_units


BasisSpec = AllRows | Landmarks | RandomFeatures | NystromFeatures | Linear | DoublyStochastic
