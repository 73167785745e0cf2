"""The kernel that the rows of a fit choose, among those whose length scales follow from the median distance."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import is_sparse
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.functions.gaussian import Gaussian
from daskkern.kernels.functions.laplacian import Laplacian
from daskkern.kernels.functions.length_scale import LengthScale
from daskkern.kernels.functions.matern import Matern
from daskkern.kernels.functions.power_laplacian import L1Laplacian

MOST_FEATURES = 256
"""Features of rows among whose candidates the L1 Laplacian is: of wider rows its values take twice as long as those
that a matrix product gives."""
_SHARE = 0.7  # of the median distance: the Gaussian kernel that most libraries begin with on standardised features


@dataclass(frozen=True)
class AutoKernel(Laplacian):
    """The Laplacian kernel with the median distance, unless rows that are left out are better predicted by another one.

    A fit chooses among :meth:`candidates`. Without targets, as in a plan or in features, it is the Laplacian.
    """

    name: ClassVar[str] = "auto"
    length_scale: LengthScale = "median"

    def __post_init__(self) -> None:
        if self.length_scale != "median" or self.metric is not None:
            raise SpecError(
                f"got the auto kernel with length_scale={self.length_scale!r} and metric={self.metric!r:.40}; expected "
                "neither; name a kernel, such as Laplacian(5.0), to choose them"
            )

    def spec(self) -> Spec:
        return {"name": self.name}

    def resolve(self, sample: Array) -> Laplacian:  # type: ignore[override]  # what it stands for
        return Laplacian("median").resolve(sample)

    def candidates(self, sample: Array) -> tuple[Kernel, ...]:
        """Return the kernels to choose from for rows like `sample`: the usual one, then the others.

        The L1 Laplacian is among them for dense rows of at most :data:`MOST_FEATURES` features.
        """
        usual = self.resolve(sample)
        assert isinstance(usual.length_scale, float)
        median = usual.length_scale
        return usual, *self._single(sample), Matern(median, nu=1.5), Gaussian(_SHARE * median)

    def slowest(self, sample: Array) -> Kernel:
        """Return the candidate for rows like `sample` whose values take longest: a plan's time is that of its fit."""
        return next(iter(self._single(sample)), self.resolve(sample))

    def _single(self, sample: Array) -> tuple[Kernel, ...]:
        """Return the candidates whose values are not functions of a matrix product."""
        if is_sparse(sample) or sample.shape[1] > MOST_FEATURES:
            return ()
        return (L1Laplacian("median").resolve(sample),)
