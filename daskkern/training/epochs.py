"""The epochs of one rank: from the first step, or from the last commit, to the end or to the next change of ranks."""

import math
import time
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.namespace import is_sparse, to_device
from daskkern.backend.timed import TimedCommunicator
from daskkern.basis import DoublyStochastic
from daskkern.cluster.desk import Desk
from daskkern.errors import DivergenceError
from daskkern.events import BatchFinished, EpochFinished, EpochTimed, FitResumed, OptimalityMeasured
from daskkern.solvers import Problem, Shard, Snapshot, Solver
from daskkern.training.commits import Commit, Position
from daskkern.training.feed import Feed, close
from daskkern.training.keeper import Keeper
from daskkern.training.rank_state import RankReporter
from daskkern.training.row_feed import RowFeed
from daskkern.training.settings import FitSettings
from daskkern.training.validation import Patience, Validation, Watched
from daskkern.training.wishes import Wishes, agree

REGROUPING = "regrouping"
"""The reason of epochs that have not ended: a gang of other ranks goes on from the commit."""

_INTERRUPTED, _LATE = "interrupted", "max_seconds"
STOPPED = (_INTERRUPTED, _LATE)
"""Reasons of epochs that were ended before their time, with the model so far."""

_ASK_EVERY = 8
_BEST = "best"  # the coefficients with the best validation score, in a snapshot
_BEST_POINTS = "best_points"  # and their points, where the solver finds them itself


@dataclass(frozen=True, eq=False)
class Ended:
    """How the epochs ended: this rank's coefficients (p_r, c), epochs begun, why, and the whole epochs."""

    coef: Array
    epochs: int
    reason: str
    history: tuple[EpochFinished, ...] = ()
    points: HostArray | None = None
    """Its columns' points, where the solver finds them itself."""
    best_epoch: int = 0
    """The epoch whose coefficients these are, where early stopping chose one; else 0."""


