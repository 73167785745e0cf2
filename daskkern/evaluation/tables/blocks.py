"""The work on one block of rows: predictions as columns or arrays, or scores against targets."""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.evaluation.tables.columns import PredictedArrays, RequestedColumns, batch_of, predicted_arrays
from daskkern.evaluation.tables.rows import InputBlock
from daskkern.models import KernelModel


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Predictions of the rows from row `first` on; `unseen` counts unknown categories, by column of categories."""

    first: int
    n_rows: int
    unseen: IntArray
    batch: pa.RecordBatch | None = None
    arrays: PredictedArrays | None = None
    kept: pa.RecordBatch | None = None


@dataclass(frozen=True)
class PredictBlock:
    """Predicts blocks, as one batch of columns, or `as_arrays`."""

    wanted: RequestedColumns
    as_arrays: bool = False

    def __call__(self, model: KernelModel, block: InputBlock) -> BlockResult:
        X = model.check(block.X)
        found = predicted_arrays(model, X, self.wanted)
        unseen = unseen_categories(model.encoding, X)
        if self.as_arrays:
            return BlockResult(block.first, X.shape[0], unseen, arrays=found, kept=block.kept)
        return BlockResult(block.first, X.shape[0], unseen, batch_of(model, found, block.kept, self.wanted))


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """Scores (m, c), targets and weights of a block."""

    scores: HostArray
    y: HostArray
    unseen: IntArray
    weight: HostArray | None = None


def score_block(model: KernelModel, block: InputBlock) -> ScoredBlock:
    """Return the scores and targets of a block."""
    assert block.y is not None
    X = model.check(block.X)
    return ScoredBlock(model.scores(X), block.y, unseen_categories(model.encoding, X), block.weight)


def columns_of_categories(encoding: tuple[ColumnEncoding, ...] | None) -> dict[str, tuple[slice, ColumnEncoding]]:
    """Return the features of each column of categories in which one may be unknown."""
    found, at = {}, 0
    for column in encoding or ():
        if column.kind in ("code", "onehot"):
            found[column.name] = slice(at, at + column.width), column
        at += column.width
    return found


def unseen_categories(encoding: tuple[ColumnEncoding, ...] | None, X: HostArray) -> IntArray:
    """Return how many rows of X (m, d) have a category that the training data lack, for each column of categories."""
    columns = columns_of_categories(encoding)
    if not columns or is_sparse(X):
        return np.zeros(len(columns), np.int64)
    return np.array([_unseen(X[:, features], column) for features, column in columns.values()], np.int64)


def _unseen(features: HostArray, column: ColumnEncoding) -> int:
    """Return how many rows have none of the categories of a column, of whose codes or features (m, width) these are."""
    if column.kind == "code":
        return int(np.count_nonzero(features[:, 0] >= len(column.categories)))
    return int(np.count_nonzero(~features.any(axis=1)))


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
