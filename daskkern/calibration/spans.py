"""Leave-one-out scores of support vector machines, by the spans of their support vectors.

At the minimum, rows whose coefficients are within their boxes ("free") lie at a kink of the loss, and do so without row
i, too, if no row gets to an edge of its box or leaves it. Then the score without row i is

    f_i - a_i S_i ,    S_i the squared distance of k(x_i, .) from the span of those of the other free rows

with factors that add up to 1 where the model has an offset without penalty. Rows without a coefficient keep their
score. It needs no penalty and no second derivative, which a hinge has not.

References
----------
Vapnik and Chapelle, "Bounds on error expectation for support vector machines", Neural Computation 2000, theorem 3.
Opper and Winther, "Gaussian processes and SVM: mean field and leave-one-out", 2000.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from daskkern.arrays import FloatArray, HostArray

_JITTER = 1e-9
_LEAST_ROWS = 50


def span_moves(
    gram: FloatArray, coef: FloatArray, free: HostArray, with_offset: bool, share: float = 1.0
) -> FloatArray:
    """Return by how much the scores (s,) of support vectors are lower without them.

    Parameters
    ----------
    gram : (s, s) float64
        Kernel values of the support vectors, or of a random sample of them.
    coef : (s,) float64
    free : (s,) bool
        Whether each is within its box.
    with_offset : bool
    share : float
        That of all training rows of which the sample is. Of more rows distances are smaller: they fall as a power of
        the number, which is measured on half of the free rows.
    """
    spans = _spans(gram, free, with_offset)
    half = np.flatnonzero(free)[::2]
    if share < 1 and half.size >= _LEAST_ROWS:
        some = np.ix_(half, half)
        before = float(_spans(gram[some], np.ones(half.size, bool), with_offset).mean())
        after = float(spans[half].mean())
        if 0 < after < before:
            spans = spans * share ** min(1.0, float(np.log2(before / after)))
    return coef * spans


def _spans(gram: FloatArray, free: HostArray, with_offset: bool) -> FloatArray:
    """Return the squared distances (s,) from the spans of the other free rows."""
    diagonal, at = gram.diagonal(), np.flatnonzero(free)
    spans = diagonal.copy()
    if at.size < 2:
        return spans
    among = gram[np.ix_(at, at)]
    among[np.diag_indices(at.size)] += _JITTER * float(diagonal.mean())
    inverse = solve_triangular(cholesky(among, lower=True), np.eye(at.size), lower=True)  # of the factor
    kept = (inverse * inverse).sum(axis=0)
    others = np.flatnonzero(~free)
    to_free = inverse @ gram[np.ix_(at, others)]
    spans[others] -= (to_free * to_free).sum(axis=0)
    if with_offset:
        ones = inverse.sum(axis=1)
        total = float(ones @ ones)
        kept -= (inverse.T @ ones) ** 2 / total
        spans[others] += (1 - ones @ to_free) ** 2 / total
    least = _JITTER * float(diagonal.mean())
    spans[at] = 1 / np.maximum(kept, np.finfo(float).tiny)
    # Beyond k(x, x) only an offset moves the score: no row is that far from all others.
    return np.clip(spans, least, 2 * diagonal.max() if with_offset else diagonal)
