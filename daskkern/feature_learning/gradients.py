"""The average gradient outer product of a function ``f(x) = sum_j k(x, z_j) a_j`` over rows.

``M = sum_i w_i J(x_i)^T J(x_i) / sum_i w_i`` with J (c, d) the Jacobian of f. Its large entries belong to features, and
its leading eigenvectors to directions, that f changes with (Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism
for feature learning in neural networks and backpropagation-free machine learning models", Science 2024, eq. 2).
A pair of equal rows contributes nothing where the kernel has a kink: its derivative counts as 0 there.
"""

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import to_host
from daskkern.backend.tiles import slices
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.kernels.rows import module_of

TILE_ELEMENTS = 1 << 24
"""Numbers of a tile of gradients: 128 MiB."""


def gradient_outer_product(
    kernel: ScaledDistanceKernel, X: Array, Z: Array, A: Array, weight: FloatArray | None, *, diagonal: bool
) -> FloatArray:
    """Return the average gradient outer product M (d, d) of a function, or its diagonal (d,).

    Parameters
    ----------
    kernel : ScaledDistanceKernel
    X : (m, d) array or CSR rows
        Rows that gradients are taken at, a tile at a time.
    Z : (p, d) array or CSR rows
    A : (p, c) array
    weight : (m,) array or None
        Weights of the rows.
    diagonal : bool
        Return only the diagonal; nothing of d times d is then made.

    Returns
    -------
    float64 NumPy array
    """
    m, d, c = X.shape[0], X.shape[1], A.shape[1]
    xp = module_of(X)
    counts = xp.ones(m) if weight is None else xp.asarray(weight)
    total = xp.zeros(d) if diagonal else xp.zeros((d, d))
    for part in slices(m, max(1, min(1024, TILE_ELEMENTS // (c * d)))):
        J = kernel.gradient_matvec(X[part], Z, A)
        if diagonal:
            total += (J * J * counts[part, None, None]).sum(axis=(0, 1))
        else:
            J = (J * xp.sqrt(counts[part])[:, None, None]).reshape(-1, d)
            total += J.T @ J
    found: FloatArray = to_host(total / counts.sum())
    return found
