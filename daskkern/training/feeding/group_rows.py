"""The rows of each batch that a rank uses where groups of ranks divide the batches."""

from dataclasses import dataclass, replace

from daskkern.arrays import Array, HostArray
from daskkern.solvers import Batch, WholeBatch


@dataclass(frozen=True)
class GroupRows:
    """One of `count` parts of about equal length of every batch: that number `group`, from 0.

    With `whole`, steps need the features of the rows of all groups as well.
    """

    group: int
    count: int
    whole: bool

    def part(self, m: int) -> slice:
        """Return the rows of this group in a batch of m rows."""
        return slice(m * self.group // self.count, m * (self.group + 1) // self.count)

    def needed(self, X: Array | None, m: int) -> Array | None:
        """Return those of the rows (m, d) that steps need."""
        return X if X is None or self.whole else X[self.part(m)]

    def batch(self, X: Array | None, y: Array, weight: Array | None, positions: HostArray, excess: float) -> Batch:
        """Return the batch of this group. X is what is :meth:`needed`, y and weight are its own, positions are all."""
        m, part = len(positions), self.part(len(positions))
        whole = WholeBatch(positions)
        own = Batch(X, y, weight, positions[part], None, last=False, total_size=m, excess=excess, whole=whole)
        return self.with_rows(own, X)

    def with_rows(self, batch: Batch, X: Array | None) -> Batch:
        """Return a batch of this group with other features: what is :meth:`needed` of them."""
        if X is None or not self.whole:
            return replace(batch, X=X)
        assert batch.whole is not None
        return replace(batch, X=X[self.part(batch.size)], whole=replace(batch.whole, X=X))
