"""A metric still to be computed from gradients at all rows: the function, and the kernel that will use it."""

from dataclasses import dataclass

from daskkern.arrays import Array, FloatArray
from daskkern.feature_learning.gradients import FittedFunction, OuterProduct, gradient_outer_product
from daskkern.feature_learning.metric import (
    MOST_SQUARE,
    directions_for,
    factor_of,
    factor_of_sketch,
    range_of,
    weights_of,
    with_factor,
)
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel


@dataclass(frozen=True, eq=False)
class PendingMetric:
    """A metric that is made from gradients at all rows.

    Attributes
    ----------
    function : FittedFunction
        Whose gradients are taken; on the host.
    base : ScaledDistanceKernel
        The kernel that gets the metric.
    times : float
        Its length scale as a multiple of the median distance.
    diagonal : bool
        Whether the metric is one weight per feature.
    rank : int
        Most directions of the metric.
    seed : int
    few : (m, d) array or CSR rows
        Rows whose median distance counts; on the host.
    known : (d,) or (d, k) array
        The factor that sampled rows have given.
    """

    function: FittedFunction
    base: ScaledDistanceKernel
    times: float
    diagonal: bool
    rank: int
    seed: int
    few: Array
    known: FloatArray

    @property
    def product(self) -> OuterProduct:
        """What is summed over all rows. The directions of a sketch begin with those that sampled rows have given."""
        if self.diagonal or len(self.known) <= MOST_SQUARE:
            return OuterProduct(self.diagonal)
        return OuterProduct(directions=directions_for(len(self.known), self.rank, self.seed, self.known))

    def factor(self, product: OuterProduct, mean: FloatArray) -> FloatArray:
        """Return weights (d,) or F (d, k) for the mean of a product over all rows."""
        if product.directions is not None:
            return factor_of_sketch(mean, product.directions, self.rank)
        return weights_of(mean) if self.diagonal else factor_of(mean, self.rank)

    def kernel(self, factor: FloatArray) -> ScaledDistanceKernel:
        """Return the kernel with the metric. Raises DataError when all weighted rows are equal."""
        return with_factor(self.base, factor, self.few, self.times)


def factor_at(
    function: FittedFunction, X: Array, weight: Array | None, *, diagonal: bool, rank: int, seed: int
) -> FloatArray:
    """Return weights (d,) or F (d, k), k at most `rank`, from gradients at rows X in memory.

    Of more than 2,048 features from products with directions: random ones first, then those of the range that these
    find (Halko, Martinsson and Tropp, SIAM Review 2011, alg. 4.4 with one power), so that nothing of d times d is made.
    """
    kernel, Z, A = function.kernel, function.points, function.coef
    if diagonal:
        return weights_of(gradient_outer_product(kernel, X, Z, A, weight, diagonal=True))
    if X.shape[1] <= MOST_SQUARE:
        return factor_of(gradient_outer_product(kernel, X, Z, A, weight, diagonal=False), rank)
    drawn = directions_for(X.shape[1], rank, seed)
    chosen = range_of(gradient_outer_product(kernel, X, Z, A, weight, diagonal=False, directions=drawn))
    sketch = gradient_outer_product(kernel, X, Z, A, weight, diagonal=False, directions=chosen)
    return factor_of_sketch(sketch, chosen, rank)
