"""The job of a fit: rows, settings and earlier state, the same in one process and on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from distributed import Client

from daskkern.cluster.scheduler.metadata import FitMetadata, new_metadata
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError
from daskkern.solvers import check_fit
from daskkern.solvers.declarations import check_declarations
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sent_rows import Releasable
from daskkern.training.feeding.sources import merged
from daskkern.training.feeding.targets import check_loss, check_multilabel
from daskkern.training.feeding.validation import check_comparable
from daskkern.training.jobs.descriptions import method_in_words, settings_in_words
from daskkern.training.run.held_out_sizes import check_set_aside, rows_set_aside
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.kernel_choice import with_categories
from daskkern.training.setup.learned_metric import check_feature_learning
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.scaling import scales_features, with_scaling


@dataclass(frozen=True, eq=False)
class FitJob:
    """What is fitted to which rows, wherever it runs.

    Attributes
    ----------
    source : RowSource
        The training rows.
    settings : FitSettings
        All that defines the fit. Its kernel gets the categories of the rows.
    validation : RowSource or None
        Rows to watch, and for early stopping; must share classes and scaling with `source`.
    policy : CheckpointPolicy
        Where a checkpoint is written, and whether the fit begins with it.
    before : Prepared or None
        The set-up of a fit on other rows that this one continues.

    Raises
    ------
    SpecError
        For rows with codes of categories, and settings that have none.
    """

    source: RowSource
    settings: FitSettings
    validation: RowSource | None = None
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    before: Prepared | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", with_categories(self.settings, self.source.info.categories))

    def check(self) -> None:
        """Raise SpecError or DataError for settings or validation rows that do not match the training rows."""
        check_settings(self.settings, self.source)
        if self.validation is not None:
            check_comparable(self.validation, self.source)
        else:
            check_set_aside(self.source.info.n_rows, self.settings)

    def without_copies(self) -> "FitJob":
        """Return the job on rows of which copies count as one, unless it is a part of a fit to other rows."""
        apart = self.before is not None or self.settings.rows_follow
        return self if apart else replace(self, source=merged(self.source))

    def kept_on_disk(self) -> "FitJob":
        """Return the job on rows that are kept in scratch files once they are decoded, where that takes long."""
        watched = None if self.validation is None else self.validation.kept_on_disk(self.settings)
        return replace(self, source=self.source.kept_on_disk(self.settings), validation=watched)

    def metadata(self, name: str | None = None, out: str = "", *, detached: bool = False) -> FitMetadata:
        """Return a new entry for the registry of fits; without a `name` that of the solver."""
        new = new_metadata(name or self.settings.solver.name)
        epochs = self.settings.max_epochs
        task = "multilabel" if self.settings.multilabel else self.source.info.task or ""
        n_rows = self.source.info.n_rows
        placed = replace(new, source=self.source.origin, out=out, max_epochs=epochs, detached=detached)
        method, settings = method_in_words(self.settings, n_rows), settings_in_words(self.settings, n_rows)
        return replace(placed, method=method, task=task, settings=settings)

    @property
    def sources(self) -> list[RowSource]:
        """All sources that are read."""
        return [self.source, *([] if self.validation is None else [self.validation])]

    @property
    def holds_out(self) -> bool:
        """Whether training rows are set aside, for validation or to calibrate the model."""
        return self.validation is None and rows_set_aside(self.source.info.n_rows, self.settings) > 0

    def scaled(self, scaling: Scaling) -> "FitJob":
        """Return the job on rows scaled like this."""
        watched = None if self.validation is None else with_scaling(self.validation, scaling)
        return replace(self, source=with_scaling(self.source, scaling), validation=watched)

    def for_cluster(self, client: Client, workers: Sequence[str]) -> "tuple[FitJob, tuple[Releasable, ...]]":
        """Return the job on sources that `workers` can open, and what to release after it."""
        source, keep = self.source.for_cluster(client, workers, self.settings.dtype)
        if self.validation is None:
            return replace(self, source=source), keep
        try:
            watched, keep_too = self.validation.for_cluster(client, workers, self.settings.dtype)
        except BaseException:
            for one in keep:
                one.release()
            raise
        return replace(self, source=source, validation=watched), (*keep, *keep_too)


def check_settings(settings: FitSettings, source: RowSource) -> None:
    """Raise SpecError for settings that cannot fit this source, before anything is started."""
    if settings.multilabel:
        check_multilabel(settings, source.info.task)
    elif source.info.task is not None:
        check_loss(settings.loss, source.info.task)
    scales_features(settings, source)
    check_feature_learning(settings, source)
    check_fit(settings.solver, settings.loss, settings.basis.name)
    if settings.basis.leaf_size is not None and settings.precision in ("tf32", "float16"):
        raise SpecError(
            f"got precision={settings.precision!r} with the basis {settings.basis.name}, whose leaves are solved in "
            "float64; leave it out"
        )
    settings.solver.check_sampling(settings.sampling)
    check_declarations(settings.solver, settings.solver.costs(source.info.n_rows, settings.loss))
    if settings.solver.learns_centres and settings.keep_blocks not in ("auto", "never"):
        raise SpecError(
            f"solver {settings.solver.name} got keep_blocks={settings.keep_blocks!r}, but its points "
            "move, and with them all kernel values; choose 'never'"
        )
