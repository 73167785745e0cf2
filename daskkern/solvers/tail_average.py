"""The mean of the last iterates of a run."""

from dataclasses import dataclass, replace
from types import ModuleType

from daskkern.arrays import Array, IntArray
from daskkern.solvers.snapshot import Shard, Snapshot


@dataclass(frozen=True)
class TailAverage:
    """The running mean of the iterates from step `start` on; before that step, the iterate itself.

    Averaging the last part of a run removes most of the noise of stochastic gradients (Ruppert; Polyak and
    Juditsky, SIAM J. Control Optim. 1992).
    """

    start: int
    count: int = 0
    mean: Array | None = None

    def add(self, step: int, iterate: Array) -> "TailAverage":
        """Return the average with `iterate`, the one after step number `step`."""
        if step < self.start:
            return self
        if self.mean is None:
            return TailAverage(self.start, 1, iterate)
        count = self.count + 1
        return TailAverage(self.start, count, self.mean + (iterate - self.mean) * (1.0 / count))

    def value(self, iterate: Array) -> Array:
        """Return the mean, or `iterate` when averaging has not begun."""
        return iterate if self.mean is None else self.mean

    def shards(self, ids: IntArray) -> dict[str, Shard]:
        """Return the mean, whose rows are numbered by `ids`, for a snapshot; nothing before averaging has begun."""
        return {} if self.mean is None else {"mean": Shard(ids, self.mean)}

    def numbers(self) -> dict[str, float]:
        """Return the counters of the mean, for a snapshot."""
        return {"averaged": self.count, "averaged_from": self.start}

    def restored(self, saved: Snapshot, ids: IntArray, xp: ModuleType) -> "TailAverage":
        """Return the average of a snapshot, or an empty one if the snapshot's began at another step than this run's."""
        count = int(saved.numbers["averaged"]) if saved.numbers["averaged_from"] == self.start else 0
        return replace(self, count=count, mean=xp.asarray(saved.rows("mean", ids)) if count else None)
