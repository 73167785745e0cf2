"""A model that goes on with other rows: the columns, the preconditioner and the solver's state of an earlier run."""

from dataclasses import dataclass, replace

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, DoublyStochastic
from daskkern.data.plan import BatchPlan
from daskkern.data.rows import Rows
from daskkern.errors import DataError, SpecError
from daskkern.events import StageFinished
from daskkern.training.commits import Commit, Position
from daskkern.training.keeper import Saved
from daskkern.training.prepared import Clock, Prepared
from daskkern.training.resuming import basis_summary, fingerprint
from daskkern.training.sampling import learn_sampling
from daskkern.training.settings import FitSettings
from daskkern.training.sources import Source, SourceInfo
from daskkern.training.targets import check_targets

_KEPT = ("kernel", "loss", "solver", "dtype", "precision", "fit_intercept")


@dataclass(frozen=True, eq=False)
class Carried:
    """What a run leaves for one on other rows.

    Attributes
    ----------
    prepared : Prepared
        With the points of the columns in place of row numbers.
    commit : uint8 array
        The last commit, as bytes.
    info : SourceInfo
    settings : FitSettings
        What later rows and settings must agree with.
    """

    prepared: Prepared
    commit: HostArray
    info: SourceInfo
    settings: FitSettings


def why_not(settings: FitSettings) -> str:
    """Return why a fit with these settings cannot go on with other rows; "" when it can."""
    solver, basis = settings.solver, settings.basis
    if isinstance(basis, AllRows | DoublyStochastic):
        return f"the columns of the basis {basis.name!r} belong to the rows of one fit; take Landmarks, or features"
    if solver.deals != "columns" or solver.row_numbers:
        how = "keeps numbers of every row" if solver.row_numbers else "solves for all rows at once"
        return f"the solver {solver.name} {how}; take one of stochastic gradients, such as 'auto' or 'sgd'"
    if settings.early_stopping is not None:
        return "early_stopping is for fits of several epochs; leave it out"
    if settings.class_weight is not None:
        return "class_weight depends on all rows; pass sample_weight"
    return ""


def next_run(earlier: Carried, source: Source, settings: FitSettings) -> tuple[Saved, FitSettings]:
    """Return where one more epoch, on the rows of `source`, begins, and its settings.

    Raises
    ------
    DataError
        When the rows are of another kind than the earlier ones.
    SpecError
        When a fit with these settings cannot go on.
    """
    reason = why_not(settings)
    if reason:
        raise SpecError(f"other rows were given to go on with, but {reason}")
    _check_alike(source.info, earlier.info)
    _check_same(settings, earlier.settings)
    commit = Commit.from_bytes(earlier.commit)
    before = commit.position
    epoch = before.epoch + (before.batch > 0)
    begun = replace(commit, position=Position(steps=before.steps, epoch=epoch, epochs=before.epochs))
    settings = replace(settings, max_epochs=epoch)
    return Saved(begun.to_bytes(), fingerprint(source, settings, None)), settings


def prepare_next(earlier: Prepared, rows: Rows, settings: FitSettings, clock: Clock) -> Prepared:
    """Return the set-up of an earlier run for other rows: their batches are new, and how they are drawn."""
    check_targets(rows)
    plan, size = earlier.plan, min(earlier.plan.batch_size, rows.n_rows)
    if isinstance(plan, BatchPlan):
        plan = BatchPlan.for_rows(rows, size, settings.seed)
    clock.stage("targets", f"{rows.n_rows} rows, columns and spectrum as before")
    sampling = learn_sampling(rows, settings, earlier.targets)
    stages: tuple[StageFinished, ...] = tuple(clock.stages)
    return replace(earlier, plan=plan, stages=stages, sampling=sampling, validation=None)


def _check_same(now: FitSettings, before: FitSettings) -> None:
    """Refuse settings that the columns or the state were made with and that would have no effect any more."""
    known = {name: getattr(before, name) for name in _KEPT} | {"basis": basis_summary(before.basis)}
    asked = {name: getattr(now, name) for name in _KEPT} | {"basis": basis_summary(now.basis)}
    for name, value in asked.items():
        if value != known[name]:
            raise SpecError(
                f"{name} was {known[name]!r} when the model began and is {value!r}; set it back, or begin anew with fit"
            )


def _check_alike(ours: SourceInfo, theirs: SourceInfo) -> None:
    for name, what in (
        ("n_features", "features"),
        ("task", "a task"),
        ("n_targets", "targets"),
        ("classes", "classes"),
        ("scaling", "a scaling"),
    ):
        found, known = getattr(ours, name), getattr(theirs, name)
        if found != known:
            raise DataError(f"the rows come with {what} {found}, and those before with {known}; both must agree")
