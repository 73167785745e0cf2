"""One BLAS call that NumPy has no name for."""

import numpy as np
from scipy.linalg import get_blas_funcs

from daskkern.arrays import Array


def subtract_product(out: Array, left: Array, right: Array) -> None:
    """Subtract ``left @ right`` from `out`, in place: with BLAS's own accumulation where the layout allows it.

    The plain form writes the product and reads it again, which costs a third of the time of tall, thin factors.
    """
    if _accumulates(out, left, right):
        gemm = get_blas_funcs("gemm", (out, left, right))
        # The transposes of row-major arrays are what BLAS calls column-major: out^T -= right^T left^T.
        if right.flags.c_contiguous:
            gemm(-1.0, right.T, left.T, beta=1.0, c=out.T, overwrite_c=True)
        else:
            gemm(-1.0, right, left.T, beta=1.0, c=out.T, trans_a=True, overwrite_c=True)
    else:
        out -= left @ right


def _accumulates(out: Array, left: Array, right: Array) -> bool:
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or not out.size:
        return False
    return left.flags.c_contiguous and (right.flags.c_contiguous or right.flags.f_contiguous) and left.shape[1] > 0
