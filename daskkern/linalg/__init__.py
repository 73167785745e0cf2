"""Linear algebra: lazy kernel matrices and Gram sums, leading eigenpairs, sharded factorisations."""

from daskkern.linalg.block_cyclic import BlockCyclicLayout, block_width, column_blocks, even_slices, group_count
from daskkern.linalg.dense import DenseSolution, factor_lower, solve_lower, solve_positive_definite
from daskkern.linalg.eigen import EIGEN_METHODS, Eigenpairs, top_eigenpairs
from daskkern.linalg.lazy_matrices import computed, lazy_gram_sum, lazy_kernel_matrix
from daskkern.linalg.panels import NotPositiveDefiniteError
from daskkern.linalg.projection import BlockCyclicFactor, distributed_factor
from daskkern.linalg.symmetric import symmetric_eigen
from daskkern.linalg.triangular import LowerFactor, cholesky

__all__ = [
    "EIGEN_METHODS",
    "BlockCyclicFactor",
    "BlockCyclicLayout",
    "DenseSolution",
    "Eigenpairs",
    "LowerFactor",
    "NotPositiveDefiniteError",
    "block_width",
    "cholesky",
    "column_blocks",
    "computed",
    "distributed_factor",
    "even_slices",
    "factor_lower",
    "group_count",
    "lazy_gram_sum",
    "lazy_kernel_matrix",
    "solve_lower",
    "solve_positive_definite",
    "symmetric_eigen",
    "top_eigenpairs",
]
