"""The epoch loop of a rank: from the first step or a commit to the end or to the next change of ranks."""

import time
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, FloatArray, HostArray, IntArray
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import BatchFinished, EpochFinished, EpochTimed, FitResumed, OptimalityMeasured
from daskkern.solvers import AnyProblem, Shard, Snapshot, Solver
from daskkern.training.checkpoints.checkpointing import Checkpointing
from daskkern.training.checkpoints.commits import Commit, Position, holders_in_group
from daskkern.training.checkpoints.running_loss import LossReads, check_loss, is_known, of_group, with_known_loss
from daskkern.training.feeding.feed import Feed, close
from daskkern.training.feeding.row_feed import RowFeed
from daskkern.training.feeding.validation import Validation, ValidationResult
from daskkern.training.run.best_epoch import BestEpoch, LeastLoss, Model, dense, with_points
from daskkern.training.run.control_signals import ControlSignals, TimeLimit, agree
from daskkern.training.run.early_stopping import Patience
from daskkern.training.run.rank_state import RankReporter
from daskkern.training.run.settings import FitSettings

REGROUPING = "regrouping"
"""The reason of epochs that have not ended: another gang continues from the commit."""

_INTERRUPTED, _LATE = "interrupted", "max_seconds"
STOPPED = (_INTERRUPTED, _LATE)
"""Reasons of epochs that were stopped early, with the model so far."""

_POINTS = "_points"  # suffix of the points of a kept model, where the solver learns them


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


