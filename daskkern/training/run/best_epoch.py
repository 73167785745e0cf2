"""The model of the best epoch so far, kept in addition to the current one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.backend.namespace import is_sparse, to_device
from daskkern.events import EpochFinished
from daskkern.solvers import AnyProblem, Shard, Snapshot

Model = tuple[Array, HostArray | None]
"""A rank's coefficients (p_r, c), and the points of its columns where the solver learns them."""

_BEST, _BEFORE = "best", "epoch_before"
_POINTS = "_points"  # suffix of the points of a kept model, where the solver learns them


class BestEpoch:
    """Keeps the model at the end of the epoch with the highest score, on every rank."""

    names: ClassVar[tuple[str, ...]] = (_BEST,)
    """Names of the models that may be kept."""

    def __init__(self) -> None:
        self.best: Model | None = None
        self._score, self._epoch = -np.inf, 0

    @property
    def best_epoch(self) -> int:
        """The epoch of the best model, from 1; 0 before the first."""
        return self._epoch

    @property
    def mark(self) -> tuple[float, int] | None:
        """The best score so far and its epoch; None before the first."""
        return None if self.best is None else (float(self._score), self._epoch)

    @property
    def models(self) -> Mapping[str, Model]:
        """The models that are kept, by their names in a snapshot."""
        return {} if self.best is None else {_BEST: self.best}

    def restore(self, models: Mapping[str, Model], mark: tuple[float, int] | None) -> None:
        """Continue from saved :attr:`models` and :attr:`mark`."""
        self.best = models.get(_BEST)
        self._score, self._epoch = (-np.inf, 0) if mark is None else mark

    def meet(self, score: float, epoch: int, model: Model, tol: float = 0.0) -> None:
        """Keep the model of an epoch whose score is above the best by more than `tol`."""
        if self.best is None or score > self._score + tol:
            self.best, self._score, self._epoch = model, score, epoch


class LeastLoss(BestEpoch):
    """Keeps the model with the least training loss, as far as it is known without another pass over the rows.

    The losses of an epoch are computed before its steps, so they approximate the loss of the model that it began with.
    So a model is a candidate once the epoch after it has ended, and two are kept: the best one, and that of the last
    epoch. States of solvers are immutable: kept models are references to arrays of earlier states, at most two more of
    size (p_r, c).
    """

    names: ClassVar[tuple[str, ...]] = (_BEST, _BEFORE)

    def __init__(self) -> None:
        super().__init__()
        self._before: Model | None = None

    @property
    def models(self) -> Mapping[str, Model]:
        return super().models if self._before is None else {**super().models, _BEFORE: self._before}

    def restore(self, models: Mapping[str, Model], mark: tuple[float, int] | None) -> None:
        super().restore(models, mark)
        self._before = models.get(_BEFORE)

    def passed(self, loss: float, epoch: int) -> None:
        """Record the mean loss of epoch number `epoch`."""
        if self._before is not None:
            self.meet(-loss, epoch - 1, self._before)
        self._before = None  # freed before the next one is made

    def begin(self, model: Callable[[], Model]) -> None:
        """Record the model that the next epoch begins with."""
        self._before = model()


@dataclass(frozen=True, eq=False)
class Ended:
    """The result of the epochs: this rank's coefficients (p_r, c), epochs begun, the reason, and the history."""

    coef: Array
    epochs: int
    reason: str
    history: tuple[EpochFinished, ...] = ()
    points: HostArray | None = None
    """The points of its columns, where the solver learns them."""
    best_epoch: int = 0
    """The epoch of the coefficients, where it was chosen; else 0."""
    offset: FloatArray | None = None
    """The constants (c,) that are added to the scores, where the solver finds them."""
    earlier: BestEpoch | None = None
    """The model of least training loss among those that an epoch began with, where it is kept."""
    bound: float = np.inf
    """By how much the objective is above its least value at most, but for the rounding of scores."""


def kept_models(best: BestEpoch, saved: Snapshot, ids: IntArray, drawn: bool, xp: ModuleType) -> dict[str, Model]:
    """Return a rank's part of the models that `best` keeps, from a snapshot with them.

    `ids` are the rank's columns; new ones have coefficients of 0 where columns are `drawn` with each step.
    """
    take = saved.rows_or_zeros if drawn else saved.rows
    names = [name for name in best.names if name in saved.shards]
    return {name: (xp.asarray(take(name, ids)), saved.whole.get(name + _POINTS)) for name in names}


def with_kept(snapshot: Snapshot, best: BestEpoch, ids: IntArray) -> Snapshot:
    """Return the snapshot of the columns `ids` with the models that `best` keeps."""
    shards, arrays = dict(snapshot.shards), dict(snapshot.whole)
    for name, (coef, points) in best.models.items():
        shards[name] = Shard(ids, coef)
        if points is not None:
            arrays[name + _POINTS] = dense(points)
    return Snapshot(shards, arrays, snapshot.numbers)


def with_points(problem: AnyProblem, points: HostArray | None, xp: ModuleType) -> AnyProblem:
    """Return the problem whose columns have these points; None for its own."""
    return problem if points is None else replace(problem, part=problem.part.moved(to_device(points, xp)))


def dense(points: Any) -> HostArray:
    """Return points (p, d), dense or CSR, as a dense array."""
    found: HostArray = points.toarray() if is_sparse(points) else points
    return found


def used_columns(coef: HostArray) -> IntArray:
    """Return the columns with a coefficient other than 0 among those of `coef` (p, c), or the first one."""
    used = np.flatnonzero(coef.any(axis=1))
    return used if used.size else np.zeros(1, np.int64)
