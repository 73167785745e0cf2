"""The choice between nonlinear (arcsinh) and affine scaling of features, by their accuracy on a sample.

Leave-one-out errors of ridge regression on sampled rows decide, with the Laplacian kernel (the L1 one where there are
categories) and the median distance whatever the kernel of the fit: a scaling must be the same for every kernel that is
tried on it.
"""

from collections.abc import Sequence

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.data.rows.samples import counted
from daskkern.data.schema.column_scaling import Scaling
from daskkern.errors import DataError
from daskkern.kernels import AutoKernel
from daskkern.linalg.best_penalties import best_penalty
from daskkern.losses import Squared, encode
from daskkern.training.feeding.row_source import RowSource

_SAMPLE = 400  # two eigendecompositions of as many rows: about 0.1 s
_WORSE = 1.05  # errors of two scalings differ by a twentieth by chance
_FLOOR = 1e-7
_DRAW = 61


def fits_as_well(
    bent: Scaling, plain: Scaling, source: RowSource, rows: Rows, categories: Sequence[int], seed: int
) -> bool:
    """Return whether the leave-one-out error with `bent` is at most a twentieth above that with `plain`.

    Parameters
    ----------
    bent, plain : Scaling
        Nonlinear (:mod:`daskkern.data.schema.learned_scaling`) and affine.
    source : RowSource
        Of `rows`, as they are.
    rows : Rows
        Up to 400 of them are read.
    categories : sequence of int
        Columns that hold codes of categories.
    seed : int
    """
    block = take(rows, compared_rows(rows.n_rows, seed), Fields.X | Fields.y | Fields.weight)
    assert block.X is not None
    assert block.y is not None
    X, y = counted(block.X, block.weight), _encoded(source, counted(block.y, block.weight))
    errors = [_error(scaling.apply(X, np.float64), y, categories) for scaling in (bent, plain)]
    return errors[0] is None or errors[1] is None or errors[0] <= _WORSE * errors[1]


def compared_rows(n_rows: int, seed: int) -> IntArray:
    """Return the numbers, ascending, of the rows by which :func:`fits_as_well` decides."""
    return np.sort(generator(seed, _DRAW).choice(n_rows, min(_SAMPLE, n_rows), replace=False))


def _error(X: HostArray, y: FloatArray, categories: Sequence[int]) -> float | None:
    try:
        kernel = AutoKernel(categories=tuple(categories)).resolve(X)
    except DataError:  # all rows are equal
        return None
    gram = kernel.block(X, kernel.points(X, kernel.placement_for(X))).astype(np.float64)
    best = best_penalty(gram, y, None, _FLOOR) if np.isfinite(gram).all() else None
    return None if best is None else best.error


def _encoded(source: RowSource, y: HostArray) -> FloatArray:
    """Return targets (s, c) of ridge regression: -1 and 1 of classes, quantities without their mean and size."""
    classes = source.info.classes
    if classes is not None:
        return np.asarray(encode(Squared(), y, len(classes), "float64"))
    centred = y.astype(np.float64) - y.mean(axis=0)
    size = np.abs(centred).max(axis=0)
    return np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)
