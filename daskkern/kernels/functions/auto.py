"""The automatic kernel: chosen on the rows of a fit, with length scales relative to the median distance."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.functions.differences.additive import AdditiveLaplacian
from daskkern.kernels.functions.differences.categories import check_categories
from daskkern.kernels.functions.differences.power_laplacian import L1Laplacian
from daskkern.kernels.functions.gaussian import Gaussian
from daskkern.kernels.functions.laplacian import Laplacian
from daskkern.kernels.functions.length_scale import MEDIAN_ROWS, LengthScale
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel

MOST_FEATURES = 1024
"""Features of dense rows among whose candidates the L1 Laplacian is."""
SEVERAL_FEATURES, MANY_FEATURES = 8, 256
"""Features from which, and up to which, it is the first candidate: it was better than the Laplacian on 11 of 19 tables
of ten features or more, and on 4 of 9 tables of up to five. Its values of wider rows take up to three times as long as
those that a matrix product gives."""
_MISMATCH = 4.0  # as of one-hot features after scaling, which differ in two features, by 2 in each
_SHARE = 0.7  # of the median distance: the Gaussian kernel that most libraries begin with on standardised features


@dataclass(frozen=True)
class AutoKernel(Laplacian):
    """A Laplacian kernel with the median distance, unless rows that are left out are better predicted by another one.

    A fit chooses among :meth:`candidates`. Where nothing can be measured, as in features, which have no targets, it is
    the Laplacian of the Euclidean distance. `categories` are columns that hold codes of categories: with them it is the
    L1 Laplacian.
    """

    name: ClassVar[str] = "auto"
    length_scale: LengthScale = "median"
    categories: tuple[int, ...] = field(default=(), kw_only=True, repr=False)  # long, and mostly empty

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", check_categories(self.name, self.categories))
        if self.length_scale != "median" or self.has_metric:
            raise SpecError(
                f"got the auto kernel with length_scale={self.length_scale!r} and metric={self.metric!r:.40}; expected "
                "neither; name a kernel, such as Laplacian(5.0), to choose them"
            )

    def spec(self) -> Spec:
        return {"name": self.name, **({"categories": list(self.categories)} if self.categories else {})}

    def with_categories(self, columns: Sequence[int]) -> "AutoKernel":
        return replace(self, categories=tuple(columns)) if len(columns) else self

    def resolve(self, sample: Array) -> ScaledDistanceKernel:  # type: ignore[override]  # what it stands for
        if self.categories:
            return L1Laplacian("median", categories=self.categories).resolve(sample)
        return Laplacian("median").resolve(sample)

    def candidates(self, sample: Array, longer: bool = False) -> tuple[Kernel, ...]:
        """Return the kernels to choose from for rows like `sample`, the one that others must clearly surpass first.

        That is the L1 Laplacian for dense rows of :data:`SEVERAL_FEATURES` to :data:`MANY_FEATURES` features, which
        mostly differ in kind: it treats each by itself. Others have the Laplacian first. Rows with categories have the
        L1 Laplacian, once more with heavier mismatches, and the additive Laplacian. With `longer`, the smooth kernels
        are there with twice their length scale, too.
        """
        if self.categories:
            additive = AdditiveLaplacian("median", degree=2, categories=self.categories)
            return self.resolve(sample), self._heavier(sample), additive.resolve(sample)
        euclidean = self.resolve(sample)
        assert isinstance(euclidean.length_scale, float)
        median = euclidean.length_scale
        rough = (*self._single(sample, MOST_FEATURES), euclidean)
        rough = rough if SEVERAL_FEATURES <= sample.shape[1] <= MANY_FEATURES else rough[::-1]
        return *rough, *_smooth(median), *(_smooth(2 * median) if longer else ())

    def with_metric(self, sample: Array) -> tuple[ScaledDistanceKernel, ...]:
        """Return the kernels that are tried with a learned metric: both Laplacians, as far as `sample` suits them."""
        return *self._single(sample), *(() if self.categories else (self.resolve(sample),))

    def smooth(self, sample: Array) -> tuple[ScaledDistanceKernel, ...]:
        """Return the smooth ones of :meth:`candidates`, none for categories."""
        if self.categories:
            return ()
        median = self.resolve(sample).length_scale
        assert isinstance(median, float)
        return _smooth(median)

    def slowest(self, sample: Array) -> Kernel:
        """Return the candidate whose values take longest, unless rows like `sample` are wide: plans count its time."""
        return next(iter(self._single(sample)), self.resolve(sample))

    def _heavier(self, sample: Array) -> L1Laplacian:
        weights = np.ones(sample.shape[1])
        weights[list(self.categories)] = _MISMATCH
        kernel = L1Laplacian(categories=self.categories)
        unit = kernel.weighted(weights, 1.0)
        rows = sample[:MEDIAN_ROWS].astype(np.float64)
        return kernel.weighted(weights, unit.median(unit.transform(rows)))

    def _single(self, sample: Array, most: int = MANY_FEATURES) -> tuple[L1Laplacian, ...]:
        """Return the candidates whose values no matrix product gives, of rows of up to `most` features."""
        if not self.categories and (is_sparse(sample) or sample.shape[1] > most):
            return ()
        return (L1Laplacian("median", categories=self.categories).resolve(sample),)


def _smooth(median: float) -> tuple[Matern, Gaussian]:
    return Matern(median, nu=1.5), Gaussian(_SHARE * median)
