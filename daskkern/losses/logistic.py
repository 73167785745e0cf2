"""The logistic loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE, entropy, sigmoid, within

_MOST_STEPS = 60
_LAST_STEP = 1e-8  # Newton's steps square their error: the next one would be of 1e-16


class Logistic(Loss):
    """``log(1 + exp(-y f))`` for y in {-1, +1}, summed over the outputs (one-vs-rest)."""

    name: ClassVar[str] = "logistic"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    smoothness: float = 0.25

    def value(self, f: Array, y: Array) -> Array:
        return namespace_of(f).logaddexp(0, -y * f).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return -y * sigmoid(-y * f)

    def curvature(self, f: Array, y: Array) -> Array:
        del y
        positive = sigmoid(f)
        return positive * (1 - positive)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.curvature(f, y) * v

    def probabilities(self, f: Array) -> Array:
        """Return sigmoid probabilities: two columns for one output, else one-vs-rest ones scaled to sum 1."""
        xp = namespace_of(f)
        positive = sigmoid(f)
        if f.shape[1] == 1:
            return xp.concatenate([1 - positive, positive], axis=1)
        total = positive.sum(axis=1, keepdims=True)
        return xp.where(total > 0, positive / xp.where(total > 0, total, 1), 1 / f.shape[1])

    def conjugate(self, slope: Array, y: Array) -> Array:
        t = -y * slope
        inside = namespace_of(t).clip(t, 0, 1)
        return within(entropy(inside) + entropy(1 - inside), (t >= -EDGE) & (t <= 1 + EDGE))

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        """Return the maximiser by Newton steps on minus the margin, kept within bounds that bisection narrows."""
        xp = namespace_of(z)
        t, margin = y * u, y * z
        # The margin after the step is margin + Q (v - t) with v = sigmoid(-margin after the step).
        low, high = -margin - Q * (1 - t), -margin + Q * t
        inner = xp.clip(t, 1e-300, 1 - 1e-16)
        x = xp.clip(xp.log(inner) - xp.log1p(-inner), low, high)
        for _ in range(_MOST_STEPS):
            v = sigmoid(x)
            excess = x + margin + Q * (v - t)
            low, high = xp.where(excess < 0, x, low), xp.where(excess > 0, x, high)
            newton = x - excess / (1 + Q * v * (1 - v))
            following = xp.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
            moved, x = xp.abs(following - x), following
            if (moved <= _LAST_STEP * (1 + xp.abs(x))).all():
                break
        return y * sigmoid(x)
