"""The result of the preparation, which is sent to all ranks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.basis import KernelBasis
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.rows.rows import Rows
from daskkern.data.rows.subset import RowsWithout, original_numbers
from daskkern.data.rows.sweep import SweepPlan
from daskkern.data.schema.column_scaling import Scaling
from daskkern.events import StageFinished
from daskkern.feature_learning import PendingMetric
from daskkern.preconditioners import StableSteps
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.held_sample import HeldSample
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.row_sizes import RowSizes


@dataclass(frozen=True)
class Prepared:
    """What all ranks need to know before they start. Arrays are NumPy's; small, but for the spectrum.

    Attributes
    ----------
    basis : KernelBasis
    indices : (p,) int64 or None
        Row numbers of the columns among the training rows; None with the user's own points.
    points : (p, d) or None
        The user's own points.
    subsample : (s, d) array
        Rows of S, in the order of ``basis.head``.
    state : StableSteps or None
        The preconditioner, or the sizes of sampled rows; None where the solver needs neither.
    targets : Targets
    plan : BatchPlan or SweepPlan
        The second for solvers that deal rows.
    window : int
        Batches between projections.
    validation : (k,) int64 or None
        Row numbers of the source that are held out.
    stages : tuple of StageFinished
    sampling : Sampling or None
        How rows are drawn for batches; None for each once an epoch.
    importance : (p,) float64 or None
        Weights with which the landmarks stand for all rows, where their rule has them.
    alpha : float
        The penalty, as a number also where it was chosen.
    held : HeldSample or None
        Training rows on which the end of the fit is compared with its beginning.
    calibration : HeldSample or None
        Rows that were set aside, which the model is calibrated on.
    scaling : Scaling
        Applied to the rows: the source's own, or one that was learned.
    sizes : RowSizes or None
        How large the rows are that steps are measured on; None where a step looks at its own rows, or at all.
    """

    basis: KernelBasis
    indices: IntArray | None
    points: HostArray | None
    subsample: HostArray
    state: StableSteps | None
    targets: Targets
    plan: BatchPlan | SweepPlan
    window: int
    validation: IntArray | None
    stages: tuple[StageFinished, ...]
    sampling: Sampling | None = None
    importance: HostArray | None = None
    alpha: float = 0.0
    held: HeldSample | None = None
    scaling: Scaling = field(default_factory=Scaling)
    sizes: RowSizes | None = None
    calibration: HeldSample | None = None

    def with_offset(self, offset: FloatArray, *, labelled: bool) -> "Prepared":
        """Return the set-up for a model to whose scores a solver adds `offset` (c,), with the encoding of its samples.

        `labelled` says whether targets are several labels a row.
        """
        labelled = labelled or self.targets.n_classes > 0
        targets = self.targets.with_offset(offset, labelled=labelled)
        samples = [None if each is None else each.with_offset(targets) for each in (self.held, self.calibration)]
        return replace(self, targets=targets, held=samples[0], calibration=samples[1])

    def row_numbers(self) -> IntArray | None:
        """Return the numbers in the source of the rows that the columns are, or None."""
        if self.indices is None or self.validation is None:
            return self.indices
        return original_numbers(self.indices, self.validation)


def training_rows(rows: Rows, validation: IntArray | None) -> Rows:
    """Return `rows` without those held out."""
    return rows if validation is None else RowsWithout(rows, validation)


@dataclass(frozen=True, eq=False)
class Draft:
    """A set-up up to the kernel: what is known before columns are chosen.

    Attributes
    ----------
    settings : FitSettings
        With a kernel whose parameters are numbers: where its metric is still to be made from all rows, with that of
        sampled rows.
    scaling, targets, validation, held
        As in :class:`Prepared`.
    calibration : HeldSample or None
        As in :class:`Prepared`.
    stages : tuple of StageFinished
    pending : PendingMetric or None
        What the metric is to be made of in a pass over all rows; None where nothing is.
    """

    settings: FitSettings
    scaling: Scaling
    targets: Targets
    validation: IntArray | None
    held: HeldSample
    calibration: HeldSample | None
    stages: tuple[StageFinished, ...]
    pending: PendingMetric | None


class Clock:
    """Collects how long each stage took."""

    def __init__(self, earlier: Sequence[StageFinished] = ()) -> None:
        self._last = time.perf_counter()
        self.stages: list[StageFinished] = [*earlier]

    def stage(self, name: str, detail: str) -> None:
        now = time.perf_counter()
        self.stages.append(StageFinished(name, now - self._last, detail))
        self._last = now
