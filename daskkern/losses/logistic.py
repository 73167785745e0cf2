"""The logistic loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE, entropy, sigmoid, within

_MOST_STEPS = 300
_LAST_NEWTON_STEP = 1e-8  # Newton's steps square their error: the next one would be of 1e-16
_ROUNDING = 4e-16


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
        """Return the maximiser: the root of one monotone equation a score, by bracketed Newton steps.

        With ``t = y u``, x minus the margin after the step and ``v = sigmoid(x)``: ``x + y z + Q (v - t) = 0``.
        """
        t, margin = y * u, y * z
        return y * sigmoid(_root(margin, t, Q))


def _root(margin: Array, t: Array, Q: Array) -> Array:
    """Return x with ``x + margin + Q (sigmoid(x) - t) = 0``.

    A step is bisection where Newton's leaves the bracket or does not halve the step before it, as in rtsafe of
    Press et al., "Numerical Recipes", section 9.4: either kind halves a bound, so that the number of steps is bounded.
    """
    xp = namespace_of(margin)
    low, high = -margin - Q * (1 - t), -margin + Q * t
    inner = xp.clip(t, 1e-300, 1 - 1e-16)
    x = xp.clip(xp.log(inner) - xp.log1p(-inner), low, high)
    step = high - low
    for _ in range(_MOST_STEPS):
        v = sigmoid(x)
        excess = x + margin + Q * (v - t)
        low, high = xp.where(excess < 0, x, low), xp.where(excess > 0, x, high)
        newton = x - excess / (1 + Q * v * (1 - v))
        trusted = (newton >= low) & (newton <= high) & (2 * xp.abs(newton - x) <= step)
        following = xp.where(trusted, newton, (low + high) / 2)
        step, x = xp.abs(following - x), following
        if (step <= xp.where(trusted, _LAST_NEWTON_STEP, 0) + _ROUNDING * xp.abs(x)).all():
            break
    return x
