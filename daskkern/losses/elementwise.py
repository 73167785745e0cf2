"""Elementwise functions shared by several losses."""

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of

EDGE = 1e-9
"""Distance from the domain of a conjugate that a slope may have by rounding."""


def sigmoid(t: Array) -> Array:
    """Return ``1 / (1 + exp(-t))``."""
    # tanh never overflows, where exp(-t) does for t below -88 in float32.
    return 0.5 * (namespace_of(t).tanh(0.5 * t) + 1)


def soft_threshold(t: Array, width: Array | float) -> Array:
    """Return `t` moved towards 0 by `width`, at most to 0."""
    xp = namespace_of(t)
    return xp.sign(t) * xp.maximum(xp.abs(t) - width, 0)


def entropy(p: Array) -> Array:
    """Return ``p log p``, 0 at 0."""
    xp = namespace_of(p)
    return xp.where(p > 0, p * xp.log(xp.where(p > 0, p, 1)), 0)


def wright_omega(x: Array) -> Array:
    """Return the solution of ``log w + w = x``, by three steps of fourth order.

    References
    ----------
    Lawrence, Corless and Jeffrey, "Algorithm 917: complex double-precision evaluation of the Wright omega function",
    ACM TOMS 2012.
    """
    xp = namespace_of(x)
    x = xp.maximum(x, -700.0)  # exp of less is 0, whose logarithm is not finite
    large = xp.maximum(x, 1)
    middle = xp.clip(x, -2, 1)
    w = xp.where(x > 1, large - xp.log(large) + xp.log(large) / large, xp.exp(xp.minimum(x, -2)))
    w = xp.where((x > -2) & (x <= 1), xp.exp(2 * (middle - 1) / 3), w)
    for _ in range(3):
        r = x - w - xp.log(w)
        q = 2 * (1 + w) * (1 + w + 2 / 3 * r)
        w = w * (1 + r / (1 + w) * (q - r) / (q - 2 * r))
    return w


def within(values: Array, inside: Array) -> Array:
    """Return the sums (m,) of `values` (m, c) over each row, infinity where one of them is not `inside`."""
    xp = namespace_of(values)
    return xp.where(inside.all(axis=1), values.sum(axis=1), xp.inf)
