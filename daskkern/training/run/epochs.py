"""The epoch loop of a rank: from the first step or a commit to the end or to the next change of ranks."""

import time
from dataclasses import asdict, dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import BatchFinished, EpochFinished, EpochTimed, FitResumed, OptimalityMeasured
from daskkern.solvers import AnyProblem, Solver
from daskkern.training.checkpoints.checkpointing import Checkpointing
from daskkern.training.checkpoints.commits import Commit, Position, holders_in_group
from daskkern.training.checkpoints.running_loss import LossReads, check_loss, is_known, of_group, with_known_loss
from daskkern.training.feeding.feed import Feed, close
from daskkern.training.feeding.row_feed import RowFeed
from daskkern.training.feeding.validation import Validation, ValidationResult
from daskkern.training.run.best_epoch import BestEpoch, Ended, LeastLoss, Model, kept_models, with_kept, with_points
from daskkern.training.run.control_signals import REGROUPING, ControlSignals, TimeLimit, agree
from daskkern.training.run.early_stopping import Patience
from daskkern.training.run.rank_state import RankReporter
from daskkern.training.run.settings import FitSettings


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
    _seen_before: int = 0
    _batches_at: float = 0.0
    """Rows of this epoch that were seen before this run of it, and when that began."""
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
        reason = self._signals.reason or position.reason or REGROUPING
        begun = position.epoch - 1 if position.reason else position.epoch
        best, offset = self._best, self._solver.offset(self.problem, state)
        if isinstance(best, Patience) and best.best is not None:
            coef, points = best.best
            return Ended(coef, begun, reason, position.epochs, points, best.best_epoch, offset)
        coef, points = self._model(state)
        known = self._solver.certificate(self.problem, state)
        bound = np.inf if known is None else known.bound
        return Ended(coef, begun, reason, position.epochs, points, offset=offset, earlier=best, bound=bound)

    @property
    def _solver(self) -> Solver[Any]:
        return self.settings.solver

    def _begin(self, saved: Commit | None) -> tuple[Any, Position]:
        if saved is None:
            return self._solver.init(self.problem, self.comm), Position()
        position, ids = saved.position, self.problem.part.columns.ids
        self._taken_before, self._epoch_at = position.seconds, position.seconds - position.epoch_seconds
        if self._best is not None:
            drawn = self.settings.basis.drawn_per_step > 0
            self._best.restore(kept_models(self._best, saved.snapshot, ids, drawn, self.xp), position.best)
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
        self._seen_before, self._batches_at = position.seen, begun
        state, position = self._batches(state, position)
        if not self._regroup:
            state, position = self._after_rows(state, position)
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
            self._report_times(position.epoch)
        if not self._signals.stop or position.batch > self._n_batches(position.epoch):
            self._report_optimality(position.epoch, state)
        if self._signals.stop:
            return state, position
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

    def _report_optimality(self, epoch: int, state: Any) -> None:
        certificate = self._solver.certificate(self.problem, state)
        if certificate is not None:
            reported = (certificate.name, certificate.value, certificate.tol, certificate.note)
            self.context.emit(OptimalityMeasured(epoch, *reported))

    def _report_times(self, epoch: int) -> None:
        """Emit the shares of time since the last call. A collective."""
        t = self.comm.times()
        seconds = t.computing + t.reading + t.checkpointing + t.waiting + t.exchanging
        ways = ", ".join(sorted(self.comm.ways))
        self.context.emit(EpochTimed(epoch, seconds, **asdict(t), ways=ways))

    def _batches(self, state: Any, position: Position) -> tuple[Any, Position]:
        n_batches = self._n_batches(position.epoch)
        stream = self.feed.batches(position.epoch, position.batch)
        try:
            for batch in stream:
                if self._solver.long_steps or position.batch % self.checkpointing.signal_batches == 0:
                    self.limit.begin(self._taken(), position.steps)
                    self._agree()
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
                    self._report_batch(position)
                self.report()
                if self._passed(state, position):
                    return state, position
        finally:
            close(stream)
        return state, position

    def _after_rows(self, state: Any, position: Position) -> tuple[Any, Position]:
        """Run what the solver does after the last batch of an epoch, to its end, a stop or regrouping."""
        self.limit.begin(self._taken(), position.steps)
        while (found := self._solver.after_rows(self.problem, state, self.comm, stop=self._signals.stop)) is not None:
            state, loss = found
            check_loss(loss, position)
            position = replace(position, loss=loss)
            if self._signals.stop:
                return state, position
            position = replace(position, steps=position.steps + 1, batch=position.batch + 1)
            known = self._solver.certificate(self.problem, state)
            self._report_batch(position, () if known is None else (known.name, known.value, known.tol))
            self.report()
            if self._passed(state, position):
                return state, position
            self._agree()
        if position.batch > self._n_batches(position.epoch):  # what has ended by itself is not stopped
            self._signals = replace(self._signals, stop=False, late=False)
        return state, position

    def _report_batch(self, position: Position, reported: tuple[Any, ...] = ()) -> None:
        rate = (position.seen - self._seen_before) / (time.perf_counter() - self._batches_at)
        n_batches, mean = self._n_batches(position.epoch), position.loss / max(position.seen, 1)
        self.context.emit(BatchFinished(position.epoch, position.batch, n_batches, mean, rate, *reported))

    def _agree(self) -> None:
        """Agree on what the run does next. A collective."""
        self.checkpointing.report()
        self._signals = agree(self.comm.whole, self.context, self.checkpointing, self._taken(), self.limit)

    def _n_batches(self, epoch: int) -> int:
        """Return the batches of an epoch."""
        return self.feed.plan.n_batches * self._solver.sweeps(epoch, self.settings.loss)

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
        if self._best is not None:
            snapshot = with_kept(snapshot, self._best, self.problem.part.columns.ids)
        holders = holders_in_group(self.comm.whole.size, self.comm.size, self.comm.across.rank)
        whole = snapshot.gather_to(self.comm, holders)
        self.comm.whole.check()  # nothing is kept that was computed from arrays which never came
        last = self._signals.stop or self._signals.regroup or bool(position.reason)
        commit = None if whole is None else Commit(whole, position)
        self.checkpointing.keep(commit, time.perf_counter() - begun, last=last)

    def _model(self, state: Any) -> Model:
        """Return this rank's coefficients of the model of `state`, and points that differ from the problem's.

        A collective.
        """
        return self._solver.finish(self.problem, state, self.comm), self._solver.points(self.problem, state)
