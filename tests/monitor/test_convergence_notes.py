"""A fit that ran out of epochs says whether it was still on its way."""

import numpy as np
import pytest

from daskkern.events import EpochFinished, FitFinished, from_message, to_message
from daskkern.monitor.convergence import convergence_note
from daskkern.monitor.event_text import line_of

_EPOCHS = np.arange(1.0, 21)


def _note(
    losses: np.ndarray, reason: str = "max_epochs", alpha: float = 1e-3, watched: np.ndarray | None = None
) -> str:
    watched = np.full(len(losses), np.nan) if watched is None else watched
    rows = zip(losses.tolist(), watched.tolist(), strict=True)
    epochs = [EpochFinished(number, loss, 1.0, seen) for number, (loss, seen) in enumerate(rows, 1)]
    return convergence_note(epochs, reason, alpha)


@pytest.mark.parametrize(
    ("losses", "says"),
    [
        (0.5 / _EPOCHS, "fell from 0.05 to 0.025 in the last 10 of 20 epochs"),
        (0.5 - 0.02 * _EPOCHS, "fell from 0.3 to 0.1"),
        (0.1 + 0.4 * _EPOCHS**-0.5, "fell from 0.226 to 0.189"),
        (0.5 - 0.001 * _EPOCHS, "fell from 0.49 to 0.48"),
        (0.1 + 0.02 * _EPOCHS, "rose from 0.26 to 0.46 in the last 15 of 20 epochs"),
        (0.1 + 0.4 / 2**_EPOCHS, ""),
        (0.1 + 0.4 * _EPOCHS**-3, ""),
        (0.1 + 0.001 * np.cos(3 * _EPOCHS), ""),
        (0.5 / 2**_EPOCHS, ""),  # by a large part of next to nothing
        (np.zeros(20), ""),
        (np.full(20, np.nan), ""),
        (0.5 / _EPOCHS[:3], ""),
        (np.array([]), ""),
    ],
)
def test_losses_tell_whether_a_fit_has_converged(losses: np.ndarray, says: str) -> None:
    note = _note(losses)
    assert says in note
    assert bool(says) == bool(note)


def test_only_a_fit_that_ran_out_has_a_note() -> None:
    losses = 0.5 / _EPOCHS
    assert "raise max_epochs" in _note(losses, "max_epochs")
    assert "raise max_seconds" in _note(losses, "max_seconds")
    assert not any(_note(losses, reason) for reason in ("converged", "early_stopping", "interrupted"))


def test_without_a_penalty_the_training_loss_may_go_on_falling() -> None:
    assert _note(0.5 / _EPOCHS, alpha=1e-3)
    assert not _note(0.5 / _EPOCHS, alpha=0.0)
    assert _note(0.5 - 0.02 * _EPOCHS, alpha=0.0)


def test_losses_on_validation_rows_count_more() -> None:
    flat = np.full(20, 0.3)
    assert not _note(0.5 / _EPOCHS, watched=flat)
    assert "the validation loss still fell from 0.05 to 0.025" in _note(flat, alpha=0.0, watched=0.5 / _EPOCHS)
    assert not _note(flat, watched=0.1 + 0.02 * _EPOCHS)  # as it does where a model fits noise


def test_logs_and_messages_carry_the_note() -> None:
    event = FitFinished("max_epochs", 20, 1.0, note="the fit has not converged")
    assert from_message(to_message(event)) == event
    line = line_of(event, 20)
    assert line is not None
    assert line.endswith("; the fit has not converged")
