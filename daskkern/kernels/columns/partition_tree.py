"""A binary tree that partitions the space of rows: each inner node cuts it with a hyperplane."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.namespace import to_host
from daskkern.errors import SpecError
from daskkern.kernels.rows import module_of


@dataclass(frozen=True, eq=False)
class PartitionTree:
    """Cuts ``t . v_j <= c_j`` of rows t, the first one at the root.

    Attributes
    ----------
    directions : (k, d) float32 array
        v above.
    thresholds : (k,) float64 array
        c above.
    children : (k, 2) int64 array
        What follows where the cut holds, and where it does not: the number of another cut, or ``-1 - l`` for leaf
        number l.
    """

    directions: FloatArray
    thresholds: FloatArray
    children: IntArray

    def __post_init__(self) -> None:
        directions = np.asarray(self.directions, np.float32)
        thresholds = np.asarray(self.thresholds, np.float64)
        children = np.asarray(self.children, np.int64)
        k = len(thresholds)
        if k == 0:
            directions, children = directions.reshape(0, 0), children.reshape(0, 2)
        shapes = directions.ndim == 2 and thresholds.shape == (k,) and children.shape == (k, 2)
        if not shapes or len(directions) != k or not _is_tree(children):
            raise SpecError(f"got {k} cuts, which are not a binary tree with one direction each")
        if not (np.isfinite(directions).all() and np.isfinite(thresholds).all()):
            raise SpecError("got a partition tree with a direction or a threshold that is not finite")
        for name, value in (("directions", directions), ("thresholds", thresholds), ("children", children)):
            object.__setattr__(self, name, value)

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.thresholds) + 1

    def leaves(self, rows: Array) -> IntArray:
        """Return the number of the leaf (m,) that each row lies in. Rows are dense or CSR, (m, d), on any device.

        A row has the same leaf whichever rows it comes with, but for one at a threshold up to rounding.
        """
        xp = module_of(rows)
        found = np.zeros(rows.shape[0], np.int64)
        waiting: list[tuple[int, IntArray]] = [(0 if len(self.thresholds) else -1, np.arange(rows.shape[0]))]
        while waiting:
            node, at = waiting.pop()
            if node < 0:
                found[at] = -1 - node
            elif at.size:
                v = xp.asarray(self.directions[node])
                below = to_host(rows[xp.asarray(at)] @ v <= self.thresholds[node])
                left, right = self.children[node].tolist()
                waiting += [(left, at[below]), (right, at[~below])]
        return found

    def spec(self) -> Mapping[str, Any]:
        """Return the tree as JSON values; ``PartitionTree(**spec)`` is the inverse."""
        return {
            "directions": [[float(f"{value:.9g}") for value in row] for row in self.directions.tolist()],
            "thresholds": self.thresholds.tolist(),
            "children": self.children.tolist(),
        }


def _is_tree(children: IntArray) -> bool:
    """Return whether each cut but the first, and each leaf, follows once, and cuts follow earlier ones."""
    k = len(children)
    values = children.ravel()
    cuts, leaves = np.sort(values[values >= 0]), np.sort(-1 - values[values < 0])
    ordered = bool((children > np.arange(k)[:, None])[children >= 0].all())
    return ordered and np.array_equal(cuts, np.arange(1, k)) and np.array_equal(leaves, np.arange(k + 1 if k else 0))
