"""The job of a fit: rows, settings and earlier state, the same in one process and on a cluster."""

from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, Future

from daskkern.cluster.scheduler.fits import FitMetadata, new_metadata
from daskkern.data.schema.schema import Scaling
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.planning.planner import holds_out
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.scaling import with_scaling


@dataclass(frozen=True, eq=False)
class FitJob:
    """What is fitted to which rows.

    Attributes
    ----------
    source : RowSource
        The training rows.
    settings : FitSettings
    validation : RowSource or None
        Rows to validate on.
    policy : CheckpointPolicy
    before : Prepared or None
        The set-up of a fit on other rows that this one continues.
    """

    source: RowSource
    settings: FitSettings
    validation: RowSource | None
    policy: CheckpointPolicy
    before: Prepared | None = None

    @property
    def sources(self) -> list[RowSource]:
        """All sources that are read."""
        return [self.source, *([] if self.validation is None else [self.validation])]

    @property
    def holds_out(self) -> bool:
        """Whether training rows are set aside for validation."""
        return holds_out(self.settings, self.validation)

    def scaled(self, scaling: Scaling) -> "FitJob":
        """Return the job on rows scaled like this."""
        watched = None if self.validation is None else with_scaling(self.validation, scaling)
        return replace(self, source=with_scaling(self.source, scaling), validation=watched)

    def for_cluster(self, client: Client) -> "tuple[FitJob, tuple[Future[Any], ...]]":
        """Return the job on sources that workers can open, and the futures to keep meanwhile."""
        source, keep = self.source.for_cluster(client)
        watched, keep_too = (None, ()) if self.validation is None else self.validation.for_cluster(client)
        return replace(self, source=source, validation=watched), (*keep, *keep_too)


def metadata_of(
    source: RowSource, settings: FitSettings, name: str | None = None, out: str = "", *, detached: bool = False
) -> FitMetadata:
    """Return the entry of a new fit in the registry of fits; without a `name` that of its solver."""
    new = new_metadata(name or settings.solver.name)
    return replace(new, source=source.origin, out=out, max_epochs=settings.max_epochs, detached=detached)
