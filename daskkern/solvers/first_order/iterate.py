"""Scaled representation ``scale * v`` of iterates, and their mean, at the cost of the changed coefficients.

The ridge penalty shrinks all coefficients by one factor: that is one number here, not a pass over them. The weighted
mean of the iterates needs no pass, either. With ``v_t = v_T - sum_(j >= t) d_j``, d_j what step j adds to v,

    sum_t omega_t s_t v_t = S_T v_T - sum_j S_j d_j ,   S_j = sum_(t <= j) omega_t s_t ,

so that a step adds ``S d`` to one more array, at the places where it adds d to v.

References
----------
Bottou, "Stochastic gradient descent tricks", 2012; Xu, "Towards optimal one pass large scale learning with averaged
stochastic gradient descent", 2011; Lacoste-Julien, Schmidt and Bach, 2012 (weights that grow with t).
"""

from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.namespace import namespace_of
from daskkern.errors import SpecError
from daskkern.solvers.problem import ColumnProblem
from daskkern.solvers.snapshot import Shard, Snapshot

WEIGHTS = ("uniform", "linear")
_ALL = slice(None)
_LEAST_SCALE = 0.5
"""Least scale; below it the scale is multiplied in: the two terms of a mean grow like 1 / scale, and cancel."""


@dataclass(frozen=True)
class Averaging:
    """The averaged iterates: those from step `start` on, with weights 1, or ("linear") proportional to the step."""

    start: int
    weights: str = "uniform"

    @classmethod
    def of_share(cls, share: float, weights: str, n_steps: int, known: int | None = None) -> "Averaging":
        """Return the averaging of the last `share` of a run of `n_steps`, or of the steps from `known` on.

        A share of 0 averages nothing.
        """
        start = round(n_steps * (1 - share)) if share else n_steps + 1
        start = start if known is None else known
        return cls(max(start, 1), weights)

    def weight(self, step: int) -> float:
        """Return the weight of the iterate after step number `step`, from 1."""
        if step < self.start:
            return 0.0
        return 1.0 if self.weights == "uniform" else float(step - self.start + 1)


def check_averaging(share: float, weights: str, solver: str) -> None:
    """Raise SpecError for settings that are not valid."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 <= share <= 1:
        raise SpecError(f"got averaging={share!r} for {solver}; give a share between 0 and 1")
    if weights not in WEIGHTS:
        raise SpecError(f"got average_weights={weights!r} for {solver}; choose one of {', '.join(WEIGHTS)}")


@dataclass(frozen=True, eq=False)
class Iterate:
    """Coefficients ``scale * v`` (p_r, c), and the mean of earlier ones.

    The arrays are written in place: only the latest iterate of a run may be used.

    Attributes
    ----------
    v : (p_r, c) array
    averaging : Averaging
    scale : float
    step : int
        Steps so far.
    total, lag : (p_r, c) arrays or None
        The sum of the weighted iterates up to the last fold, and ``sum_j S_j d_j`` since; None before the first.
    since, weight : float
        S since the last fold, and the sum of all weights.
    begun : int or None
        The step at which the mean of an earlier run with another end began, where it differs from this run's: that
        mean is used until the next step, which starts a new one.
    """

    v: Array
    averaging: Averaging
    scale: float = 1.0
    step: int = 0
    total: Array | None = None
    lag: Array | None = None
    since: float = 0.0
    weight: float = 0.0
    begun: int | None = None

    @classmethod
    def zero(cls, problem: ColumnProblem, averaging: Averaging) -> "Iterate":
        """Return the iterate 0 of the rank's columns."""
        shape = (problem.part.columns.ids.size, problem.n_outputs)
        return cls(problem.part.namespace.zeros(shape, problem.dtype), averaging)

    def shrink(self, factor: float) -> "Iterate":
        """Return ``factor`` times the iterate. A factor of 0 is one."""
        scale = self.scale * factor
        return replace(self, scale=scale) if scale >= _LEAST_SCALE else replace(self, scale=scale).fold()

    def project(self, factors: HostArray) -> "Iterate":
        """Return the iterate with its outputs multiplied by `factors` (c,). A pass over the coefficients."""
        run = self.fold()
        run.v[...] *= namespace_of(run.v).asarray(factors)
        return run

    def add(self, where: IntArray | slice, delta: Array, outputs: Array | slice = _ALL) -> "Iterate":
        """Return the iterate with `delta` added at the columns `where` of these outputs, each of which is distinct."""
        if not isinstance(where, slice) and not isinstance(outputs, slice):
            where = where[:, None]
        delta = delta * (1 / self.scale)
        self.v[where, outputs] += delta
        if self.lag is not None and self.since:
            self.lag[where, outputs] += self.since * delta
        return self

    def passed(self) -> "Iterate":
        """Return the iterate after its step is finished, added to the mean."""
        if self.begun is not None:
            return replace(self, total=None, lag=None, since=0.0, weight=0.0, begun=None).passed()
        step = self.step + 1
        weight = self.averaging.weight(step)
        if not weight:
            return replace(self, step=step)
        run = replace(self, step=step, since=self.since + weight * self.scale, weight=self.weight + weight)
        return run if run.lag is not None else replace(run, total=self.v * 0, lag=self.v * 0)

    def fold(self) -> "Iterate":
        """Return the same iterate with scale 1, and a mean whose terms do not cancel. A pass over the coefficients."""
        if self.total is not None and self.lag is not None:
            self.total[...] += self.since * self.v - self.lag
            self.lag[...] = 0
        if self.scale != 1.0:
            self.v[...] *= self.scale
        return replace(self, scale=1.0, since=0.0)

    def last(self, where: IntArray | slice = _ALL) -> Array:
        """Return the coefficients of the columns `where`, a copy."""
        return self.v[where] * self.scale

    def mean(self, where: IntArray | slice = _ALL) -> Array:
        """Return the mean of the iterates at the columns `where`, a copy; the last one before averaging has begun."""
        if self.total is None or self.lag is None:
            return self.last(where)
        return (self.total[where] + (self.since * self.v[where] - self.lag[where])) * (1 / self.weight)

    def shards(self, ids: IntArray, prefix: str = "") -> dict[str, Shard]:
        """Return the arrays, whose rows are numbered by `ids`, for a snapshot, under names with `prefix`."""
        arrays = {"v": self.v, "total": self.total, "lag": self.lag}
        return {prefix + name: Shard(ids, array) for name, array in arrays.items() if array is not None}

    def numbers(self) -> dict[str, float]:
        """Return the numbers, for a snapshot."""
        names = ("scale", "step", "since", "weight")
        start = self.averaging.start if self.begun is None else self.begun
        return {name: getattr(self, name) for name in names} | {"averaged_from": start}

    def restored(self, saved: Snapshot, ids: IntArray, xp: ModuleType, prefix: str = "") -> "Iterate":
        """Return the iterate of a snapshot. A mean that began at another step ends with the next step."""
        numbers = saved.numbers
        run = replace(
            self, v=xp.asarray(saved.rows(prefix + "v", ids)), scale=float(numbers["scale"]), step=int(numbers["step"])
        )
        if prefix + "total" not in saved.shards:
            return run
        begun = int(numbers["averaged_from"])
        return replace(
            run,
            begun=None if begun == self.averaging.start else begun,
            total=xp.asarray(saved.rows(prefix + "total", ids)),
            lag=xp.asarray(saved.rows(prefix + "lag", ids)),
            since=float(numbers["since"]),
            weight=float(numbers["weight"]),
        )
