"""The calibration of a model as text."""

from daskkern.calibration import METHODS, conformal_quantile
from daskkern.errors import DataError
from daskkern.models import KernelModel

_CONFIDENCE = 0.9


def calibration_of(model: KernelModel) -> list[tuple[str, str]]:
    """Return the facts about the calibration of a model, as pairs of name and value; none without a calibration."""
    found = model.calibration
    if found is None:
        return []
    facts = [("calibrated on", f"{found.n_rows:,} rows: {METHODS[found.method]}")]
    if found.log_loss is not None and found.error is not None:
        facts.append(("on these rows", f"log loss {found.log_loss:.4g}, calibration error {found.error:.2%}"))
    if found.scaling is not None:
        facts.append(("temperature of the scores", f"{1 / found.scaling.scale:.4g}"))
    try:
        q = conformal_quantile(found.scores, _CONFIDENCE)
    except DataError:  # too few rows
        return facts
    if model.classes is None:
        what = "half width of 90% intervals" if model.loss_function.heads == 1 else "90% intervals exceed quantiles by"
        sizes = ", ".join(f"{value:.5g}" for value in q[:5])
        facts.append((what, sizes + (" ..." if len(q) > 5 else "")))
    else:
        facts.append(("a 90% set has the labels with", f"a probability of at least {max(0.0, 1 - float(q[0])):.3g}"))
    return facts
