"""The EigenPro kernel: the preconditioned kernel as a function of two sets of rows, for any kernel method.

    k_P(x, z) = k(x, z) - sum_i D_i (v_i^T k(S, x)) (v_i^T k(S, z)) ,     D_i = (1 - (tau l_{q+1} / l_i)^rho) / (s l_i)

with the q leading eigenpairs (l_i, v_i) of ``K_SS / s`` for a sample S of s rows. Gradient descent with k_P is EigenPro
with k: the leading eigenvalues of k are damped to ``l_{q+1}``, the others stay.

References
----------
Ma and Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning", NeurIPS 2017,
section 4: a kernel that is optimised for gradient descent.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import slices
from daskkern.errors import SpecError
from daskkern.kernels import CallableKernel, Kernel
from daskkern.kernels.rows import as_rows, module_of
from daskkern.preconditioners.eigenpro import SpectrumSettings, eigenpro_state

_ROWS = 1024


@dataclass(frozen=True, eq=False)
class EigenProKernel:
    """``k_P(X, Z)`` as a function: scikit-learn's ``SVC(kernel=...)`` takes it, and :meth:`as_kernel` makes a kernel.

    Parameters
    ----------
    kernel : Kernel
        k, with every parameter known.
    points : (s, d) array or CSR matrix
        S, in host memory.
    vectors : (s, q) float64
        The v_i.
    damping : (q,) float64
        The D_i.
    """

    kernel: Kernel
    points: Any
    vectors: FloatArray
    damping: FloatArray

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        rows: HostArray,
        n_directions: int = 160,
        rho: float = 1.0,
        tau: float | str = 1.0,
        seed: int = 0,
    ) -> Self:
        """Return the kernel of the sample `rows` (s, d), which is S: 4,800 rows in the paper, with 160 directions.

        Eigenvalues below a millionth of the first are not damped. One s x s matrix is decomposed.

        Raises
        ------
        SpecError
            For `rho` and `tau` out of (0, 1], but for the `tau` "tail_mean", less than one direction, or fewer than
            two rows.
        DataError
            When the kernel is 0 on all rows, or overflows.
        """
        sample = as_rows(rows)
        if n_directions < 1 or sample.shape[0] < 2:
            raise SpecError(
                f"got {n_directions} directions of {sample.shape[0]} rows for the EigenPro kernel; give 1 direction or "
                "more, of 2 rows or more"
            )
        resolved, settings = kernel.resolve(sample), SpectrumSettings(n_directions, rho, tau)
        state = eigenpro_state(resolved, sample, None, sample[:0], None, settings, 1, seed)
        return cls(resolved, sample, state.vectors, state.damping)

    def __call__(self, X: Array, Z: Array) -> Array:
        """Return ``k_P(x_i, z_j)`` (m, p) for rows (m, d) and (p, d), NumPy or CuPy, dense or CSR, in their dtype."""
        X, Z = as_rows(X), as_rows(Z)
        block = self.kernel.block(X, Z)
        xp = namespace_of(block)
        left, right = self._projected(X), self._projected(Z)
        return (block - (left * xp.asarray(self.damping)) @ right.T).astype(block.dtype)

    def diagonal(self, X: Array) -> Array:
        """Return ``k_P(x_i, x_i)`` (m,)."""
        X = as_rows(X)
        values = self.kernel.diagonal(X)
        return (values - (self._projected(X) ** 2 @ namespace_of(values).asarray(self.damping))).astype(values.dtype)

    def as_kernel(self) -> CallableKernel:
        """Return a kernel for the solvers of this package. Models with it can be pickled, but not saved as stores."""
        return CallableKernel(self, f"EigenPro of {self.kernel.name}", self.diagonal)

    def _projected(self, X: Array) -> Array:
        """Return ``v_i^T k(S, x)`` (m, q) float64, in pieces of the rows."""
        xp = module_of(X)
        points, vectors = self.points if xp is np else xp.asarray(self.points), xp.asarray(self.vectors)
        parts = [self.kernel.block(X[rows], points).astype(np.float64) @ vectors for rows in slices(X.shape[0], _ROWS)]
        return xp.concatenate(parts) if parts else xp.zeros((0, vectors.shape[1]))
