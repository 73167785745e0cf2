"""The main function of a rank: opens the rows, sets up its columns, and runs the epochs."""

import time
from contextlib import closing
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.backend.concurrency import compute_threads
from daskkern.backend.namespace import is_sparse, namespace_for, to_device, to_host
from daskkern.cluster.collectives.gpus import gpu_collectives
from daskkern.cluster.collectives.grid import groups_that_divide, rank_grid
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.cluster.collectives.virtual import run_virtual, virtual_ranks
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.data.rows.csr import stack_rows
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.sweep import SweepPlan
from daskkern.display import counts_in_words
from daskkern.events import EpochFinished, FitFinished, FitStarted, StageFinished
from daskkern.solvers import AnyProblem, Problem
from daskkern.training.checkpoints.checkpointing import open_checkpointing
from daskkern.training.checkpoints.commits import Commit, latest_of_all
from daskkern.training.feeding.feed import Feed
from daskkern.training.feeding.remote_values import RemoteValue
from daskkern.training.feeding.row_feed import RowFeed
from daskkern.training.feeding.validation import Validation
from daskkern.training.planning.device_choices import chosen_products
from daskkern.training.planning.grids import fewer_groups
from daskkern.training.run.control_signals import REGROUPING, TimeLimit
from daskkern.training.run.divergence import judge, reference_of
from daskkern.training.run.epochs import Epochs
from daskkern.training.run.objective import ModelPenalty
from daskkern.training.run.optimality_notes import closing_note
from daskkern.training.run.rank_state import RankReporter, context_of_shard
from daskkern.training.run.rank_task import RankTask
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared, training_rows
from daskkern.training.setup.projections import in_words
from daskkern.training.setup.rank_columns import inputs_of, own_rows
from daskkern.training.setup.spectrum import spectrum_of

_LEAST_SHARE = 0.25
"""Of the time limit of a fit: steps have this much after a set-up that has taken all of it; without any, a model is
worth nothing."""


@dataclass(frozen=True, eq=False)
class FitRankResult:
    """What a rank gives back: its columns' numbers, points and coefficients, and how the fit ended."""

    ids: IntArray
    points: HostArray
    coef: HostArray
    epochs: int
    reason: str
    saved: HostArray | None = None
    """The last commit as bytes, from rank 0, where it was wanted back."""
    history: tuple[EpochFinished, ...] = ()
    """The epochs that were run whole, from rank 0: of events, one may be missing when a gang broke up."""
    best_epoch: int = 0
    """The epoch whose coefficients these are, where it is not the last one; else 0."""
    note: str = ""
    """What the user should know of how it ended."""
    offset: FloatArray | None = None
    """Constants (c,) that the solver adds to the scores of the model; the same from every rank."""


def run_rank(comm: Communicator, task: RankTask, context: RankContext) -> FitRankResult | Regroup:
    """Run one rank to the end, or to where the gang is formed again. Every rank calls it with the same task."""
    xp, task = namespace_for(task.settings.device), task.of_rank(comm.rank)
    with gpu_collectives(comm, xp) as (exchange, note):
        _remark("collectives", note, context)
        if task.settings.virtual_shards is None:
            d = task.job.source.info.n_features
            groups = groups_that_divide(comm.size, task.groups)
            with chosen_products(comm, xp, task.settings, d), rank_grid(comm, exchange, groups, xp) as mine:
                return _run(mine, task, context, xp)
        return _run_shards(exchange, task.settings.virtual_shards, task, context, xp)


