"""An unpenalised intercept of classifiers: the best constant, and the loss of scores plus that constant."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import constants_like
from daskkern.losses.base import Curved, Dual, Loss, Probabilistic, Smooth

_STEPS = 60
_RANGE = 30.0


def best_constant(loss: Loss, shares: FloatArray, n_outputs: int) -> FloatArray | None:
    """Return the scores b (c,) of least mean loss over rows of which `shares` (n_classes,) are of each class.

    None for losses with kinks, whose best constant is one of them (the hinge's is -1 or 1, whatever the shares).
    """
    if not isinstance(loss, Smooth):
        return None
    if loss.joint:
        centred: FloatArray = np.log(shares) - np.log(shares).mean()
        return centred if isinstance(loss, Probabilistic) else None
    positive = shares[1:] if n_outputs == 1 else shares
    return _roots(loss, np.asarray(positive, np.float64))


def _roots(loss: Loss, shares: FloatArray) -> FloatArray:
    """Return where ``share loss(f, 1) + (1 - share) loss(f, -1)`` is least, by bisection of its slope."""
    low, high = np.full_like(shares, -_RANGE), np.full_like(shares, _RANGE)
    y = np.ones((2, shares.size)) * [[1.0], [-1.0]]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        slopes = loss.gradient(np.stack([middle, middle]), y)
        rises = shares * slopes[0] + (1 - shares) * slopes[1] > 0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    found: FloatArray = (low + high) / 2
    return found


def with_constant(loss: Loss, constant: FloatArray) -> Loss:
    """Return the loss of f for scores ``f + constant``, with the abilities of `loss`."""
    parts = [part for ability, part in _PARTS.items() if isinstance(loss, ability)]
    kind = type("Moved", (*parts, _Moved), {"name": loss.name, "tasks": loss.tasks, "joint": loss.joint})
    moved: Loss = kind(loss, tuple(float(value) for value in constant))
    return moved


@dataclass(frozen=True, eq=False)
class _Moved(Loss):
    """A loss of ``f + constant``; all its subclasses have the name of the loss."""

    loss: Any
    constant: tuple[float, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        return with_constant, (self.loss, np.asarray(self.constant))

    def spec(self) -> str:
        return str(self.loss.spec())

    def value(self, f: Array, y: Array) -> Array:
        return self.loss.value(self._moved(f), y)

    def gradient(self, f: Array, y: Array) -> Array:
        return self.loss.gradient(self._moved(f), y)

    def _moved(self, f: Array) -> Array:
        return f + constants_like(self.constant, f)


class _SmoothPart(_Moved):
    @property
    def smoothness(self) -> float:
        return float(self.loss.smoothness)


class _CurvedPart(_Moved):
    def curvature(self, f: Array, y: Array) -> Array:
        return self.loss.curvature(self._moved(f), y)

    def curved(self, f: Array, y: Array, v: Array) -> Array:
        return self.loss.curved(self._moved(f), y, v)


class _ProbabilisticPart(_Moved):
    def probabilities(self, f: Array) -> Array:
        return self.loss.probabilities(self._moved(f))


class _DualPart(_Moved):
    def conjugate(self, slope: Array, y: Array) -> Array:
        return self.loss.conjugate(slope, y) - slope @ constants_like(self.constant, slope)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return self.loss.dual_step(self._moved(z), u, y, Q)


_PARTS: dict[Any, type[_Moved]] = {
    Smooth: _SmoothPart,
    Curved: _CurvedPart,
    Probabilistic: _ProbabilisticPart,
    Dual: _DualPart,
}
