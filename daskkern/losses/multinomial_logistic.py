"""The multinomial logistic loss."""

from typing import ClassVar

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE, entropy, wright_omega

_MOST_STEPS = 60
_LAST_STEP = 1e-8  # Newton's steps square their error: the next one would be of 1e-16
_ROUNDING = 4e-16


class MultinomialLogistic(Loss):
    """``log sum_k exp(f_k) - f_y`` with one score a class (softmax); y is one-hot, 0 or 1."""

    name: ClassVar[str] = "multinomial_logistic"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    joint: ClassVar[bool] = True
    smoothness: float = 0.5

    def value(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        top = f.max(axis=1, keepdims=True)
        return xp.log(xp.exp(f - top).sum(axis=1)) + top[:, 0] - (f * y).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return self.probabilities(f) - y

    def curvature(self, f: Array, y: Array) -> Array:
        del y
        p = self.probabilities(f)
        return p * (1 - p)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        del y
        p = self.probabilities(f)
        return p * (v - (p * v).sum(axis=1, keepdims=True))

    def probabilities(self, f: Array) -> Array:
        """Return the softmax of the scores, shape (m, n_classes)."""
        xp = namespace_of(f)
        powers = xp.exp(f - f.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def conjugate(self, slope: Array, y: Array) -> Array:
        xp = namespace_of(slope)
        p = slope + y
        inside = (p >= -EDGE).all(axis=1) & (xp.abs(p.sum(axis=1) - 1) <= EDGE * p.shape[1])
        return xp.where(inside, entropy(xp.maximum(p, 0)).sum(axis=1), xp.inf)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        """Return the maximiser: one monotone equation for the normalisation, by Newton steps.

        The new probabilities obey ``log p + Q p = a - nu`` with ``a = z + Q (y - u)``, so that
        ``Q p = omega(a - nu + log Q)`` with Wright's function; nu makes them sum to 1.
        """
        a = z + Q * (y - u) + np.log(Q)
        # The sum at this nu is at least Q: one term alone is. From there Newton's steps on a convex function ascend.
        nu = a.max(axis=1, keepdims=True) - Q - np.log(Q)
        for _ in range(_MOST_STEPS):
            terms = wright_omega(a - nu)
            step = (terms.sum(axis=1, keepdims=True) - Q) / (terms / (1 + terms)).sum(axis=1, keepdims=True)
            nu = nu + step
            if (np.abs(step) <= _LAST_STEP + _ROUNDING * np.abs(nu)).all():
                break
        p = wright_omega(a - nu)
        return y - p / p.sum(axis=1, keepdims=True)
