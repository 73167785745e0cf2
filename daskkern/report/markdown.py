"""Model cards in Markdown: purpose, training data, accuracy and limits of a model."""

import re
from collections.abc import Sequence

from daskkern import __version__
from daskkern.data.transactions.overwrite_guard import SUMMARY_MARK
from daskkern.evaluation.plot_data import Observation
from daskkern.models import KernelModel
from daskkern.report import facts, score_facts
from daskkern.report.methods import method_of

_TAGS = {"regression": "tabular-regression"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown_of(name: str, model: KernelModel, observed: Observation | None, test: str) -> str:
    """Return the card of a model called `name`; `test` names the rows that it was scored on, or is "".

    What the model recorded is written as text: none of it is read as Markdown or HTML.
    """
    history = model.history_
    method = method_of(model)
    tag = _TAGS.get(model.task, "tabular-classification") if method is None else method.tag
    score = None if observed is None else observed.score
    metrics = facts.tiles(model, history, score) + ([] if observed is None else score_facts.errors_of(observed))
    scored = "Not scored on test rows: `daskkern report MODEL --card --test STORE` adds them."
    if method is not None:
        scored = "It has no targets to be compared with."
    if score is not None:
        scored = f"On {score.rows} of {_text(test)}." if test else f"On {score.rows} for tests."
    classes = [] if score is None else score_facts.class_rows(score)
    parts = [
        f"---\nlibrary_name: daskkern\ntags: [{tag}, kernel-methods]\n---\n{SUMMARY_MARK}",
        f"# {_text(name)}",
        f"{_text(facts.heading(model))}.",
        "## Use",
        _usage(model),
        "## Data",
        _table(("", ""), facts.data_of(model)),
        "## Model",
        _table(("", ""), facts.model_of(model)),
        "## Settings of the fit",
        _table(("", ""), [*facts.settings_of(model), *facts.run_of(model, history)]),
        "## Metrics",
        scored,
        _table(("metric", "value"), metrics),
        _table(("class", "rows", "recall", "precision", "most often taken for"), classes),
        "## Limits",
        "\n".join(f"- {line}" for line in limits_of(model, tested=score is not None)),
        "## Versions",
        _table(("", ""), [("daskkern that wrote this card", __version__), *facts.environment_of(model)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def limits_of(model: KernelModel, *, tested: bool) -> list[str]:
    """Return what users of a model should know, a sentence or two each."""
    if method_of(model) is not None:
        return [
            "It describes rows like those that it learned from.",
            *_limits_of_columns(model),
            "Differences between groups of people have not been examined.",
        ]
    lines = ["It predicts for rows like those that it learned from; no check says that a row is unlike them."]
    if getattr(model.kernel, "is_shift_invariant", False) and model.task == "regression":
        lines.append("Far from the training rows predictions tend to a constant: it does not extrapolate trends.")
    lines += _limits_of_columns(model)
    calibration = model.calibration
    if calibration is None:
        kind = "probabilities were" if model.has_probabilities else "sets, intervals or probabilities were"
        lines.append(f"No {kind} calibrated on rows that the model did not learn from.")
    elif calibration.method != "held-out":
        lines.append("Sets and intervals have no guarantee: their rows were not set aside from the fit.")
    if not tested:
        lines.append("Its error on rows that it has not seen is not part of this card.")
    lines.append("Differences of its errors between groups of people have not been examined.")
    return lines


def _limits_of_columns(model: KernelModel) -> list[str]:
    """Return what becomes of categories and gaps that the training rows did not have."""
    lines = []
    refused = [column for column in model.encoding or () if column.kind in ("onehot", "ordinal")]
    if refused:
        lines.append(f"Categories that the training data do not have are refused, in {len(refused)} columns.")
    if any(column.kind == "code" for column in model.encoding or ()):
        lines.append("Unknown categories of code columns count as one further category.")
    filled = any(column.fill is not None for column in model.encoding or ())
    how = "replaced by the values that the model records" if filled else "refused"
    return [*lines, f"Missing values are {how}."]


def _usage(model: KernelModel) -> str:
    table = model.encoding is not None
    rows = "a data frame with the columns of the training table" if table else f"(n, {model.n_features}) numbers"
    call = 'daskkern.predict_table(model, rows)["prediction"]' if table else "model.predict(rows)"
    method = method_of(model)
    rows += "" if method is None else f"; for each, {method.predicts}"
    return f'```python\nimport daskkern\n\nmodel = daskkern.load("PATH")\n{call}  # rows: {rows}\n```'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: str) -> str:
    """Return one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))
