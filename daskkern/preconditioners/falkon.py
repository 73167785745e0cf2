"""The preconditioner of Falkon: two triangular factors, computed from the landmarks alone.

    K_ZZ + jitter = T^T T ,    T D T^T / p + mu = A^T A          (T, A upper; their transposes are stored)

D are the sample weights of the landmarks, times the curvature of the loss at them. With a = T^-1 A^-1 b the system
``(K_ZX D K_XZ / n + mu K_ZZ) a = r`` becomes one whose condition number is small when the landmarks are a fair sample.

References
----------
Rudi, Carratino and Rosasco, "FALKON: an optimal large scale kernel method", NeurIPS 2017, algorithm 1;
Marteau-Ferey, Bach and Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant
losses", NeurIPS 2019 (D for other losses).
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_of
from daskkern.errors import DataError
from daskkern.linalg import BlockCyclicLayout, LowerFactor, NotPositiveDefiniteError, cholesky

_JITTERS = 6
_LEAST = float(np.finfo(np.float32).eps)
"""Least mu of A, in units of the trace of ``T D T^T / p`` (K_ZZ of mean diagonal 1)."""


@dataclass(frozen=True)
class FalkonPart:
    """The part of one rank: the factor T^T of all landmarks, and the block-cyclic layout for computing A on all ranks.

    Attributes
    ----------
    lower : LowerFactor
        T^T (p, p) float64. A is computed and used in the dtype of `weights`: it affects the speed of convergence, not
        the solution.
    layout : BlockCyclicLayout
    weights : (p, 1) array
        Sample weights of the landmarks; 1 where they have none.
    targets : (p, c) array or None
        Encoded targets of the landmarks; None for the user's own points.
    """

    lower: LowerFactor
    layout: BlockCyclicLayout
    weights: Array
    targets: Array | None

    def inner(self, curvature: Array | float, mu: float, comm: Communicator) -> LowerFactor:
        """Return A^T for the `curvature` (p, 1) of the loss at the landmarks. Every rank must call it.

        Where mu is below what p landmarks can resolve, or leaves ``T D T^T / p + mu`` not positive definite, A is that
        of a larger mu: the solution is the same.

        Raises
        ------
        DataError
            When no mu of a reasonable size gives a factor.
        """
        xp = namespace_of(self.weights)
        scale = self.weights * curvature * (1.0 / self.layout.p)
        dtype = self.weights.dtype
        # The landmarks are a sample of the rows: they do not estimate smaller eigenvalues, in any dtype, and a factor
        # that follows them there needs many more iterations. Below the rounding of float32 directions are noise.
        least = max(mu, _LEAST * float(scale.sum(dtype=np.float64)))
        lower = self.lower.astype(dtype.name)
        for attempt in range(_JITTERS):
            jitter = least * 10.0**attempt
            panels = lower.gram_panels(self.layout, scale)
            try:
                return cholesky(panels, self.layout, jitter, comm, dtype.name, xp)
            except NotPositiveDefiniteError as error:
                last = error
        raise DataError(f"the preconditioner of Falkon cannot be factored ({last}); take a larger alpha or float64")
