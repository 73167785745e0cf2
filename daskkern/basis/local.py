"""All rows as centres of a kernel that is zero between different leaves of a partition tree."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis.base import BasisSpec, ColumnRequest, ColumnSet
from daskkern.basis.partition import MOST_SAMPLED, partition_tree, sample_size
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.rows.samples import features_at
from daskkern.errors import SpecError
from daskkern.kernels import Partitioned, TreeAverage
from daskkern.landmarks import LandmarkSet

_SAMPLE = 91
_LEAST = 10
_MOST_TREES = 100
_CHUNKS = 16


@dataclass(frozen=True)
class LocalRows(BasisSpec):
    """One column a training row, of a kernel that is 0 between the leaves of a tree: a model of its own in each leaf.

    The tree halves the rows of a node at the median of their leading principal direction, in the coordinates of the
    kernel's metric: with a learned metric that is a leading direction of the average gradient outer product (Beaglehole
    et al., "xRFM", 2025). A random sample decides the cuts, so that leaves have about equally many rows.

    Parameters
    ----------
    leaf_rows : int
        Most rows of a leaf, about; 10 or more.
    n_trees : int
        Trees, 1 to 100, that differ in their cuts: the model is the mean of one in the leaves of each tree. It takes
        that many times the work and the memory, and its scores jump less at the cuts.
    """

    name: ClassVar[str] = "local rows"
    all_rows: ClassVar[bool] = True
    of_one_fit: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False

    leaf_rows: int = 2000
    n_trees: int = 1

    def __post_init__(self) -> None:
        whole = isinstance(self.leaf_rows, int | np.integer) and not isinstance(self.leaf_rows, bool)
        if not whole or self.leaf_rows < _LEAST:
            raise SpecError(f"got leaf_rows={self.leaf_rows!r}; expected a whole number of at least {_LEAST}")
        whole = isinstance(self.n_trees, int | np.integer) and not isinstance(self.n_trees, bool)
        if not whole or not 1 <= self.n_trees <= _MOST_TREES:
            raise SpecError(f"got n_trees={self.n_trees!r}; expected a whole number from 1 to {_MOST_TREES}")

    @property
    def leaf_size(self) -> int | None:
        return int(self.leaf_rows)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return n_rows * int(self.n_trees)

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        n, kernel = rows.n_rows, request.kernel
        size = min(sample_size(n, self.leaf_rows), max(MOST_SAMPLED // max(1, rows.n_features), self.leaf_rows))
        drawn = np.sort(generator(request.seed, _SAMPLE).permutation(n)[:size]).astype(np.int64)
        sample = kernel.transform(features_at(rows, drawn))
        leaf_size = self.leaf_rows * len(drawn) / n
        trees = tuple(partition_tree(sample, leaf_size, request.seed, number) for number in range(self.n_trees))
        if len(trees) == 1 or trees[0].n_leaves == 1:  # without cuts trees are equal
            return _columns(Partitioned(kernel, trees[0]), 1, rows, request)
        return _columns(TreeAverage(kernel, trees, rows.n_features), len(trees), rows, request)


def _columns(kernel: Partitioned | TreeAverage, n_trees: int, rows: Rows, request: ColumnRequest) -> ColumnSet:
    """Return all rows as columns of each tree, one tree after the other."""
    values = request.map_features or partial(_values, rows)
    leaves = values(kernel.leaves)  # (n,) or (n, T)
    none = np.empty((0, rows.n_features), request.dtype)
    indices = np.tile(np.arange(rows.n_rows), n_trees)
    return ColumnSet(kernel, LandmarkSet(none, indices, None), leaves.T.ravel())


def _values(rows: Rows, function: Callable[[HostArray], HostArray]) -> HostArray:
    """Return a function of the features of all rows, from one pass over them in this process."""
    parts = []
    for part in slices(rows.n_rows, _CHUNKS * rows.chunk_rows):
        X: HostArray | None = rows.read(part.start, part.stop, Fields.X).X
        assert X is not None
        parts.append(function(X))
    return np.concatenate(parts)
