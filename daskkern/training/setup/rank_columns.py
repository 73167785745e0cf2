"""The columns of a rank, and the inputs of its solver's set-up."""

from types import ModuleType

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import Columns, KernelPart
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.data.rows.samples import features_at
from daskkern.solvers import RankInputs
from daskkern.training.feeding.targets import Targets
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared
from daskkern.training.setup.projections import window_of


def own_rows(rows: Rows, prepared: Prepared, columns: Columns) -> HostArray:
    """Return the points (p_r, d) of the rank's columns, in their order."""
    if prepared.points is not None:
        return prepared.points[columns.ids]
    assert prepared.indices is not None
    X = take(rows, prepared.indices[columns.ids], Fields.X).X
    assert X is not None
    return prepared.basis.points_of(X, columns.ids)


class LabelledRows:
    """The training rows by number, with targets as the loss has them."""

    def __init__(self, rows: Rows, targets: Targets) -> None:
        self._rows, self._targets = rows, targets

    def features(self, positions: IntArray) -> HostArray:
        """Return the features (m, d), dense or CSR."""
        return features_at(self._rows, positions)

    def labels(self, positions: IntArray) -> tuple[HostArray, HostArray | None]:
        """Return the encoded targets (m, c) and the weights (m, 1), which are None where all are 1."""
        block = take(self._rows, positions, Fields.y | Fields.weight)
        assert block.y is not None
        return self._targets.encode(block.y), self._targets.weight(block)


def inputs_of(
    prepared: Prepared,
    settings: FitSettings,
    memory: MemoryPlan,
    threads: int,
    features_stored: bool,
    rows: Rows,
    columns: Columns,
    part: KernelPart,
    points: HostArray,
    comm: Communicator,
    xp: ModuleType,
    n_groups: int = 1,
) -> RankInputs:
    """Return what the solver makes its set-up on this rank from."""
    is_labelled = settings.multilabel or prepared.targets.n_classes > 0
    return RankInputs(
        basis=prepared.basis,
        columns=columns,
        part=part,
        points=points,
        own_points=prepared.points,
        indices=prepared.indices,
        importance=prepared.importance,
        explicit=settings.basis.is_explicit,
        state=prepared.state,
        subsample=prepared.subsample,
        rows=LabelledRows(rows, prepared.targets),
        n_rows=prepared.plan.n_rows,
        batch_size=prepared.plan.batch_size,
        window=window_of(prepared, memory),
        loss=settings.loss,
        alpha=settings.ridge,
        dtype=settings.dtype,
        seed=settings.seed,
        threads=threads,
        factor_fits=memory.sizes is None or memory.sizes.exact,
        features_stored=features_stored,
        with_offset=settings.class_intercept if is_labelled else settings.fit_intercept,
        comm=comm,
        xp=xp,
        n_groups=n_groups,
        largest_batch=int(np.max(prepared.plan.batch_sizes)),
    )
