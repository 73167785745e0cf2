"""The multi-class hinge loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE


class MulticlassHinge(Loss):
    """``max_k (1 - y_k + f_k) - f_y`` with one score a class; y is one-hot, 0 or 1.

    The margin of the right class over the best of the others. It is not smooth.

    References
    ----------
    Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", JMLR 2001.
    """

    name: ClassVar[str] = "multiclass_hinge"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    joint: ClassVar[bool] = True

    def value(self, f: Array, y: Array) -> Array:
        return (1 - y + f).max(axis=1) - (f * y).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        worst = (1 - y + f).argmax(axis=1)
        return (xp.arange(f.shape[1]) == worst[:, None]).astype(f.dtype) - y

    def conjugate(self, slope: Array, y: Array) -> Array:
        xp = namespace_of(slope)
        p = slope + y
        inside = (p >= -EDGE).all(axis=1) & (xp.abs(p.sum(axis=1) - 1) <= EDGE * p.shape[1])
        return xp.where(inside, (p * y).sum(axis=1) - 1, xp.inf)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        margins = 1 - y + z
        # The projection ignores a common offset; divided by a small Q it would drown the differences.
        return y - _simplex(y - u + (margins - margins.max(axis=1, keepdims=True)) / Q)


def _simplex(v: Array) -> Array:
    """Return the nearest points of the simplex to the rows of `v` (m, c) (Duchi et al., ICML 2008)."""
    xp = namespace_of(v)
    v = v - v.max(axis=1, keepdims=True)  # of the same projection, which is then exact near the largest
    down = -xp.sort(-v, axis=1)
    excess = (xp.cumsum(down, axis=1) - 1) / xp.arange(1, v.shape[1] + 1)
    last = (down > excess).sum(axis=1) - 1
    return xp.maximum(v - excess[xp.arange(v.shape[0]), last][:, None], 0)
