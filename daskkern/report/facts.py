"""The content of a report, read from a model and its score."""

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import TypeAlias

import numpy as np

from daskkern.display import rounded
from daskkern.errors import ModelError
from daskkern.evaluation.calibration_facts import calibration_of
from daskkern.evaluation.metrics import Score
from daskkern.kernels import Neuron, TreeAverage
from daskkern.models import KernelModel
from daskkern.monitor.event_text import line_of
from daskkern.monitor.formatting import format_bytes, setting_in_words, whole_seconds
from daskkern.monitor.history import History
from daskkern.monitor.shares import PARTS
from daskkern.report.methods import method_of, parameters_of

Facts: TypeAlias = list[tuple[str, str]]
"""Names and values, one line each."""

_REASONS = {
    "max_epochs": "all epochs were run",
    "max_seconds": "the time limit was reached",
    "early_stopping": "validation rows no longer improved",
    "converged": "the solver had converged",
    "interrupted": "it was interrupted",
}
_MOST_FEATURES = 20
_LONGEST = 200  # characters of a kernel, which may have a number for each feature
_REMARKS = {
    "computing": "mean of the ranks, validation included",
    "reading": "without reading in the background",
    "checkpointing": "files are written in the background",
    "waiting": "until the slowest rank has computed its part of a sum",
    "exchanging": "sending parts of sums and adding them",
}


