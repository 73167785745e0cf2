"""The multi-class hinge loss."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import constants_like, namespace_of
from daskkern.errors import SpecError
from daskkern.losses.base import Loss
from daskkern.losses.elementwise import EDGE

_MOST = 1e6
_EXAMPLE = "multiclass_hinge:0,1,5/1,0,1/2,1,0"


@dataclass(frozen=True)
class MulticlassHinge(Loss):
    """``max_k (delta(y, k) + f_k) - f_y`` with one score a class; y is one-hot, 0 or 1. It is not smooth.

    The margin of the right class over the best of the others, which is to be as wide as the error would cost: the loss
    is at least ``delta(y, k)`` of the class k of the highest score.

    Parameters
    ----------
    costs : (n_classes, n_classes) array-like or None
        ``delta(y, k)``, the cost of predicting class k (column) for a row of class y (row), in the order of the sorted
        classes: 0 on the diagonal, elsewhere numbers from 0 to 1e6. None is 1 for every error. As a string with rows
        after each other: ``"multiclass_hinge:0,1,5/1,0,1/2,1,0"``.

    References
    ----------
    Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", JMLR 2001; with
    costs, Tsochantaridis, Joachims, Hofmann and Altun, "Large margin methods for structured and interdependent output
    variables", JMLR 2005, margin rescaling, equation 11.
    """

    name: ClassVar[str] = "multiclass_hinge"
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})
    joint: ClassVar[bool] = True

    costs: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.costs is not None:
            object.__setattr__(self, "costs", _checked(self.costs))

    @staticmethod
    def parameter(word: str) -> Any:
        try:
            return tuple(tuple(float(number) for number in row.split(",")) for row in word.split("/"))
        except ValueError:
            raise SpecError(
                f"got costs {word!r:.80} for the multiclass_hinge loss; write numbers, row after row, as in "
                f'{_EXAMPLE!r}; from a CSV file without a header: "multiclass_hinge:$(paste -sd/ costs.csv)"'
            ) from None

    def spec(self) -> str:
        if self.costs is None:
            return self.name
        rows = (",".join(repr(cost).removesuffix(".0") for cost in row) for row in self.costs)
        return f"{self.name}:{'/'.join(rows)}"

    def margins(self, y: Array) -> Array:
        """Return ``delta(y, k)`` (m, c) for one-hot targets (m, c), in their dtype."""
        if self.costs is None:
            return 1 - y
        own = y.argmax(axis=1)
        if namespace_of(y) is np:
            return self._table[own].astype(y.dtype)
        return constants_like(self.costs, y)[own]

    def value(self, f: Array, y: Array) -> Array:
        return (self.margins(y) + f).max(axis=1) - (f * y).sum(axis=1)

    def gradient(self, f: Array, y: Array) -> Array:
        xp = namespace_of(f)
        worst = (self.margins(y) + f).argmax(axis=1)
        return (xp.arange(f.shape[1]) == worst[:, None]).astype(f.dtype) - y

    def conjugate(self, slope: Array, y: Array) -> Array:
        xp = namespace_of(slope)
        p = slope + y
        inside = (p >= -EDGE).all(axis=1) & (xp.abs(p.sum(axis=1) - 1) <= EDGE * p.shape[1])
        return xp.where(inside, -(p * self.margins(y)).sum(axis=1), xp.inf)

    def dual_step(self, z: Array, u: Array, y: Array, Q: Array) -> Array:
        margins = self.margins(y) + z
        # The projection ignores a common offset; divided by a small Q it would drown the differences.
        return y - _simplex(y - u + (margins - margins.max(axis=1, keepdims=True)) / Q)

    @cached_property
    def _table(self) -> FloatArray:
        return np.array(self.costs, np.float64)


def _checked(costs: Any) -> tuple[tuple[float, ...], ...]:
    """Return costs (k, k) as numbers; SpecError for what are none."""
    try:
        table = np.array(costs, np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim != 2 or len(table) < 2 or table.shape[0] != table.shape[1]:
        found = f"of shape {table.shape}" if table.size else f"{costs!r:.60}"
        raise SpecError(
            f"got costs {found} for the multiclass_hinge loss; give a square table, a row and a column for each class"
        )
    if not ((table >= 0) & (table <= _MOST)).all() or not table.any():
        wrong = table[~((table >= 0) & (table <= _MOST))]
        found = f"a cost of {wrong[0]:g}" if wrong.size else "costs that are all 0"
        raise SpecError(f"got {found} for the multiclass_hinge loss; give numbers from 0 to {_MOST:g}")
    if table.diagonal().any():
        wrong_class = int(np.flatnonzero(table.diagonal())[0])
        raise SpecError(
            f"got the cost {table[wrong_class, wrong_class]:g} of predicting class number {wrong_class} for its own "
            "rows with the multiclass_hinge loss; the diagonal of the costs must be 0"
        )
    return tuple(tuple(float(cost) for cost in row) for row in table)


def _simplex(v: Array) -> Array:
    """Return the nearest points of the simplex to the rows of `v` (m, c) (Duchi et al., ICML 2008)."""
    xp = namespace_of(v)
    v = v - v.max(axis=1, keepdims=True)  # of the same projection, which is then exact near the largest
    down = -xp.sort(-v, axis=1)
    excess = (xp.cumsum(down, axis=1) - 1) / xp.arange(1, v.shape[1] + 1)
    last = (down > excess).sum(axis=1) - 1
    return xp.maximum(v - excess[xp.arange(v.shape[0]), last][:, None], 0)