@dataclass(eq=False)
class Epochs:
    """Steps a solver through its epochs, and commits between its windows.

    Every rank makes one and calls :meth:`run`. `desk` says what is wished, `keeper` keeps commits.
    """

    comm: TimedCommunicator
    settings: FitSettings
    problem: Problem
    feed: Feed | RowFeed
    validation: Validation | None
    desk: Desk
    keeper: Keeper
    xp: ModuleType
    report: RankReporter
    limit_s: float = math.inf
    """Seconds that the ranks may take, all gangs of the run together."""
    started: float = field(default_factory=time.perf_counter)
    patience: Patience | None = None
    _best_points: Any = None
    _wished: Wishes = field(default_factory=Wishes)
    _regroup: bool = False
    _taken_before: float = 0.0
    _epoch_at: float = 0.0
    """What the run had taken when this epoch began, as the ranks have agreed."""
    _whole: tuple[Any, Position] = field(init=False)
    """The last state between windows, and where that was."""

    def run(self, saved: Commit | None) -> Ended:
        """Run from the beginning or from a commit to the end.

        Raises
        ------
        DivergenceError
            When the loss is no number any more.
        """
        early = self.settings.early_stopping
        if early is not None and self.validation is not None:
            self.patience = Patience(early.patience, early.tol, early.watches_loss(self.settings.loss))
        self._whole = state, position = self._begin(saved)
        self.comm.begin()
        while not position.reason:
            state, position = self._epoch(state, position)
            if self._wished.stop or self._regroup:
                break
        if self._wished.stop or position.reason:
            self._commit()
        stopped = _LATE if self._wished.late else _INTERRUPTED
        reason = stopped if self._wished.stop else position.reason or REGROUPING
        begun = position.epoch - 1 if position.reason else position.epoch
        coef, points = self._result(state)
        best_epoch = 0 if self.patience is None else self.patience.best_epoch
        return Ended(coef, begun, reason, position.epochs, points, best_epoch)

    @property
    def _solver(self) -> Solver[Any]:
        return self.settings.solver

    def _begin(self, saved: Commit | None) -> tuple[Any, Position]:
        if saved is None:
            return self._solver.init(self.problem, self.comm), Position()
        position, ids = saved.position, self.problem.part.columns.ids
        self._taken_before, self._epoch_at = position.seconds, position.seconds - position.epoch_seconds
        if self.patience is not None and position.best is not None:
            grows = isinstance(self.settings.basis, DoublyStochastic)
            best = saved.snapshot.rows_or_zeros(_BEST, ids) if grows else saved.snapshot.rows(_BEST, ids)
            self.patience.restore(self.xp.asarray(best), *position.best)
            self._best_points = saved.snapshot.whole.get(_BEST_POINTS)
        if position.reason in ("", "max_epochs"):  # more epochs may be wanted than that run had, or fewer
            over = position.epoch > self.settings.max_epochs
            position = replace(position, reason="max_epochs" if over else "")
        self.desk.emit(FitResumed(position.epoch, position.batch, self.comm.size))
        return self._solver.restore(self.problem, saved.snapshot), position

    def _epoch(self, state: Any, position: Position) -> tuple[Any, Position]:
        """Run one epoch from where `position` is in it, to the start of the next or to where a wish was granted."""
        begun, sent = time.perf_counter(), self.comm.bytes_sent
        before = position.epoch_seconds
        state, position = self._batches(state, position, begun)
        if self._regroup:
            return state, position
        watched = Watched(float("nan"), float("nan"))
        if self.validation is not None and not self._wished.stop:
            coef, points = self._model(state)
            watched = self.validation.score(with_points(self.problem, points, self.xp), coef, self.comm, self.xp)
        epoch = EpochFinished(
            position.epoch,
            position.loss / max(position.seen, 1),
            before + time.perf_counter() - begun,
            watched.loss,
            watched.score,
            self.comm.bytes_sent - sent,
        )
        if position.seen:
            self.desk.emit(epoch)
            self._tell_times(position.epoch)
        if self._wished.stop:
            return state, position
        self._tell_optimality(position.epoch, state)
        reason = "max_epochs" if position.epoch >= self.settings.max_epochs else ""
        if self._solver.done(self.problem, state):
            reason = "converged"
        if self.patience is not None:
            if self.patience.exhausted(watched, position.epoch, coef):
                reason = "early_stopping"
            self._best_points = points if self.patience.best is coef else self._best_points
        position = Position(
            steps=position.steps,
            epoch=position.epoch + 1,
            epochs=(*position.epochs, epoch),
            best=None if self.patience is None else self.patience.mark,
            reason=reason,
        )
        self._passed(state, position)
        return state, position

    def _tell_optimality(self, epoch: int, state: Any) -> None:
        certificate = self._solver.certificate(self.problem, state)
        if certificate is not None:
            told = (certificate.name, certificate.value, certificate.tol, certificate.note)
            self.desk.emit(OptimalityMeasured(epoch, *told))

    def _tell_times(self, epoch: int) -> None:
        """Tell where the time went since this was told last. A collective."""
        t = self.comm.times()
        seconds = t.computing + t.reading + t.checkpointing + t.waiting + t.exchanging
        ways = ", ".join(sorted(self.comm.ways))
        self.desk.emit(EpochTimed(epoch, seconds, **asdict(t), ways=ways))

    def _batches(self, state: Any, position: Position, begun: float) -> tuple[Any, Position]:
        n_batches, earlier = self.feed.plan.n_batches, position.seen
        n_batches *= self._solver.sweeps(position.epoch, self.settings.loss)
        stream = self.feed.batches(position.epoch, position.batch)
        try:
            for batch in stream:
                if position.batch % _ASK_EVERY == 0:
                    self.keeper.tell()
                    self._wished = agree(self.comm, self.desk, self.keeper, self._taken(), self.limit_s)
                    self._epoch_at = self._epoch_at if position.batch else self._wished.seconds
                if self._wished.stop:
                    return state, position
                state, loss = self._solver.step(self.problem, state, batch, self.comm)
                position = replace(
                    position,
                    steps=position.steps + 1,
                    batch=position.batch + 1,
                    loss=position.loss + loss,
                    seen=position.seen + batch.size,
                )
                if not np.isfinite(loss):
                    raise DivergenceError(
                        f"the loss became {loss} in epoch {position.epoch}, batch {position.batch}: the iteration "
                        "diverged; take a smaller batch_size, a larger kernel length scale or alpha, or scaled features"
                    )
                del batch  # its block goes before the next one is made
                rate = (position.seen - earlier) / (time.perf_counter() - begun)
                mean = position.loss / position.seen
                self.desk.emit(BatchFinished(position.epoch, position.batch, n_batches, mean, rate))
                self.report()
                if self._passed(state, position):
                    return state, position
        finally:
            close(stream)
        return state, position

    def _passed(self, state: Any, position: Position) -> bool:
        """Note a state between windows, commit it when that is due, and return whether the ranks end here."""
        if self._solver.snapshot(self.problem, state) is None:
            return False
        self._whole = state, position
        if not self._wished.commit:
            return False
        self._commit()
        self._wished = replace(self._wished, commit=False)
        self._regroup = self._wished.regroup
        return self._regroup

    def _taken(self) -> float:
        """Return the seconds that this gang and those before it took, without what was lost between them."""
        return self._taken_before + time.perf_counter() - self.started

    def _commit(self) -> None:
        """Keep the last state between windows. A collective."""
        if self.keeper.wanted and self._whole[1].steps:
            with self.comm.checkpointing():
                self._keep()

    def _keep(self) -> None:
        begun = time.perf_counter()
        state, position = self._whole
        seconds = self._wished.seconds
        into_epoch = max(0.0, seconds - self._epoch_at) if position.batch else 0.0
        position = replace(position, seconds=seconds, epoch_seconds=into_epoch)
        snapshot = self._solver.snapshot(self.problem, state)
        assert snapshot is not None
        shards = dict(snapshot.shards)
        if self.patience is not None and self.patience.best is not None:
            shards[_BEST] = Shard(self.problem.part.columns.ids, self.patience.best)
        arrays = dict(snapshot.whole)
        if self._best_points is not None:
            arrays[_BEST_POINTS] = self._best_points.toarray() if is_sparse(self._best_points) else self._best_points
        whole = Snapshot(shards, arrays, snapshot.numbers).gather(self.comm)
        last = self._wished.stop or self._wished.regroup or bool(position.reason)
        self.keeper.keep(Commit(whole, position), time.perf_counter() - begun, last=last)

    def _model(self, state: Any) -> tuple[Array, HostArray | None]:
        """Return this rank's coefficients of the model that `state` stands for, and points that are not the problem's.

        A collective.
        """
        return self._solver.finish(self.problem, state, self.comm), self._solver.points(self.problem, state)

    def _result(self, state: Any) -> tuple[Array, HostArray | None]:
        if self.patience is not None and self.patience.best is not None:
            return self.patience.best, self._best_points
        return self._model(state)


def with_points(problem: Problem, points: HostArray | None, xp: ModuleType) -> Problem:
    """Return the problem whose columns have these points; None for its own."""
    return problem if points is None else replace(problem, part=problem.part.moved(to_device(points, xp)))
