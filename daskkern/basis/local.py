"""All rows as centres of a kernel that a tree partitions: each row meets only the centres of its own leaf."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis.base import BasisSpec, ColumnRequest, ColumnSet
from daskkern.basis.partition import MOST_SAMPLED, partition_tree, sample_size
from daskkern.data.rows.rows import Fields, Rows
from daskkern.data.rows.samples import features_at
from daskkern.errors import SpecError
from daskkern.kernels import Partitioned
from daskkern.landmarks import LandmarkSet

_SAMPLE = 91
_LEAST = 10
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
    """

    name: ClassVar[str] = "local rows"
    all_rows: ClassVar[bool] = True
    of_one_fit: ClassVar[bool] = True
    has_blocks: ClassVar[bool] = False

    leaf_rows: int = 2000

    def __post_init__(self) -> None:
        whole = isinstance(self.leaf_rows, int | np.integer) and not isinstance(self.leaf_rows, bool)
        if not whole or self.leaf_rows < _LEAST:
            raise SpecError(f"got leaf_rows={self.leaf_rows!r}; expected a whole number of at least {_LEAST}")

    @property
    def leaf_size(self) -> int | None:
        return int(self.leaf_rows)

    def most_columns(self, n_rows: int, n_features: int, n_steps: Callable[[], int]) -> int:
        return n_rows

    def columns(self, rows: Rows, request: ColumnRequest) -> ColumnSet:
        n, kernel = rows.n_rows, request.kernel
        size = min(sample_size(n, self.leaf_rows), max(MOST_SAMPLED // max(1, rows.n_features), self.leaf_rows))
        drawn = np.sort(generator(request.seed, _SAMPLE).permutation(n)[:size]).astype(np.int64)
        sample = kernel.transform(features_at(rows, drawn))
        tree = partition_tree(sample, self.leaf_rows * len(drawn) / n, request.seed)
        partitioned = Partitioned(kernel, tree)
        none = np.empty((0, rows.n_features), request.dtype)
        return ColumnSet(partitioned, LandmarkSet(none, np.arange(n), None), _leaves(rows, partitioned))


def _leaves(rows: Rows, kernel: Partitioned) -> IntArray:
    """Return the leaf of every row, (n,), from one pass over them."""
    found = np.empty(rows.n_rows, np.int64)
    for part in slices(rows.n_rows, _CHUNKS * rows.chunk_rows):
        X: HostArray | None = rows.read(part.start, part.stop, Fields.X).X
        assert X is not None
        found[part] = kernel.leaves(X)
    return found
