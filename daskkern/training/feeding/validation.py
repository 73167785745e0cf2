"""Validation of a fit on rows that it does not train on."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from daskkern.arrays import Array, FloatArray, IntArray
from daskkern.backend.namespace import to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.rows import Rows, row_fields, take
from daskkern.data.schema.same_columns import other_codes, other_name, other_target
from daskkern.errors import DataError
from daskkern.losses import best_of, decode
from daskkern.solvers import AnyProblem
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Prepared

_BLOCK = 4096


@dataclass(frozen=True)
class ValidationResult:
    """Mean loss, and accuracy or R2, on the validation rows; with several labels a row, R2 of the scores."""

    loss: float
    score: float


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation rows, and the encoding of their targets."""

    rows: Rows
    targets: Targets

    @classmethod
    def open(
        cls, validation: RowSource | None, source: RowSource, prepared: Prepared, settings: FitSettings
    ) -> "Validation | None":
        """Open the user's validation rows, or those of early stopping; return None without either."""
        if validation is not None:
            rows = validation.open(settings.dtype)
            return cls(rows, prepared.targets)
        if prepared.validation is None or settings.early_stopping is None:
            return None
        return cls(held_out(source, prepared.validation, settings.dtype), prepared.targets)

    def score(
        self,
        problem: AnyProblem,
        coef: Array,
        comm: TimedCommunicator,
        xp: ModuleType,
        offset: FloatArray | None = None,
    ) -> ValidationResult:
        """Return mean loss and score of the model with these coefficients; one allreduce for each block of rows.

        `offset` (c,) is added to the scores. Groups of ranks divide each block. All ranks get the same bits.
        """
        loss, right, weights = 0.0, 0.0, 0.0
        errors, first, second = 0.0, np.zeros(self.targets.n_outputs), np.zeros(self.targets.n_outputs)
        group, count = comm.across.rank, comm.across.size
        for part in slices(self.rows.n_rows, _BLOCK * count):
            size = part.stop - part.start
            start, stop = part.start + size * group // count, part.start + size * (group + 1) // count
            with comm.reading():
                block = self.rows.read(start, stop, row_fields(self.rows))
            assert block.y is not None
            problem.part.kernel.check_rows(block.X)
            f = to_host(comm.allreduce(problem.part.scores(to_device(block.X, xp), coef)))
            f = best_of(f, f.shape[1] // self.targets.n_outputs)
            f = f if offset is None else f + offset
            y = self.targets.encode(block.y)
            weight = self.targets.weight(block)
            w = np.ones(len(y)) if weight is None else weight[:, 0].astype(np.float64)
            loss += float(w @ problem.loss.value(f, y))
            weights += float(w.sum())
            if self.targets.n_classes:
                right += float(w @ (decode(self.targets.scores(f)) == block.y))
            else:
                errors += float((w[:, None] * (f - y) ** 2.0).sum())
                first, second = first + w @ y.astype(np.float64), second + w @ y.astype(np.float64) ** 2
        if count > 1:
            own = np.concatenate([[loss, right, weights, errors], first, second])
            loss, right, weights, errors, *moments = comm.whole.broadcast(comm.across.allreduce(own), 0).tolist()
            first, second = np.split(np.array(moments), 2)
        if not weights > 0:
            raise DataError("the validation rows all have weight 0; give other rows for validation")
        if self.targets.n_classes:
            return ValidationResult(loss / weights, right / weights)
        spread = float(np.sum(second - first**2 / weights))
        return ValidationResult(loss / weights, 1 - errors / spread if spread > 0 else float("nan"))


def held_out(source: RowSource, positions: IntArray, dtype: str) -> ArrayRows:
    """Return the rows at `positions` (m,), which were set aside for validation, in memory."""
    rows = source.open(dtype)
    block = take(rows, positions, row_fields(rows))
    assert block.X is not None
    return ArrayRows(block.X, block.y, weight=block.weight, classes=rows.classes, dtype=dtype, chunk_rows=_BLOCK)


def check_comparable(validation: RowSource, source: RowSource) -> None:
    """Raise DataError when validation rows do not match the training rows."""
    theirs, ours = validation.info, source.info
    if theirs.n_features != ours.n_features:
        raise DataError(f"the validation rows have {theirs.n_features} features, the training rows {ours.n_features}")
    other = other_name(ours.feature_names, theirs.feature_names)
    if other is not None:
        raise DataError(
            f"the training rows have feature {other[0]!r} where the validation rows have {other[1]!r}; give the same "
            "columns in the same order"
        )
    coded = other_codes(ours.encoding, theirs.encoding)
    if coded is not None:
        raise DataError(
            f"the categories of column {coded!r} have other numbers in the validation rows than in the training rows; "
            "make both with one ingestion, or with --like"
        )
    if theirs.task == ours.task == "regression" and theirs.n_targets != ours.n_targets:
        raise DataError(f"the validation rows have {theirs.n_targets} targets, the training rows {ours.n_targets}")
    aim = other_target(ours.target_names, theirs.target_names)
    if aim is not None:
        raise DataError(
            f"the training rows have target {aim[0]!r} where the validation rows have {aim[1]!r}; give the same "
            "targets in the same order"
        )
    if theirs.task != ours.task or theirs.classes != ours.classes:
        raise DataError(
            f"the validation rows are for {theirs.task} with classes {theirs.classes}, the training rows for "
            f"{ours.task} with classes {ours.classes}; make both with one ingestion (--split, --out-test)"
        )
    if theirs.scaling != ours.scaling:
        raise DataError("the validation rows are scaled differently from the training rows; ingest both together")
