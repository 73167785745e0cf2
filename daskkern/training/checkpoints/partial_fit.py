"""Partial fits: the columns, the preconditioner and the solver's state of a run, continued with other rows."""

from dataclasses import dataclass, replace
from typing import Any

from daskkern.arrays import HostArray
from daskkern.basis import BasisSpec
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.samples import features_at, some_positions
from daskkern.data.schema.same_columns import other_name, other_target
from daskkern.errors import DataError, SpecError
from daskkern.solvers import Snapshot, Solver
from daskkern.solvers.sampling import draws_rows
from daskkern.training.checkpoints.checkpointing import Saved
from daskkern.training.checkpoints.commits import Commit, Position
from daskkern.training.checkpoints.fingerprints import basis_summary
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.targets import check_targets
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Clock, Prepared

_KEPT = ("kernel", "loss", "solver", "dtype", "precision", "fit_intercept", "class_intercept", "batch_size")
_OF_MEANS = {"mean", "total", "lag"}
_NEVER = 1 << 40  # a number of steps that no run reaches


@dataclass(frozen=True, eq=False)
class PartialFitState:
    """The state from which a run on other rows continues.

    Attributes
    ----------
    prepared : Prepared
        With the points of the columns instead of row numbers.
    commit : uint8 array
        The last commit, as bytes.
    info : SourceInfo
    settings : FitSettings
        Later rows and settings must match `info` and these.
    """

    prepared: Prepared
    commit: HostArray
    info: SourceInfo
    settings: FitSettings


def reason_against_continuing(
    solver: Solver[Any], basis: BasisSpec, *, early: bool, weighs_classes: bool, sampling: str
) -> str:
    """Return why a fit with these settings cannot continue with other rows; "" when it can."""
    if basis.of_one_fit:
        return f"the columns of the basis {basis.name!r} belong to the rows of one fit; take Landmarks, or features"
    if solver.parallelism != "columns" or solver.state_per_row:
        how = "keeps numbers of every row" if solver.state_per_row else "solves for all rows at once"
        return f"the solver {solver.name} {how}; take one of stochastic gradients, such as 'auto' or 'sgd'"
    if early:
        return "early_stopping is for fits of several epochs; leave it out"
    if weighs_classes:
        return "class_weight depends on all rows; pass sample_weight"
    if not draws_rows(sampling) and sampling != "uniform":
        return f"sampling={sampling!r} orders the rows of several epochs; leave it out"
    if sampling != "uniform":
        return f"sampling={sampling!r} draws from all rows; pass sample_weight"
    return ""


def next_run(job: FitJob, earlier: PartialFitState) -> FitJob:
    """Return the job of one more epoch, on the rows of `job`, that begins from the state of an earlier one.

    Raises
    ------
    DataError
        When the schema of the rows differs from that of the earlier ones.
    SpecError
        When a fit with these settings cannot continue.
    """
    settings = job.settings
    reason = _why_not(settings)
    if reason:
        raise SpecError(f"the fit cannot continue with other rows: {reason}")
    _check_alike(job.source.info, earlier.info)
    _check_same(settings, earlier.settings)
    commit = Commit.from_bytes(earlier.commit)
    before = commit.position
    epoch = before.epoch + (before.batch > 0)
    begun = Commit(_averaging(commit, settings.solver), Position(steps=before.steps, epoch=epoch, epochs=before.epochs))
    settings = replace(settings, solver=settings.solver.as_saved(commit.snapshot), max_epochs=epoch, behind=epoch - 1)
    policy = replace(job.policy, earlier=Saved(begun.to_bytes(), "{}"), resume=True)
    prepared, divisors = earlier.prepared, (earlier.settings.alpha_divisor, settings.alpha_divisor)
    if earlier.settings.chooses_alpha and settings.chooses_alpha:
        prepared = replace(prepared, alpha=prepared.alpha * divisors[0] / divisors[1])
    return replace(job, settings=settings, policy=policy, before=prepared)


def can_go_on(settings: FitSettings) -> bool:
    """Return whether a fit with these settings can continue with other rows."""
    return not _why_not(settings)


def _why_not(settings: FitSettings) -> str:
    return reason_against_continuing(
        settings.solver,
        settings.basis,
        early=settings.early_stopping is not None,
        weighs_classes=settings.class_weight is not None,
        sampling=settings.sampling,
    )


def _averaging(commit: Commit, solver: Solver[Any]) -> Snapshot:
    """Return the snapshot with the mean of iterates continued, or begun now where there is none yet."""
    snapshot = commit.snapshot
    if "averaged_from" not in snapshot.numbers:
        return snapshot
    if not getattr(solver, "averaging", 0.0):
        shards = {name: shard for name, shard in snapshot.shards.items() if name not in _OF_MEANS}
        return replace(snapshot, shards=shards, numbers={**snapshot.numbers, "averaged_from": _NEVER, "averaged": 0})
    if snapshot.shards.keys() & _OF_MEANS:
        return snapshot
    return replace(snapshot, numbers={**snapshot.numbers, "averaged_from": commit.position.steps + 1})


def prepare_next(earlier: Prepared, rows: Rows, settings: FitSettings, clock: Clock) -> Prepared:
    """Return the set-up of an earlier run for other rows, with a new batch plan."""
    if rows.n_rows < 1:
        raise DataError("got 0 rows to continue with; give one or more")
    check_targets(rows)
    plan = BatchPlan.for_rows(rows, min(earlier.plan.batch_size, rows.n_rows), settings.seed)
    clock.stage("targets", f"{rows.n_rows:,} rows, columns and spectrum as before")
    alpha = earlier.alpha if settings.chooses_alpha else settings.ridge
    positions = some_positions(rows.n_rows, settings.seed)
    held = HeldSample.of(rows, features_at(rows, positions), positions, earlier.targets)
    return replace(
        earlier, plan=plan, stages=tuple(clock.stages), validation=None, alpha=alpha, held=held, calibration=None
    )


def _check_same(now: FitSettings, before: FitSettings) -> None:
    """Raise SpecError for changed settings that the columns or the state depend on: they would have no effect."""
    known = {name: getattr(before, name) for name in _KEPT} | {"basis": basis_summary(before.basis)}
    requested = {name: getattr(now, name) for name in _KEPT} | {"basis": basis_summary(now.basis)}
    for name, value in requested.items():
        if value != known[name]:
            raise SpecError(
                f"{name} was {known[name]!r} when the model began and is {value!r}; set it back, or call fit"
            )


def _check_alike(ours: SourceInfo, theirs: SourceInfo) -> None:
    other = other_name(theirs.feature_names, ours.feature_names)
    if other is not None:
        raise DataError(f"got rows with feature {other[1]!r}; expected {other[0]!r}, as in the rows before")
    aim = other_target(theirs.target_names, ours.target_names)
    if aim is not None:
        raise DataError(f"got rows with target {aim[1]!r}; expected {aim[0]!r}, as in the rows before")
    for name, what in (
        ("n_features", "features"),
        ("task", "a task"),
        ("n_targets", "targets"),
        ("classes", "classes"),
        ("scaling", "a scaling"),
    ):
        found, known = getattr(ours, name), getattr(theirs, name)
        if found != known:
            raise DataError(f"got rows with {what} {found}; expected {known}, as in the rows before")
