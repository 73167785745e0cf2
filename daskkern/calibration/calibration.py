"""The calibration record of a model: statistics of its out-of-sample scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.calibration.posterior import Posterior
from daskkern.calibration.scaling import ScoreScaling
from daskkern.errors import ModelError

METHODS = {
    "leave-one-out": "approximate leave-one-out scores of training rows",
    "held-out": "rows that were set aside",
    "validation": "validation rows",
}
"""Where calibration scores come from, with a few words for people."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a model records of its scores on rows that it has not learned from.

    Attributes
    ----------
    method : str
        One of :data:`METHODS`. Only with rows that were set aside, or validation rows that did not stop the fit, do
        sets and intervals have the guarantee of split-conformal prediction.
    n_rows : int
    scores : (n_rows, t) float64
        Nonconformity scores, ascending: ``1 - p`` of the true class, t = 1; or absolute errors in target units, one
        column a target; or of several quantiles how far a target is below the lowest or above the highest.
    scaling : ScoreScaling or None
        How scores become probabilities; None for regression, and where the loss has probabilities that fit better.
    posterior : Posterior or None
        For regression, what the posterior variance needs besides the points; None where columns are not kernels.
    log_loss, error : float or None
        Of the probabilities on these rows; `error` is the expected calibration error.
    """

    method: str
    n_rows: int
    scores: FloatArray = field(repr=False)
    scaling: ScoreScaling | None = None
    log_loss: float | None = None
    error: float | None = None
    posterior: Posterior | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all but the scores, which are stored as an array, as JSON values."""
        return {
            "method": self.method,
            "n_rows": int(self.n_rows),
            "scale": None if self.scaling is None else self.scaling.scale,
            "offset": [] if self.scaling is None else list(self.scaling.offset),
            "log_loss": self.log_loss,
            "error": self.error,
            "posterior": None if self.posterior is None else self.posterior.to_json(),
        }

    @classmethod
    def from_json(
        cls, value: Mapping[str, Any], scores: FloatArray, n_classes: int, n_targets: int, *, signed: bool = False
    ) -> "Calibration":
        """Return what :meth:`to_json` and the stored scores describe, for a model of these sizes (0: no classes).

        `signed` says that scores may be negative.

        Raises
        ------
        ModelError
            For values that no calibration has. Other malformed values raise TypeError, KeyError or ValueError.
        """
        method, n_rows, scale = value["method"], value["n_rows"], value["scale"]
        offset = tuple(float(number) for number in value["offset"])
        if method not in METHODS or scores.shape != (n_rows, 1 if n_classes else n_targets) or n_rows < 1:
            raise ModelError(f"its calibration {method!r} of {n_rows!r} rows has scores of shape {scores.shape}")
        if not (np.isfinite(scores).all() and (signed or (scores >= 0).all()) and (np.diff(scores, axis=0) >= 0).all()):
            raise ModelError("its calibration scores are not ascending numbers of 0 or more")
        scaling = None
        if scale is not None:
            scaling = ScoreScaling(float(scale), offset)
            known = np.isfinite([scaling.scale, *offset]).all() and scaling.scale > 0
            if not known or not n_classes or len(offset) not in (0, n_classes):
                raise ModelError(f"its calibration has the scale {scale!r} and offsets for {len(offset)} classes")
        loss, error = (None if value[name] is None else float(value[name]) for name in ("log_loss", "error"))
        posterior = value.get("posterior")
        found = None if posterior is None else Posterior.from_json(posterior, n_targets)
        return cls(method, n_rows, scores, scaling, loss, error, found)
