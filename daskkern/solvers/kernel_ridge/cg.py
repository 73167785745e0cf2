"""Conjugate gradient, one iteration at a time, for several right-hand sides at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.solvers.base import ratio

_PREFIX = "cg_"


@dataclass(frozen=True)
class LinearSystem:
    """``H x = b``, H symmetric positive definite, from x = 0. Arrays (p, c) float64, columns are systems.

    Attributes
    ----------
    b, x, r, d : (p, c) arrays
        Right side, solution so far, residual ``b - H x``, next direction.
    """

    b: Array
    x: Array
    r: Array
    d: Array

    @classmethod
    def begin(cls, b: Array) -> "LinearSystem":
        """Return the system before its first iteration."""
        return cls(b, namespace_of(b).zeros_like(b), b, b)

    def iterate(self, Hd: Array, *, joint: bool = False) -> "LinearSystem":
        """Return the system after an iteration, for the product ``H d``.

        With `joint`, H couples the columns: they make one system. A column that is solved no longer changes.
        """
        xp = namespace_of(self.b)

        def dot(a: Array, b: Array) -> Array:
            total = (a * b).sum(axis=0)
            return xp.full_like(total, total.sum()) if joint else total

        square = dot(self.r, self.r)
        length = ratio(square, dot(self.d, Hd))
        r = self.r - length * Hd
        return LinearSystem(self.b, self.x + length * self.d, r, r + ratio(dot(r, r), square) * self.d)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, for a snapshot."""
        return {f"{_PREFIX}{name}": getattr(self, name) for name in ("b", "x", "r", "d")}

    @staticmethod
    def is_in(arrays: Mapping[str, Array]) -> bool:
        """Return whether a snapshot has a system."""
        return f"{_PREFIX}b" in arrays

    @classmethod
    def of(cls, arrays: Mapping[str, Array], xp: ModuleType) -> "LinearSystem":
        """Return the system of a snapshot."""
        return cls(*(xp.asarray(arrays[f"{_PREFIX}{name}"]) for name in ("b", "x", "r", "d")))
