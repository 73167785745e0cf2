"""Inspection of fitted models: what their predictions depend on, feature by feature and row by row."""

from daskkern.inspection.columns import TableColumns, columns_of
from daskkern.inspection.gradients import GradientImportance, gradient_importance
from daskkern.inspection.interactions import Interactions, interactions
from daskkern.inspection.permutation import permutation_importance
from daskkern.inspection.row_gradients import score_gradients

__all__ = [
    "GradientImportance",
    "Interactions",
    "TableColumns",
    "columns_of",
    "gradient_importance",
    "interactions",
    "permutation_importance",
    "score_gradients",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
