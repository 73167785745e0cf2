"""What one rank of a fit does: open the rows, take its columns, and step through the epochs."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import Array, HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.namespace import namespace_for, to_device, to_host
from daskkern.data import batches as data_batches
from daskkern.data.rows import Rows
from daskkern.errors import DivergenceError
from daskkern.events import BatchFinished, EpochFinished, FitFinished, FitStarted, Listener, StageFinished
from daskkern.solvers import Batch, NystromSGD, Problem, Solver
from daskkern.training.columns import own_rows, solver_setup
from daskkern.training.features import FeatureRows
from daskkern.training.kept import keep_blocks
from daskkern.training.memory import MemoryPlan
from daskkern.training.prepare import Prepared, training_rows
from daskkern.training.settings import FitSettings
from daskkern.training.sources import RemoteValue, Source, row_fields
from daskkern.training.validation import Patience, Validation, Watched

_ASK_EVERY = 8


@dataclass(frozen=True, eq=False)
class RankTask:
    """The payload of a rank.

    Attributes
    ----------
    source : Source
    settings : FitSettings
    prepared : Prepared, or where on the cluster one is
    validation : Source or None
        Rows to validate on; None and early stopping on means the rows that `prepared` held out.
    memory : MemoryPlan
    threads : int
    features : str or None
        Where the stored eigenfeatures of Nystrom-SGD are.
    """

    source: Source
    settings: FitSettings
    prepared: Prepared | RemoteValue
    validation: Source | None
    memory: MemoryPlan
    threads: int
    features: str | None = None


@dataclass(frozen=True, eq=False)
class RankResult:
    """What a rank gives back: its columns' numbers, points and coefficients, and how the fit ended."""

    ids: IntArray
    points: HostArray
    coef: HostArray
    epochs: int
    reason: str


def run_rank(comm: Communicator, task: RankTask, emit: Listener, should_stop: Callable[[], bool]) -> RankResult:
    """Run one rank to the end. Every rank calls it with its own communicator and the same task."""
    prepared: Prepared = task.prepared.fetch() if isinstance(task.prepared, RemoteValue) else task.prepared
    settings = task.settings
    xp = namespace_for(settings.device)
    rows = training_rows(task.source.open(settings.dtype), prepared.validation)
    started = time.perf_counter()
    emit(
        FitStarted(
            settings.solver.name,
            rows.n_rows,
            rows.n_features,
            prepared.targets.n_outputs,
            prepared.basis.n_columns,
            comm.size,
            settings.max_epochs,
        )
    )
    for stage in prepared.stages:
        emit(stage)
    columns = prepared.basis.split(comm.rank, comm.size)
    points = own_rows(rows, prepared, columns)
    part = prepared.basis.part(columns, to_device(points, xp))
    problem = Problem(
        part,
        settings.loss,
        settings.alpha,
        prepared.targets.n_outputs,
        prepared.plan.n_batches,
        settings.max_epochs,
        settings.dtype,
        solver_setup(task, prepared, rows, columns, part, points, comm, xp),
    )
    window = "" if prepared.basis.all_rows else f"projections every {prepared.window} batches"
    emit(StageFinished("columns", time.perf_counter() - started, window))
    if task.memory.note:
        emit(StageFinished("blocks", 0.0, task.memory.note))
    run = _Run(comm, task, prepared, rows, problem, emit, should_stop, xp)
    coef, epochs, reason = run.epochs()
    emit(FitFinished(reason, epochs, time.perf_counter() - started))
    return RankResult(columns.ids, points, to_host(coef), epochs, reason)