def check_facts(model: KernelModel) -> None:
    """Raise ModelError if the information saved with the model's arrays cannot be shown."""
    history = model.history_
    try:
        escape(heading(model))
        for found in (settings_of(model), data_of(model), run_of(model, history), environment_of(model)):
            for _, value in found:
                escape(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelError(
            f"what was saved with the model about its fit cannot be read ({type(error).__name__}: {error}); the model "
            "is damaged or was written by another program: save it again"
        ) from None


def heading(model: KernelModel) -> str:
    """Return one line on the model and its training data."""
    settings, data = model.provenance.get("settings", {}), model.provenance.get("data", {})
    method = method_of(model)
    kind = {"classification": "Classifier", "multilabel": "Classifier of several labels"}.get(model.task, "Regressor")
    solver = settings.get("solver", {}).get("name") if method is None else None
    words = [
        kind if method is None else method.name,
        f"by {solver}" if solver else "",
        f"with {model.points.shape[0]:,} columns",
    ]
    if data:
        words.append(f"on {data['rows']:,} rows of {data['name']}")
    return " ".join(word for word in words if word)


def tiles(model: KernelModel, history: History, score: Score | None) -> Facts:
    """Return the key numbers with their names, the most important first."""
    found: Facts = []
    if score is not None:
        found += _score_tiles(score)
    scores = history["validation_score"]
    if score is None and not np.isnan(scores).all():
        best = float(np.nanmax(scores))
        name = "best validation accuracy" if model.task == "classification" else "best validation R\N{SUPERSCRIPT TWO}"
        found.append((name, f"{best:.2%}" if model.task == "classification" else f"{best:.4f}"))
    if len(history):
        found.append(("final training loss", f"{history[-1].loss:.4g}"))
        found.append(("epoch" if history[-1].epoch == 1 else "epochs", f"{history[-1].epoch:,}"))
        if np.isfinite(history[-1].elapsed):
            found.append(("time, set-up included", duration(history[-1].elapsed)))
        rates = history["rows_per_second"]
        if not np.isnan(rates).all():
            found.append(("rows/s, median epoch", f"{np.nanmedian(rates):,.0f}"))
    found.append(("size of the model", format_bytes(model.nbytes)))
    return found


def _score_tiles(score: Score) -> Facts:
    if score.accuracy is None:
        named = {"test RMSE": score.rmse, "test MAE": score.mae, "test R\N{SUPERSCRIPT TWO}": score.r2}
        found = [(name, f"{value:.4g}") for name, value in named.items() if value is not None]
        if score.rmse is not None and score.r2 is not None and score.r2 < 1:
            found.insert(1, ("RMSE of the mean alone", f"{score.rmse / (1 - score.r2) ** 0.5:.4g}"))
        return found
    found = [("test accuracy", f"{score.accuracy:.2%}")]
    if score.confusion is not None:
        counts = [sum(row) for row in score.confusion]
        found.append(("the most frequent class alone", f"{max(counts) / max(1, sum(counts)):.2%}"))
    if score.roc_auc is not None:
        found.append(("test ROC-AUC", f"{score.roc_auc:.4f}"))
    if score.log_loss is not None:
        found.append(("test log loss", f"{score.log_loss:.4g}"))
    if score.calibration_error is not None:
        found.append(("calibration error", f"{score.calibration_error:.2%}"))
    return found


def settings_of(model: KernelModel) -> Facts:
    """Return the settings of the fit, or the parameters of an unsupervised estimator."""
    found: Facts = []
    given = model.provenance.get("settings", {}) if method_of(model) is None else parameters_of(model)
    for name, value in given.items():
        if isinstance(value, Mapping) and "name" in value:
            rest = ", ".join(f"{key} {setting_in_words(item)}" for key, item in value.items() if key != "name")
            found.append((_label(name), f"{value['name']}" + (f" ({rest})" if rest else "")))
        elif isinstance(value, Mapping):
            found.append((_label(name), ", ".join(f"{key} {setting_in_words(item)}" for key, item in value.items())))
        else:
            found.append((_label(name), setting_in_words(value)))
    return found


def data_of(model: KernelModel) -> Facts:
    """Return the facts about the training data."""
    data = model.provenance.get("data", {})
    found: Facts = []
    if data:
        found = [("rows from", data["name"]), ("rows", f"{data['rows']:,}")]
    sparse = data.get("stored_entries")
    density = "" if sparse is None else f", sparse: {sparse / max(1, data['rows'] * data['features']):.3g} stored"
    found.append(("features", f"{model.n_features:,}{density}"))
    if model.feature_names:
        found.append(("feature names", _some(model.feature_names)))
    if method_of(model) is not None:
        found.append(("outputs", f"{model.n_outputs:,}"))
    elif model.classes is not None:
        found.append((f"classes ({len(model.classes):,})", _some([str(label) for label in model.classes])))
    else:
        found.append(("targets", _some(model.target_names) if model.target_names else f"{_targets(model):,}"))
    found.append(("scaling of features", model.scaling.kind))
    if model.encoding is not None:
        found.append(("encoding", f"{len(model.encoding):,} columns of a table became {model.n_features:,} features"))
    return found


def model_of(model: KernelModel) -> Facts:
    """Return the facts about the model itself."""
    trees = [("trees", f"{model.kernel.n_trees:,}")] if isinstance(model.kernel, TreeAverage) else []
    return [
        *trees,
        ("kernel", textwrap.shorten(rounded(repr(model.kernel)), _LONGEST, placeholder=" ...")),
        *([("loss", model.loss)] if method_of(model) is None else []),
        ("columns", f"{model.points.shape[0]:,} points of {model.points.shape[1]:,} numbers, {model.points.dtype}"),
        ("coefficients", f"{model.coef.shape[0]:,} x {model.coef.shape[1]:,}"),
        ("size", format_bytes(model.nbytes)),
        *calibration_of(model),
    ]


def run_of(model: KernelModel, history: History) -> Facts:
    """Return the facts about the course of the run."""
    found: Facts = []
    reason = model.provenance.get("reason")
    if reason:
        found.append(("it ended because", _REASONS.get(reason, reason)))
    if model.provenance.get("finished_at"):
        found.append(("finished", str(model.provenance["finished_at"]).replace("T", " ").replace("+00:00", " UTC")))
    if history.started is not None:
        started = history.started
        in_groups = f", in {started.groups} groups that divide each batch" if started.groups > 1 else ""
        found.append(("ranks", f"{started.size:,}{in_groups}"))
    if history.checkpoints:
        found.append(("checkpoints", f"{history.checkpoints:,}, {duration(history.checkpoint_seconds)} of writing"))
    sent = int(history["bytes_sent"].sum())
    if sent:
        found.append(("sent by rank 0", format_bytes(sent)))
    for incident in history.incidents[-20:]:
        line = line_of(incident.event, 0)
        if line is not None:
            found.append((f"after {duration(incident.elapsed)}", line.strip()))
    return found


def environment_of(model: KernelModel) -> Facts:
    """Return the facts about software and machine."""
    found = model.provenance.get("environment", {})
    if not found:
        return []
    lines = [
        ("processor", f"{found['processor']}, {found['cores']} cores"),
        ("memory", format_bytes(int(found["memory_bytes"]))),
        ("system", str(found["system"])),
        ("Python", str(found["python"])),
    ]
    return [*lines, *((name, str(version)) for name, version in found["versions"].items())]


def time_parts(history: History) -> list[tuple[str, float, str]]:
    """Return the parts of the time: name, seconds and a remark for each part of more than a millisecond."""
    parts = [(stage.stage, stage.seconds, stage.detail) for stage in history.stages if stage.seconds >= 1e-3]
    seconds = np.nan_to_num(history["seconds"])
    if np.isnan(history["computing"]).all():
        parts.append(
            (
                "training",
                float(seconds.sum()),
                f"{len(history):,} epoch{'s' * (len(history) != 1)}, validation included",
            )
        )
    else:
        known = np.nan_to_num(history["computing"]) > 0
        for column, name in PARTS.items():
            parts.append((name, float((np.nan_to_num(history[column]) * seconds).sum()), _REMARKS.get(column, "")))
        parts.append(("other epochs", float(seconds[~known].sum()), "not measured separately"))
    if len(history) and np.isfinite(history[-1].elapsed):
        rest = history[-1].elapsed - sum(part[1] for part in parts)
        parts.append(("between", rest, "reading before the first epoch, recovery, reports"))
    return [part for part in parts if part[1] >= 1e-3]


def feature_rows(model: KernelModel) -> list[tuple[str, ...]]:
    """Return a row for each of the features that weigh most in the metric of the kernel; none where all are alike."""
    shares = model.feature_importances()
    is_estimate = isinstance(model.kernel, Neuron)  # differences are chance where no metric was learned
    if is_estimate or np.ptp(shares) < 1e-9:
        return []
    names = model.feature_names or tuple(f"feature {j}" for j in range(len(shares)))
    most = np.argsort(-shares, kind="stable")[:_MOST_FEATURES]
    return [(names[j], f"{shares[j]:.2%}") for j in most]


def duration(seconds: float) -> str:
    """Return seconds as text with units."""
    return f"{seconds:.3g} s" if seconds < 60 else whole_seconds(round(seconds))


def _targets(model: KernelModel) -> int:
    return model.n_targets


def _label(name: str) -> str:
    return name.replace("_", " ")


def _some(names: Sequence[str], most: int = 12) -> str:
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
