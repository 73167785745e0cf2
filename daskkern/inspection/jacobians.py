"""Jacobians of the scores of a fitted model by its scaled features."""

from typing import Any

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.namespace import namespace_for, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.errors import DataError, SpecError
from daskkern.inspection.rows import scaled
from daskkern.models import KernelModel

TILE_ELEMENTS = 1 << 22
"""Numbers of a tile of gradients: 32 MiB."""


def tiles(model: KernelModel, m: int) -> list[slice]:
    """Return pieces of m rows whose gradients are one tile."""
    return slices(m, max(1, min(1024, TILE_ELEMENTS // max(1, model.coef.shape[1] * model.n_features))))


def jacobians(model: KernelModel, X: Any, device: str, *, is_scaled: bool = False) -> FloatArray:
    """Return the gradients (m, c, d) of the scores by the scaled features, at rows in the units of the training data.

    With `is_scaled` the scaling has been applied to the rows.

    Raises
    ------
    SpecError
        For a model without gradients.
    DataError
        When they are not finite.
    """
    xp = namespace_for(device)
    rows, points, coef = (
        to_device(X if is_scaled else scaled(model, X), xp),
        to_device(model.points, xp),
        xp.asarray(model.coef),
    )
    try:
        J = model.kernel.gradient_matvec(rows, points, coef)
    except SpecError as error:
        raise SpecError(f"{error}; permutation_importance needs none") from None
    if model.scores_each > 1:  # an output is the largest of its scores
        (m, c, d), each = J.shape, model.scores_each
        largest = model.kernel.matvec(rows, points, coef).reshape(m, c // each, each).argmax(axis=2)
        J = xp.take_along_axis(J.reshape(m, c // each, each, d), largest[:, :, None, None], axis=2)[:, :, 0]
    found: FloatArray = to_host(J)
    if not np.isfinite(found).all():
        raise DataError(
            "gradients of the model are not finite at some rows; look for values far from the training data"
        )
    return found
