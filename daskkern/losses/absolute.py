"""The absolute loss."""

from typing import ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import DualBox, Loss
from daskkern.losses.elementwise import EDGE, within


class Absolute(Loss):
    """``|f - y|``, summed over the outputs: its minimiser is the median. Not smooth."""

    name: ClassVar[str] = "absolute"
    tasks: ClassVar[frozenset[str]] = frozenset({"regression"})

    @property
    def quantiles(self) -> tuple[float, ...]:
        return (0.5,)

    def value(self, f: Array, y: Array) -> Array:
        return namespace_of(f).abs(f - y).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        return namespace_of(f).sign(f - y)

    def conjugate(self, slope: Array, y: Array) -> Array:
        return within(slope * y, namespace_of(slope).abs(slope) <= 1 + EDGE)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        return namespace_of(z).clip((y - z) / Q + u, -1, 1)

    def dual_boxes(self, y: FloatArray) -> tuple[DualBox, ...]:
        ones = np.ones_like(y)
        return (DualBox(-ones, ones, -y),)
