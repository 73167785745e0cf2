"""The score of a model: a record of measures."""

from dataclasses import dataclass, field, replace

from daskkern.data.schema.schema import ClassLabel
from daskkern.evaluation.ranking_curves import RankingCurve
from daskkern.evaluation.score_bins import CalibrationBin, Reliability


@dataclass(frozen=True)
class Score:
    """Metrics of a model on some rows, None where not defined for its task or loss. Fractions, target units.

    Attributes
    ----------
    n_rows : int
    accuracy, error : float
        Of several labels, the shares of rows whose labels are all right, and that have a wrong one.
    confusion : tuple of tuples of int
        Rows of each true class (rows of the table) by predicted class, in the order of `classes`. Rows with a label
        unknown to the model are counted in `unknown` only.
    classes : tuple
    unknown : int
    roc_auc : float
        Area under the ROC curve, for several classes the mean over one-vs-rest. Exact (of scores in float32) up to
        4 million / c different scores of a class; beyond, neighbours in groups of at most one row in (2 million / c)
        count as ties.
    curves : tuple of RankingCurve or None
        ROC and precision-recall curves: one of the second of two classes, else one of each class or label against
        the rest, None of one without rows of both kinds. Not part of :meth:`as_dict`.
    log_loss, brier : float
        Of the probabilities: minus the mean logarithm of the true class's, and the mean of ``sum_k (p_k - y_k)^2``
        over classes, halved for two classes (scikit-learn's convention).
    calibration : tuple of CalibrationBin
        By the largest probability; empty bins are left out.
    calibration_error : float
        The mean difference between confidence and accuracy over rows (expected calibration error, 15 equal ranges).
    rmse, mae, r2 : float
    weight : float
        Sum of the weights of the rows, where they have some, by which all measures but the numbers of rows are
        weighted. None where all rows count alike.
    """

    n_rows: int
    accuracy: float | None = None
    error: float | None = None
    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    roc_auc: float | None = None
    log_loss: float | None = None
    brier: float | None = None
    calibration_error: float | None = None
    classes: tuple[ClassLabel, ...] | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    unknown: int | None = None
    calibration: tuple[CalibrationBin, ...] | None = None
    curves: tuple[RankingCurve | None, ...] | None = field(default=None, repr=False, compare=False)
    weight: float | None = None

    @property
    def rows(self) -> str:
        """The number of rows as text, with their weight if they have one."""
        return f"{self.n_rows:,} rows" + ("" if self.weight is None else f" of total weight {self.weight:,.6g}")

    def with_reliability(self, found: Reliability | None) -> "Score":
        """Return the score with the metrics of probabilities; as it is without them."""
        if found is None:
            return self
        return replace(
            self, log_loss=found.log_loss, brier=found.brier, calibration_error=found.error, calibration=found.bins
        )

    def as_dict(self) -> dict[str, object]:
        """Return the defined fields as JSON values; None for an undefined one, such as R2 of equal targets."""
        known: dict[str, object] = {}
        for key, value in vars(self).items():
            if key == "curves":
                continue
            if key == "calibration" and value is not None:
                known[key] = [vars(part) for part in value]
            elif value is not None:
                known[key] = None if isinstance(value, float) and value != value else value
        return known
