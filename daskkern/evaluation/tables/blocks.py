"""What becomes of a block of rows: predictions as columns or arrays, or scores with targets."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.schema.encoding import ColumnEncoding, feature_names_of
from daskkern.evaluation.tables.columns import PredictedArrays, Wanted, batch_of, predicted_arrays
from daskkern.evaluation.tables.rows import InputBlock
from daskkern.models import KernelModel


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Predictions of the rows from row `first` on; `unseen` counts cells of unknown categories by column of codes."""

    first: int
    n_rows: int
    unseen: IntArray
    batch: pa.RecordBatch | None = None
    arrays: PredictedArrays | None = None
    kept: pa.RecordBatch | None = None


@dataclass(frozen=True)
class PredictBlock:
    """Predicts blocks, as one batch of columns, or `as_arrays`."""

    wanted: Wanted
    as_arrays: bool = False

    def __call__(self, model: KernelModel, block: InputBlock) -> BlockResult:
        X = model.check(block.X)
        found = predicted_arrays(model, X, self.wanted)
        unseen = unseen_codes(model.encoding, X)
        if self.as_arrays:
            return BlockResult(block.first, X.shape[0], unseen, arrays=found, kept=block.kept)
        return BlockResult(block.first, X.shape[0], unseen, batch_of(model, found, block.kept, self.wanted))


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """Scores (m, c) and targets of a block."""

    scores: HostArray
    y: HostArray
    unseen: IntArray


def score_block(model: KernelModel, block: InputBlock) -> ScoredBlock:
    """Return the scores and targets of a block."""
    assert block.y is not None
    X = model.check(block.X)
    return ScoredBlock(model.scores(X), block.y, unseen_codes(model.encoding, X))


def coded_columns(encoding: tuple[ColumnEncoding, ...] | None) -> dict[str, tuple[int, int]]:
    """Return the feature and the number of categories of each column of codes."""
    counts = {column.name: len(column.categories) for column in encoding or () if column.kind == "code"}
    names = feature_names_of(encoding or ())
    return {name: (at, counts[name]) for at, name in enumerate(names) if name in counts}


def unseen_codes(encoding: tuple[ColumnEncoding, ...] | None, X: HostArray) -> IntArray:
    """Return how many rows of X (m, d) have a category that the training data lack, for each column of codes."""
    columns = coded_columns(encoding)
    if not columns or is_sparse(X):
        return np.zeros(len(columns), np.int64)
    places, counts = (np.array(part) for part in zip(*columns.values(), strict=True))
    found: IntArray = (X[:, places] >= counts).sum(axis=0)
    return found


def model_digest(model: KernelModel) -> str:
    """Return a digest of all that the predictions of a model depend on."""
    digest = hashlib.sha256()
    points = model.points
    calibration = model.calibration
    arrays = [points.data, points.indices, points.indptr] if is_sparse(points) else [points]
    arrays += [model.coef, *([] if calibration is None else [calibration.scores])]
    for array in (*arrays, model.target_shift, model.target_scale):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    said = [model.kernel.spec(), model.loss, model.task, model.classes, model.scaling.to_json(), model.scores_each]
    said += [None if calibration is None else calibration.to_json()]
    digest.update(json.dumps(said, sort_keys=True, default=str).encode())
    return digest.hexdigest()
