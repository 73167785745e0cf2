"""Feature importances for a report, on a random sample of the scored rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.data.storage.store import Store
from daskkern.errors import DataError, SpecError
from daskkern.inspection import (
    GradientImportance,
    Interactions,
    gradient_importance,
    interactions,
    permutation_importance,
)
from daskkern.models import KernelModel
from daskkern.plot.importances import alignments, importances
from daskkern.plot.importances import interactions as draw_interactions
from daskkern.report.pictures import Picture

NAMES = ("importances", "permutation", "alignments", "interactions")
_ROWS, _REPEATS, _PAIR_ROWS = 1000, 3, 200
_MOST_PERMUTED, _MOST_PAIRED = 15, 10
_MOST_FEATURES = 5000  # gradients at 1,000 rows take as long as some products with them


@dataclass(frozen=True, eq=False)
class Explanation:
    """Importances of a model: by its gradients, where it has them, and by permutation."""

    gradients: GradientImportance | None
    permuted: Any
    joint: Interactions | None


def explain(model: KernelModel, store: Store) -> Explanation | None:
    """Return what the predictions of `model` depend on at random rows of `store`; None for very many features."""
    if model.n_features > _MOST_FEATURES:
        return None
    try:
        found = gradient_importance(model, store, max_rows=_ROWS)
        joint = interactions(model, store, max_rows=_PAIR_ROWS)
    except SpecError:  # a kernel without derivatives
        found, joint = None, None
    columns = None if found is None else np.argsort(-found.importances, kind="stable")[:_MOST_PERMUTED].tolist()
    if columns is None and model.n_features > _MOST_PERMUTED:
        return None
    try:
        permuted = permutation_importance(model, store, n_repeats=_REPEATS, max_rows=_ROWS, columns=columns)
    except DataError:  # no label of the sampled rows is one of the model
        permuted = None
    return Explanation(found, permuted, joint)


def feature_pictures(found: Explanation | None) -> list[Picture]:
    """Return the pictures of an explanation."""
    if found is None:
        return []
    pictures = []
    by_gradient, permuted = found.gradients, found.permuted
    if permuted is not None:
        caption = f"By how much the score, {permuted.score:.4f}, falls when a column is permuted"
        pictures.append(Picture("features", "permutation", caption, lambda axes: importances(permuted, axes=axes)))
    if by_gradient is None:
        return pictures
    caption = f"Shares of the squared gradient of the scores, {by_gradient.n_rows:,} rows"
    pictures.append(Picture("features", "importances", caption, lambda axes: importances(by_gradient, axes=axes)))
    if by_gradient.products is not None and len(by_gradient.names) > 1:
        caption = "Columns that move predictions together"
        draw = lambda axes: alignments(by_gradient, n_columns=_MOST_PAIRED, axes=axes)  # noqa: E731
        pictures.append(Picture("features", "alignments", caption, draw, 5.0, 4.2))
    joint = found.joint
    if joint is not None and len(joint.names) > 1:
        caption = "Pairs that interact: the slope along one depends on the other"
        draw_joint = lambda axes: draw_interactions(joint, axes=axes)  # noqa: E731
        pictures.append(Picture("features", "interactions", caption, draw_joint, 5.0, 4.2))
    return pictures
