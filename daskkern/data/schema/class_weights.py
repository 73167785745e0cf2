"""Weights of classes: requested by label, or balanced."""

from collections.abc import Mapping

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import SpecError


def weights_of_classes(
    requested: str | Mapping[ClassLabel, float] | None,
    classes: tuple[ClassLabel, ...],
    weights: FloatArray,
) -> FloatArray | None:
    """Return the weight of each class (n_classes,), or None where none was requested.

    Parameters
    ----------
    requested : "balanced", mapping or None
        "balanced" is inversely proportional to the sums of weights, so that a row of weight 2 counts as two rows.
    classes : tuple
        Labels by code.
    weights : (n_classes,) array
        Sums of the weights of the rows of each class.

    Raises
    ------
    SpecError
        For weights of unknown classes, weights that are negative or not finite, and weights that are all zero.
    """
    if requested is None:
        return None
    if isinstance(requested, str):
        present = weights > 0
        return np.where(present, weights.sum() / (max(1, present.sum()) * np.where(present, weights, 1.0)), 1.0)
    if not isinstance(requested, Mapping) or not all(isinstance(value, int | float) for value in requested.values()):
        raise SpecError(f"got class_weight={requested!r}; expected 'balanced' or a mapping from label to number")
    unknown = [label for label in requested if label not in classes]
    if unknown:
        raise SpecError(f"class_weight names {unknown}, but the classes are {list(classes)[:20]}")
    chosen = np.array([float(requested.get(label, 1.0)) for label in classes])
    if not (np.isfinite(chosen).all() and (chosen >= 0).all() and (chosen * weights).sum() > 0):
        raise SpecError(f"got class_weight={dict(requested)}; weights must be finite, not negative, not all zero")
    return chosen
