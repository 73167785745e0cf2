"""The part of a report on scored rows: errors, classes, and the worst rows, as text."""

import numpy as np

from daskkern.evaluation.metrics import Score
from daskkern.evaluation.plot_data import Observation
from daskkern.models import KernelModel
from daskkern.report.facts import Facts

_MOST_CLASSES, _MOST_TARGETS = 50, 4


def errors_of(observed: Observation) -> Facts:
    """Return the size of the errors of a regression, in the units of its targets; empty for a classification."""
    score = observed.score
    if score.rmse is None or score.mae is None or score.r2 is None:
        return []
    errors = observed.predictions - observed.targets
    low, middle, high = np.quantile(np.abs(errors), (0.5, 0.9, 0.99))
    return [
        ("root of the mean square (RMSE)", f"{score.rmse:.5g}"),
        ("mean size (MAE)", f"{score.mae:.5g}"),
        ("mean, a bias if far from 0", f"{errors.mean():.4g}"),
        ("half of them are below", f"{low:.4g}"),
        ("nine of ten are below", f"{middle:.4g}"),
        ("99 of 100 are below", f"{high:.4g}"),
        ("spread of the targets", f"{np.std(observed.targets, axis=0).mean():.5g}"),
        ("share of variance explained (R\N{SUPERSCRIPT TWO})", f"{score.r2:.4f}"),
    ]


def class_rows(score: Score) -> list[tuple[str, ...]]:
    """Return a row for each class: label, rows, recall, precision, and the label it is most often mistaken for."""
    if score.confusion is None or score.classes is None:
        return []
    counts = np.array(score.confusion, float)
    right, true, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    rows: list[tuple[str, ...]] = []
    for k, label in enumerate(score.classes[:_MOST_CLASSES]):
        wrong = counts[k].copy()
        wrong[k] = 0
        most = int(wrong.argmax())
        taken = f"{score.classes[most]} ({wrong[most]:,.0f})" if wrong[most] else "\N{EN DASH}"
        rows.append((str(label), f"{true[k]:,.0f}", _share(right[k], true[k]), _share(right[k], predicted[k]), taken))
    return rows


def worst_rows(model: KernelModel, observed: Observation) -> list[tuple[str, ...]]:
    """Return a row for each of the worst rows: its number, the truth, the prediction, and how wrong that is."""
    form = ".2%" if model.task == "classification" and model.has_probabilities else ".4g"
    return [
        (f"{row.row:,}", _value(row.truth), _value(row.predicted), format(row.measure, form)) for row in observed.worst
    ]


def worst_measure(model: KernelModel) -> str:
    """Return the heading of the last column of :func:`worst_rows`."""
    if model.task == "regression":
        return "error" if model.n_targets == 1 else "length of the errors"
    return "probability of the truth" if model.has_probabilities else "margin of the truth"


def _value(value: object) -> str:
    if not isinstance(value, tuple):
        return str(value)
    shown = ", ".join(f"{number:.5g}" for number in value[:_MOST_TARGETS])
    return f"{shown}, ..." if len(value) > _MOST_TARGETS else shown


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "\N{EN DASH}"
