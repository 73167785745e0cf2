"""The multinomial logistic loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss


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
