"""The number of rows that a fit holds out, for early stopping and for calibration."""

from typing import Protocol

from daskkern.basis import BasisSpec
from daskkern.calibration.leave_one_out import most_rows
from daskkern.errors import DataError, SpecError
from daskkern.losses import Curved, Loss, Squared
from daskkern.models.posterior import MOST_POINTS
from daskkern.training.run.early_stopping import EarlyStopping

MOST_CALIBRATION_ROWS = 2_000
"""Rows that a model is calibrated on: the coverage of sets and intervals then varies by 0.7% from fit to fit."""
MOST_LEFT_OUT_ROWS = 10_000
"""Training rows up to which leave-one-out scores take the place of rows that are set aside, but for many landmarks."""
_MOST_VALIDATION_ROWS = 20_000
_SHARE = 0.05
_PARTIAL_ROWS = 500  # of each of many calls
_MATRICES = 5  # of float64 that are held at once, in a tenth of the memory


class SetsAside(Protocol):
    """The settings that decide how many rows are set aside."""

    @property
    def basis(self) -> BasisSpec:
        """The columns of the model."""
        ...

    @property
    def early_stopping(self) -> EarlyStopping | None:
        """When to stop early."""
        ...

    @property
    def calibrate(self) -> bool | float:
        """Whether to calibrate, or the share of rows to set aside."""
        ...

    @property
    def rows_follow(self) -> bool:
        """Whether the fit continues with other rows."""
        ...


class LeavesOut(SetsAside, Protocol):
    """The settings that also decide how many training rows have leave-one-out scores."""

    @property
    def loss(self) -> Loss:
        """The loss of the fit."""
        ...

    @property
    def memory_budget(self) -> int | None:
        """Bytes that a rank may use."""
        ...


def rows_set_aside(n_rows: int, settings: SetsAside) -> int:
    """Return how many of `n_rows` rows a fit without validation rows sets aside; 0 for none.

    Those of early stopping serve both purposes.
    """
    if settings.early_stopping is not None:
        return min(round(settings.early_stopping.fraction * n_rows), _MOST_VALIDATION_ROWS)
    if settings.rows_follow or settings.calibrate is False:
        return 0
    if settings.calibrate is True:
        is_left_out = n_rows <= MOST_LEFT_OUT_ROWS and not _has_many_landmarks(settings.basis, n_rows)
        return 0 if is_left_out else min(round(_SHARE * n_rows), MOST_CALIBRATION_ROWS)
    return min(max(1, round(settings.calibrate * n_rows)), MOST_CALIBRATION_ROWS)


def rows_left_out(n_outputs: int, settings: LeavesOut) -> int:
    """Return how many training rows stand for new ones at most, with leave-one-out scores, of fits that set none aside.

    Matrices of them take at most a tenth of a memory budget.
    """
    one_factor = settings.loss == Squared() or not isinstance(settings.loss, Curved)
    most = most_rows(1 if one_factor else n_outputs)
    most = min(most, _PARTIAL_ROWS) if settings.rows_follow else most
    budget = settings.memory_budget
    return most if budget is None else min(most, int((budget / 10 / (8 * _MATRICES)) ** 0.5))


def calibration_bytes(n_rows: int, n_outputs: int, settings: LeavesOut, *, labelled: bool) -> int:
    """Return the bytes of calibrating a fitted model: matrices of rows left out, or of points of a posterior variance.

    `labelled` says whether the targets are classes, whose scores have no posterior variance.
    """
    if settings.calibrate is False:
        return 0
    k = 0 if rows_set_aside(n_rows, settings) else rows_left_out(n_outputs, settings)
    return 8 * _MATRICES * min(n_rows, k if labelled else max(k, MOST_POINTS)) ** 2


def check_set_aside(n_rows: int, settings: SetsAside) -> None:
    """Raise DataError where the rows that are set aside leave fewer than two to train on."""
    if (k := rows_set_aside(n_rows, settings)) > 0:
        check_share(n_rows, k, settings)


def check_share(n_rows: int, k: int, settings: SetsAside) -> None:
    """Raise DataError unless k rows can be set aside of so many: one at least, and all but two at most."""
    if k < 1 or n_rows - k < 2:
        early = settings.early_stopping
        share = f"calibrate={settings.calibrate}" if early is None else f"validation_fraction={early.fraction}"
        raise DataError(f"{n_rows} rows are too few to hold out a share of them ({share}); give another share")


def _has_many_landmarks(basis: BasisSpec, n_rows: int) -> bool:
    """Return whether a part of the rows are landmarks, too many of them for leave-one-out scores.

    With all rows as centres the kernel values of the sampled rows say how a row moves its own score. Those of the space
    of a part of them need its factor, and with many the scores would move too far, because a fit of some epochs uses
    few of its directions: for 5,600 of 7,000 rows 90% intervals covered 99%, and with the kernel values alone 100%.
    """
    count = 0 if basis.all_rows or basis.is_explicit else basis.n_landmarks or 0
    return MOST_CALIBRATION_ROWS <= count < n_rows


def check_calibrate(calibrate: object) -> None:
    """Raise SpecError unless `calibrate` is a bool, or a number between 0 and 1."""
    if isinstance(calibrate, bool) or (isinstance(calibrate, float) and 0 < calibrate < 1):
        return
    raise SpecError(
        f"got calibrate={calibrate!r}; give True, False, or a share of the rows between 0 and 1, such as 0.1"
    )
