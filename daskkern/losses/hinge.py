"""The hinge loss."""

from typing import ClassVar

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.losses.base import Loss


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