@dataclass(eq=False)
class Epochs:
    """Steps a solver through its epochs, and commits between its windows.

    Every rank makes one and calls :meth:`run`. `context` has the control signals, `checkpointing` stores commits.
    """

    comm: TimedCommunicator
    settings: FitSettings
    problem: AnyProblem
    feed: Feed | RowFeed
    validation: Validation | None
    context: RankContext
    checkpointing: Checkpointing
    xp: ModuleType
    report: RankReporter
    limit: TimeLimit = field(default_factory=TimeLimit)
    started: float = field(default_factory=time.perf_counter)
    keeps_best: bool = False
    """Whether to keep the model of the epoch with the least training loss, without early stopping."""
    _best: BestEpoch | None = None
    _signals: ControlSignals = field(default_factory=ControlSignals)
    _regroup: bool = False
    _taken_before: float = 0.0
    _epoch_at: float = 0.0
    """Seconds that the run had taken when this epoch began, as agreed by the ranks."""
    _reads: LossReads = field(init=False)
    _whole: tuple[Any, Position] = field(init=False)
    """The last state between windows, and its position."""

    def run(self, saved: Commit | None) -> Ended:
        """Run from the beginning or from a commit to the end.

        Raises
        ------
        DivergenceError
            When the loss is no longer finite.
        """
        early = self.settings.early_stopping
        if early is not None and self.validation is not None:
            self._best = Patience(early.patience, early.tol, early.watches_loss(self.settings.loss))
        elif self.keeps_best:
            self._best = LeastLoss()
        self._whole = state, position = self._begin(saved)
        self._reads = LossReads(self.checkpointing.signal_batches, self.comm.across)
        self.comm.begin()
        while not position.reason:
            state, position = self._epoch(state, position)
            if self._signals.stop or self._regroup:
                break
        if self._signals.stop or position.reason:
            self._commit()
        stopped = _LATE if self._signals.late else _INTERRUPTED
        reason = stopped if self._signals.stop else position.reason or REGROUPING
        begun = position.epoch - 1 if position.reason else position.epoch
        best, offset = self._best, self._solver.offset(self.problem, state)
        if isinstance(best, Patience) and best.best is not None:
            coef, points = best.best
            return Ended(coef, begun, reason, position.epochs, points, best.best_epoch, offset)
        coef, points = self._model(state)
        return Ended(coef, begun, reason, position.epochs, points, offset=offset, earlier=best)

    @property
    def _solver(self) -> Solver[Any]:
        return self.settings.solver

    def _begin(self, saved: Commit | None) -> tuple[Any, Position]:
        if saved is None:
            return self._solver.init(self.problem, self.comm), Position()
        position, ids = saved.position, self.problem.part.columns.ids
        self._taken_before, self._epoch_at = position.seconds, position.seconds - position.epoch_seconds
        if self._best is not None:
            self._best.restore(self._kept_models(saved.snapshot, ids), position.best)
        if position.reason in ("", "max_epochs"):  # the number of epochs may have been changed
            over = position.epoch > self.settings.max_epochs
            position = replace(position, reason="max_epochs" if over else "")
        self.context.emit(FitResumed(position.epoch, position.batch, self.comm.whole.size, self.comm.across.size))
        state = self._solver.restore(self.problem, saved.snapshot)
        if saved.position.reason and not position.reason and position.epochs:
            self._go_on_from(state)  # the last epoch then, now followed by others
        return state, position

    def _epoch(self, state: Any, position: Position) -> tuple[Any, Position]:
        """Run one epoch from `position`, to the start of the next or to a stop or regrouping."""
        begun, sent = time.perf_counter(), self.comm.bytes_sent
        before = position.epoch_seconds
        state, position = self._batches(state, position, begun)
        if self._regroup:
            return state, position
        position = self._known(position)
        watched = ValidationResult(float("nan"), float("nan"))
        if self.validation is not None and not self._signals.stop:
            coef, points = self._model(state)
            moved, offset = with_points(self.problem, points, self.xp), self._solver.offset(self.problem, state)
            watched = self.validation.score(moved, coef, self.comm, self.xp, offset)
        epoch = EpochFinished(
            position.epoch,
            position.loss / max(position.seen, 1),
            before + time.perf_counter() - begun,
            watched.loss,
            watched.score,
            self.comm.bytes_sent - sent,
        )
        if position.seen:
            self.context.emit(epoch)
            self._tell_times(position.epoch)
        if self._signals.stop:
            return state, position
        self._tell_optimality(position.epoch, state)
        reason = "max_epochs" if position.epoch >= self.settings.max_epochs else ""
        if self._solver.done(self.problem, state):
            reason = "converged"
        if isinstance(self._best, Patience):
            if self._best.exhausted(watched.loss, watched.score, position.epoch, (coef, points)):
                reason = "early_stopping"
        elif isinstance(self._best, LeastLoss) and position.seen:
            loss = float(self.comm.whole.broadcast(np.array([epoch.loss]))[0])  # all ranks keep the same epoch
            self._best.passed(loss, position.epoch)
            if not reason:
                self._go_on_from(state)
        position = Position(
            steps=position.steps,
            epoch=position.epoch + 1,
            epochs=(*position.epochs, epoch),
            best=None if self._best is None else self._best.mark,
            reason=reason,
        )
        self._passed(state, position)
        return state, position

    def _go_on_from(self, state: Any) -> None:
        """Record the model that another epoch begins with, where it may be chosen. A collective."""
        if isinstance(self._best, LeastLoss):
            self._best.begin(lambda: self._model(state))

    def _kept_models(self, saved: Snapshot, ids: IntArray) -> dict[str, Model]:
        """Return this rank's part of the models that a snapshot has in addition to the state."""
        assert self._best is not None
        take = saved.rows_or_zeros if self.settings.basis.drawn_per_step else saved.rows
        names = [name for name in self._best.names if name in saved.shards]
        return {name: (self.xp.asarray(take(name, ids)), saved.whole.get(name + _POINTS)) for name in names}

    def _tell_optimality(self, epoch: int, state: Any) -> None:
        certificate = self._solver.certificate(self.problem, state)
        if certificate is not None:
            reported = (certificate.name, certificate.value, certificate.tol, certificate.note)
            self.context.emit(OptimalityMeasured(epoch, *reported))

    def _tell_times(self, epoch: int) -> None:
        """Emit the shares of time since the last call. A collective."""
        t = self.comm.times()
        seconds = t.computing + t.reading + t.checkpointing + t.waiting + t.exchanging
        ways = ", ".join(sorted(self.comm.ways))
        self.context.emit(EpochTimed(epoch, seconds, **asdict(t), ways=ways))

    def _batches(self, state: Any, position: Position, begun: float) -> tuple[Any, Position]:
        n_batches, earlier = self.feed.plan.n_batches, position.seen
        n_batches *= self._solver.sweeps(position.epoch, self.settings.loss)
        stream = self.feed.batches(position.epoch, position.batch)
        try:
            for batch in stream:
                if position.batch % self.checkpointing.signal_batches == 0:
                    self.checkpointing.tell()
                    everyone = self.comm.whole
                    self.limit.begin(self._taken(), position.steps)
                    self._signals = agree(everyone, self.context, self.checkpointing, self._taken(), self.limit)
                    self._epoch_at = self._epoch_at if position.batch else self._signals.seconds
                if self._signals.stop:
                    return state, position
                state, loss = self._solver.step(self.problem, state, batch, self.comm)
                loss = of_group(loss, self.comm.across)
                position = replace(
                    position,
                    steps=position.steps + 1,
                    batch=position.batch + 1,
                    loss=position.loss + loss,
                    seen=position.seen + batch.size,
                )
                if is_known(loss):
                    check_loss(loss, position)
                del batch  # frees its block before the next one is made
                if is_known(loss) or position.batch == n_batches or self._reads.due(position.batch):
                    position = self._known(position)
                    rate = (position.seen - earlier) / (time.perf_counter() - begun)
                    mean = position.loss / position.seen
                    self.context.emit(BatchFinished(position.epoch, position.batch, n_batches, mean, rate))
                self.report()
                if self._passed(state, position):
                    return state, position
        finally:
            close(stream)
        return state, position

    def _known(self, position: Position) -> Position:
        """Return the position with its loss as a number, that of all rows. A collective of groups."""
        return with_known_loss(position, self.comm.across)

    def _passed(self, state: Any, position: Position) -> bool:
        """Record a state between windows, commit it when due, and return whether the ranks regroup here."""
        if self._solver.snapshot(self.problem, state) is None:
            return False
        self._whole = state, position
        if not self._signals.commit:
            return False
        self._commit()
        self._signals = replace(self._signals, commit=False)
        self._regroup = self._signals.regroup
        return self._regroup

    def _taken(self) -> float:
        """Return the seconds that this gang and those before it took, without the times between them."""
        return self._taken_before + time.perf_counter() - self.started

    def _commit(self) -> None:
        """Commit the last state between windows. A collective."""
        if self.checkpointing.wanted and self._whole[1].steps:
            with self.comm.checkpointing():
                self._keep()

    def _keep(self) -> None:
        begun = time.perf_counter()
        state, position = self._whole[0], self._known(self._whole[1])
        seconds = self._signals.seconds
        into_epoch = max(0.0, seconds - self._epoch_at) if position.batch else 0.0
        position = replace(position, seconds=seconds, epoch_seconds=into_epoch)
        snapshot = self._solver.snapshot(self.problem, state)
        assert snapshot is not None
        shards = dict(snapshot.shards)
        arrays = dict(snapshot.whole)
        for name, (coef, points) in ({} if self._best is None else self._best.models).items():
            shards[name] = Shard(self.problem.part.columns.ids, coef)
            if points is not None:
                arrays[name + _POINTS] = dense(points)
        holders = holders_in_group(self.comm.whole.size, self.comm.size, self.comm.across.rank)
        whole = Snapshot(shards, arrays, snapshot.numbers).gather_to(self.comm, holders)
        self.comm.whole.check()  # nothing is kept that was computed from arrays which never came
        last = self._signals.stop or self._signals.regroup or bool(position.reason)
        commit = None if whole is None else Commit(whole, position)
        self.checkpointing.keep(commit, time.perf_counter() - begun, last=last)

    def _model(self, state: Any) -> Model:
        """Return this rank's coefficients of the model of `state`, and points that differ from the problem's.

        A collective.
        """
        return self._solver.finish(self.problem, state, self.comm), self._solver.points(self.problem, state)