def _run_shards(
    comm: Communicator, shards: int, task: RankTask, context: RankContext, xp: ModuleType
) -> FitRankResult | Regroup:
    """Run this rank's virtual ranks, and return what they give back as that of one."""
    prepared: Prepared = task.prepared.fetch() if isinstance(task.prepared, RemoteValue) else task.prepared
    task = replace(task, prepared=prepared)
    own = virtual_ranks(comm.rank, comm.size, shards, task.shares)
    each = len(own) if task.shares else task.settings.shards_each(comm.size)
    task = replace(task, threads=max(1, task.threads // each))
    columns = sum(prepared.basis.split(shard, shards).ids.size for shard in own)
    device = None if xp is np else xp.cuda.runtime.getDevice()

    def run(virtual: Communicator, place: int) -> FitRankResult | Regroup:
        if device is not None:
            xp.cuda.runtime.setDevice(device)  # of this thread: threads begin with the first one
        with compute_threads(task.threads):
            return _run(TimedCommunicator(virtual), task, context_of_shard(context, comm, place, len(own), columns), xp)

    results = run_virtual(comm, shards, run, task.shares)
    parts = [result for result in results if isinstance(result, FitRankResult)]
    if len(parts) < len(results):
        return Regroup()
    points = [part.points for part in parts]
    return replace(
        parts[0],
        ids=np.concatenate([part.ids for part in parts]),
        points=stack_rows(points) if is_sparse(points[0]) else np.concatenate(points),
        coef=np.concatenate([part.coef for part in parts]),
    )


def _run(comm: TimedCommunicator, task: RankTask, context: RankContext, xp: ModuleType) -> FitRankResult | Regroup:
    prepared = task.divided(task.prepared.fetch() if isinstance(task.prepared, RemoteValue) else task.prepared)
    if task.settings.chooses_alpha:
        task = replace(task, job=replace(task.job, settings=replace(task.settings, alpha=prepared.alpha)))
    job, settings = task.job, task.settings
    rows = training_rows(job.source.open(settings.dtype), prepared.validation)
    started = time.perf_counter()
    saved = _last_commit(comm.whole, task, context)
    if not context.commit_cache.contributed:
        _announce(task, prepared, rows, comm, context)
    columns = prepared.basis.split(comm.rank, comm.size).ids.size
    report = RankReporter(context, comm.whole.rank, task.memory, task.threads, xp, columns)
    report()
    problem, points = _problem(task, prepared, rows, saved, comm, xp)
    context.emit(StageFinished("columns", time.perf_counter() - started, _shared(prepared, task, comm)))
    _remark("precision", problem.extra.remark, context)
    _remark("blocks", task.memory.note if settings.basis.has_blocks else "", context)
    validation = Validation.open(job.validation, job.source, prepared, settings)
    feed = _feed(task, prepared, rows, problem, comm, context, xp)
    with (
        closing(feed),
        open_checkpointing(job.policy, context.commit_cache, comm.whole.rank, context.emit, task.gang) as checkpointing,
    ):
        reference = reference_of(prepared.held, settings, problem, saved, comm, xp)
        epochs = Epochs(
            comm,
            settings,
            problem,
            feed,
            validation,
            context,
            checkpointing,
            xp,
            report,
            _limit(settings, prepared),
            started,
            not settings.behind,
        )
        ended = epochs.run(saved)
    _remark("steps", problem.extra.closing_remark, context)
    if ended.reason == REGROUPING:
        return Regroup()
    if reference is not None and isinstance(feed, Feed):
        reference = reference.certain_of(rows, feed.extremes.rows)
    penalty = ModelPenalty(settings, problem, points, comm, xp)
    judged = judge(reference, ended, penalty, settings.solver.descends, context)
    ended = judged.ended
    # One that goes on from other rows has losses of those rows behind it, and ends with every call.
    note = ""
    if not settings.behind:
        note = judged.note or closing_note(problem, ended, prepared, rows, reference, settings, judged.scores)
    context.emit(FitFinished(ended.reason, ended.epochs, time.perf_counter() - started, ended.best_epoch, note))
    saved_bytes = checkpointing.last if comm.whole.rank == 0 else None
    history = ended.history if comm.whole.rank == 0 else ()
    points = points if ended.points is None else ended.points
    own = slice(0, 0) if comm.across.rank else slice(None)  # all groups have the same model: the first gives it
    ids, coef = problem.part.columns.ids[own], to_host(ended.coef)[own]
    end = (ended.epochs, ended.reason, saved_bytes, history, ended.best_epoch, note, ended.offset)
    return FitRankResult(ids, points[own], coef, *end)


def _remark(stage: str, said: str, context: RankContext) -> None:
    if said:
        context.emit(StageFinished(stage, 0.0, said))


def _problem(
    task: RankTask, prepared: Prepared, rows: Rows, saved: Commit | None, comm: TimedCommunicator, xp: ModuleType
) -> tuple[AnyProblem, HostArray]:
    """Return what the solver of this rank works on, and the points of its columns in host memory. A collective."""
    settings = task.job.settings
    columns = prepared.basis.split(comm.rank, comm.size)
    points = own_rows(rows, prepared, columns)
    part = prepared.basis.part(columns, to_device(points, xp))
    stored = task.features is not None
    given = prepared, settings, task.memory, task.threads, stored, rows, columns, part, points
    inputs = inputs_of(*given, comm, xp, comm.across.size)
    problem = Problem(
        part,
        prepared.targets.moved,
        settings.ridge,
        prepared.targets.n_outputs,
        prepared.plan.n_batches,
        settings.max_epochs,
        settings.dtype,
        settings.solver.rank_setup(inputs),
        _averaged_from(settings, saved),
        comm.across if comm.across.size > 1 else None,
    )
    return problem, points


def _averaged_from(settings: FitSettings, saved: Commit | None) -> int | None:
    """Return the step from which a run on other rows goes on averaging, where it does; it is in each of its commits."""
    start = None if saved is None else saved.snapshot.numbers.get("averaged_from")
    return None if start is None or not settings.behind else int(start)


def _limit(settings: FitSettings, prepared: Prepared) -> TimeLimit:
    """Return the time of the ranks of a fit: what its set-up has left, and a quarter of all in any case."""
    if settings.max_seconds is None:
        return TimeLimit()
    left_s = settings.max_seconds - sum(stage.seconds for stage in prepared.stages)
    return TimeLimit(left_s, _LEAST_SHARE * settings.max_seconds)


def _feed(
    task: RankTask,
    prepared: Prepared,
    rows: Rows,
    problem: AnyProblem,
    comm: TimedCommunicator,
    context: RankContext,
    xp: ModuleType,
) -> Feed | RowFeed:
    """Return what the solver is fed with: all rows, or the rank's."""
    if task.settings.solver.parallelism == "columns":
        return Feed(task.memory, prepared, task.settings, rows, problem, task.features, comm, context.emit, xp)
    assert isinstance(prepared.plan, SweepPlan)
    whole = problem.extra.all_columns
    fed = task.memory, prepared.plan, prepared.targets, task.settings, rows, whole, comm, context.emit, xp
    return RowFeed(*fed, task.row_shares)


def _last_commit(comm: Communicator, task: RankTask, context: RankContext) -> Commit | None:
    """Return the latest commit that any rank's worker keeps, else that of the checkpoint; the same on all ranks."""
    kept = context.commit_cache.latest
    data, steps = (None, 0) if kept is None else (kept.data, kept.steps)
    if data is None and comm.rank == 0:
        saved = task.job.policy.saved()
        if saved is not None:
            data, steps = saved.to_bytes(), saved.position.steps
    data = latest_of_all(data, steps, comm)
    return None if data is None else Commit.from_bytes(data)


def _shared(prepared: Prepared, task: RankTask, comm: TimedCommunicator) -> str:
    """Return how the work is shared, in a few words."""
    settings = task.settings
    virtual = "" if settings.virtual_shards is None else "virtual "
    ranks = f"{comm.size} {virtual}rank{'s' * (comm.size > 1)}"
    if comm.across.size > 1:
        ranks += f" in each of {comm.across.size} groups, which divide each batch"
    if not isinstance(settings.groups, str) and settings.groups > comm.across.size:
        ranks += f" ({fewer_groups(int(settings.groups), comm.across.size, comm.whole.size)})"
    if settings.solver.parallelism == "rows":
        return f"rows distributed to {ranks}{_by_ability(prepared, task, comm.size)}, all columns on each"
    if settings.solver.is_serial:
        return "serial: all rows and columns on 1 rank"
    projections = in_words(prepared, settings, task.memory) if settings.basis.needs_projection else ""
    return f"columns distributed to {ranks}{_by_ability(prepared, task, comm.size)}{projections}"


def _by_ability(prepared: Prepared, task: RankTask, size: int) -> str:
    """Return how many columns or rows each rank has, or virtual ranks each worker, where they are not the same."""
    if not task.shares:
        return ""
    if task.settings.virtual_shards is not None:
        return f", {counts_in_words(task.shares)} on each worker by memory and speed"
    if isinstance(prepared.plan, SweepPlan):
        counts = prepared.plan.rows_of_ranks(size, task.row_shares)
    else:
        counts = [prepared.basis.split(rank, size).ids.size for rank in range(size)]
    return f" by memory and speed, {counts_in_words(counts)}"


def _announce(task: RankTask, prepared: Prepared, rows: Rows, comm: TimedCommunicator, context: RankContext) -> None:
    context.emit(
        FitStarted(
            task.settings.solver.name,
            rows.n_rows,
            rows.n_features,
            prepared.targets.n_outputs,
            prepared.basis.n_columns,
            comm.whole.size,
            task.settings.max_epochs,
            comm.across.size,
        )
    )
    for stage in prepared.stages:
        context.emit(stage)
    spectrum = spectrum_of(prepared, task.settings)
    if spectrum is not None:
        context.emit(spectrum)
