"""A sample of training rows in memory, on which the final model is measured."""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.rows.csr import FeatureRows, stack_rows
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.training.feeding.targets import Targets


@dataclass(frozen=True, eq=False)
class HeldSample:
    """A sample of training rows on which the final model is measured.

    Attributes
    ----------
    X : (k, d) array, dense or CSR
    y : (k, c) array
        Encoded targets.
    weight : (k,) float64
        Weights of the rows in the mean over all training rows.
    labelled : bool
        Whether the targets are classes.
    positions : (r,) int64
        Numbers of the first r rows, which were drawn at random, ascending; the other rows are included for certain.
    n_rows : int
        Number of all training rows.
    targets : Targets
        The encoding of `y`.
    """

    X: FeatureRows
    y: HostArray
    weight: FloatArray
    labelled: bool
    positions: IntArray
    n_rows: int
    targets: Targets

    @classmethod
    def of(cls, rows: Rows, X: FeatureRows, positions: IntArray, targets: Targets) -> "HeldSample":
        """Return the sample of the rows at `positions` (ascending), whose features are `X`."""
        block = take(rows, positions, Fields.y | Fields.weight)
        assert block.y is not None
        weight = targets.weight(block)
        counts = np.ones(len(positions)) if weight is None else weight[:, 0].astype(np.float64)
        return cls(X, targets.encode(block.y), counts, targets.n_classes > 0, positions, rows.n_rows, targets)

    def with_offset(self, targets: Targets) -> "HeldSample":
        """Return the sample in the encoding of `targets`, which are those of it with an offset."""
        y = self.y if targets.offset is None else (self.y - targets.offset).astype(self.y.dtype)
        return replace(self, y=y, targets=targets)

    @property
    def n_random(self) -> int:
        """Number of rows drawn at random; 0 when the sample is all rows."""
        return 0 if len(self.y) == self.n_rows else len(self.positions)

    def joined(self, rows: Rows, extremes: IntArray) -> "HeldSample":
        """Return the sample with the rows numbered `extremes` added for certain, each with its own weight."""
        if not extremes.size or len(self.y) == self.n_rows:
            return self
        block = take(rows, extremes, Fields.X)
        assert block.X is not None
        certain = HeldSample.of(rows, block.X, extremes, self.targets)
        kept = np.flatnonzero(~np.isin(self.positions, extremes))
        size = kept.size + extremes.size
        each = (self.n_rows - extremes.size) / max(kept.size, 1)
        counts = np.concatenate([self.weight[kept] * each, certain.weight]) * (size / self.n_rows)
        X = stack_rows([self.X[kept], block.X]) if is_sparse(block.X) else np.concatenate([self.X[kept], block.X])
        y = np.concatenate([self.y[kept], certain.y])
        return HeldSample(X, y, counts, self.labelled, self.positions[kept], self.n_rows, self.targets)
