"""The hinge loss."""

from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import DualBox, Loss
from daskkern.losses.elementwise import EDGE, within


class Hinge(Loss):
    """``max(0, 1 - y f)`` for y in {-1, +1}, summed over the outputs (one-vs-rest).

    It is not smooth: solvers take subgradient steps of decreasing size.
    """

    name: ClassVar[str] = "hinge"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})

    def value(self, f: Array, y: Array) -> Array:
        return namespace_of(f).maximum(1 - y * f, 0).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return -y * (y * f < 1)

    def conjugate(self, slope: Array, y: Array) -> Array:
        t = y * slope
        return within(t, (t >= -1 - EDGE) & (t <= EDGE))

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return y * namespace_of(z).clip((1 - y * z) / Q + y * u, 0, 1)

    def dual_boxes(self, y: FloatArray) -> tuple[DualBox, ...]:
        return (DualBox(np.minimum(y, 0), np.maximum(y, 0), -y),)
