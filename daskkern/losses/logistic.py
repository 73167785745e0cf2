"""The logistic loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss


class Logistic(Loss):
    """``log(1 + exp(-y f))`` for y in {-1, +1}, summed over the outputs (one-vs-rest)."""

    name: ClassVar[str] = "logistic"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    smoothness: float = 0.25

    def value(self, f: Array, y: Array) -> Array:
        return namespace_of(f).logaddexp(0, -y * f).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return -y * _sigmoid(-y * f)

    def curvature(self, f: Array, y: Array) -> Array:
        del y
        positive = _sigmoid(f)
        return positive * (1 - positive)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def probabilities(self, f: Array) -> Array:
        """Return sigmoid probabilities: two columns for one output, else one-vs-rest ones scaled to sum 1."""
        xp = namespace_of(f)
        positive = _sigmoid(f)
        if f.shape[1] == 1:
            return xp.concatenate([1 - positive, positive], axis=1)
        total = positive.sum(axis=1, keepdims=True)
        return xp.where(total > 0, positive / xp.where(total > 0, total, 1), 1 / f.shape[1])


def _sigmoid(t: Array) -> Array:
    # tanh never overflows, where exp(-t) does for t below -88 in float32.
    return 0.5 * (namespace_of(t).tanh(0.5 * t) + 1)