class _Run:
    """The epochs of one rank."""

    def __init__(
        self,
        comm: Communicator,
        task: RankTask,
        prepared: Prepared,
        rows: Rows,
        problem: Problem,
        emit: Listener,
        should_stop: Callable[[], bool],
        xp: ModuleType,
    ) -> None:
        self.comm, self.task, self.prepared, self.rows, self.problem = comm, task, prepared, rows, problem
        self.emit, self.should_stop, self.xp = emit, should_stop, xp
        self.solver: Solver[Any] = task.settings.solver
        self.kept = keep_blocks(task.memory, task.settings, xp)
        keeps = task.memory.keeps_rows and task.features is None
        self.rows_kept: dict[int, Batch] | None = {} if keeps else None
        self.validation = Validation.open(task.validation, task.source, prepared, task.settings)
        self.stored = task.features is not None
        if task.features is not None:
            self.rows = FeatureRows(rows, task.features, problem.extra.features, task.settings.dtype)

    def epochs(self) -> tuple[Array, int, str]:
        """Run the epochs and return the coefficients, how many epochs were begun, and why they ended."""
        try:
            return self._epochs()
        finally:
            self.kept.close()

    def _epochs(self) -> tuple[Array, int, str]:
        settings, comm = self.task.settings, self.comm
        state = self.solver.init(self.problem, comm)
        early = settings.early_stopping
        patience = None if early is None or self.validation is None else Patience(early.patience, early.tol)
        reason, epoch = "max_epochs", 0
        for epoch in range(1, settings.max_epochs + 1):
            begun, sent = time.perf_counter(), comm.bytes_sent
            state, loss, stopped = self._epoch(state, epoch)
            watched = Watched(float("nan"), float("nan"))
            if self.validation is not None and not stopped:
                coef = self.solver.finish(self.problem, state, comm)
                watched = self.validation.score(self.problem, coef, comm, self.xp)
            self.emit(
                EpochFinished(
                    epoch, loss, time.perf_counter() - begun, watched.loss, watched.score, comm.bytes_sent - sent
                )
            )
            if stopped:
                reason = "interrupted"
                break
            if patience is not None and patience.exhausted(watched, epoch, coef):
                reason = "early_stopping"
                break
        if patience is not None and patience.best is not None:
            return patience.best, epoch, reason
        return self.solver.finish(self.problem, state, comm), epoch, reason

    def _epoch(self, state: Any, epoch: int) -> tuple[Any, float, bool]:
        plan, comm = self.prepared.plan, self.comm
        total, seen, begun = 0.0, 0, time.perf_counter()
        number = 0
        stream = self._batches(epoch)
        try:
            for batch in stream:
                number += 1
                if (number - 1) % _ASK_EVERY == 0 and self._agreed_to_stop():
                    return state, total / max(seen, 1), True
                state, loss = self.solver.step(self.problem, state, batch, comm)
                if not np.isfinite(loss):
                    raise DivergenceError(
                        f"the loss became {loss} in epoch {epoch}, batch {number}: the iteration diverged; take a "
                        "smaller batch_size, a larger kernel length scale or alpha, or scaled features"
                    )
                total, seen = total + loss, seen + batch.size
                del batch  # its block goes before the next one is made
                rate = seen / (time.perf_counter() - begun)
                self.emit(BatchFinished(epoch, number, plan.n_batches, total / seen, rate))
        finally:
            close(stream)
        return state, total / max(seen, 1), False

    def _agreed_to_stop(self) -> bool:
        flag = np.array([float(self.should_stop())])
        return bool(self.comm.allreduce(flag)[0] > 0)

    def _batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the epoch's batches with their kernel block, kept or fresh, where the solver wants one."""
        plan, kept = self.prepared.plan, self.rows_kept
        failed = self.kept.failed
        self.kept.begin(plan.order(epoch).tolist())
        if self.kept.failed and (not failed or epoch == 2):
            self.emit(StageFinished("kept blocks", 0.0, "the disk is full: what was not written is computed again"))
        if kept is not None and len(kept) == plan.n_batches:
            order = plan.order(epoch).tolist()
            for index in order:
                batch = kept[index]
                yield replace(batch, phi=self._block(index, batch), last=index == order[-1])
        else:
            yield from self._read_batches(epoch)

    def _read_batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the epoch's batches as they are read, and keep them where the plan has room for all rows."""
        plan = self.prepared.plan
        needs_rows = self.prepared.window > 1

        def wanted(index: int) -> bool:
            return self.stored or needs_rows or not self.kept.has(index)

        stream = data_batches.iter_batches(self.rows, plan, epoch, fields=row_fields(self.rows), wanted_X=wanted)
        number = 0
        try:
            for item in stream:
                number += 1
                index, batch = item.index, self._encode(item, number == plan.n_batches)
                del item  # its window goes before another one is read
                if self.rows_kept is not None:
                    self.rows_kept[index] = batch
                yield replace(batch, phi=self._block(index, batch))
                del batch
        finally:
            close(stream)

    def _encode(self, item: data_batches.Batch, last: bool) -> Batch:
        """Return rows as read in the form of the solver, without a kernel block."""
        block, targets, xp = item.block, self.prepared.targets, self.xp
        assert block.y is not None
        weight = targets.weight(block)
        return Batch(
            X=None if block.X is None else to_device(block.X, xp),
            y=xp.asarray(targets.encode(block.y)),
            weight=None if weight is None else xp.asarray(weight),
            positions=item.positions,
            phi=None,
            last=last,
        )

    def _block(self, index: int, batch: Batch) -> Array | None:
        if self.stored:
            return batch.X
        if self.kept.has(index):
            return self.kept.get(index)
        part = self.problem.part
        out = self.kept.place((batch.size, part.points.size))
        if out is None:
            whole = isinstance(self.solver, NystromSGD) or not self.prepared.basis.all_rows
            return part.block(batch.X) if whole else None
        part.block(batch.X, out)
        self.kept.put(index, out)
        return out


def close(stream: Iterator[Any]) -> None:
    """End a generator now, and with it the threads that read ahead for it."""
    getattr(stream, "close", lambda: None)()
