"""What early stopping watches, and which epoch's model it returns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier, KernelRegressor, Landmarks
from daskkern.arrays import HostArray
from daskkern.cli.main import main
from daskkern.errors import SpecError
from daskkern.losses import Huber, Logistic, MultinomialLogistic, Squared, SquaredHinge
from daskkern.training.run.early_stopping import EarlyStopping, Patience


def _noisy(n: int = 600) -> tuple[HostArray, HostArray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, (X[:, 0] + rng.standard_normal(n) > 0).astype(np.int64)


def _fit(**settings: Any) -> KernelClassifier:
    model = KernelClassifier(
        "gaussian:1.5", basis=Landmarks(100), alpha=1e-4, early_stopping=True, device="cpu", max_epochs=12, **settings
    )
    fitted = model.fit(*_noisy())
    assert isinstance(fitted, KernelClassifier)
    return fitted


@pytest.mark.parametrize(
    ("loss", "watched"),
    [(Logistic(), True), (MultinomialLogistic(), True), (SquaredHinge(), False), (Squared(), False), (Huber(), False)],
)
def test_losses_with_probabilities_watch_the_loss(loss: Any, watched: bool) -> None:
    assert EarlyStopping().watches_loss(loss) is watched
    assert EarlyStopping(monitor="loss").watches_loss(loss)
    assert not EarlyStopping(monitor="score").watches_loss(loss)


def test_an_unknown_monitor_is_refused() -> None:
    with pytest.raises(SpecError, match="monitor='auc'; expected one of auto, loss, score"):
        EarlyStopping(monitor="auc")


def test_patience_goes_by_what_is_watched() -> None:
    by_loss, by_score = Patience(9, 1e-4, True), Patience(9, 1e-4, False)
    for epoch, (loss, score) in enumerate([(0.5, 0.90), (0.4, 0.88), (0.6, 0.91), (0.7, 0.70)], 1):
        by_loss.exhausted(loss, score, epoch, (np.full((1, 1), epoch), None))
        by_score.exhausted(loss, score, epoch, (np.full((1, 1), epoch), None))
    assert (by_loss.best_epoch, by_score.best_epoch) == (2, 3)
    assert by_loss.best is not None
    assert by_loss.best[0][0, 0] == 2
    assert by_loss.mark == (-0.4, 2)


def test_equal_targets_have_no_r2_and_are_watched_by_the_loss() -> None:
    patience = Patience(9, 1e-4, False)
    for epoch, loss in enumerate([0.5, 0.3, 0.4], 1):
        patience.exhausted(loss, float("nan"), epoch, (np.zeros((1, 1)), None))
    assert patience.best_epoch == 2


@pytest.mark.parametrize("loss", ["logistic", "multinomial_logistic"])
def test_a_logistic_fit_returns_the_epoch_of_least_validation_loss(loss: str) -> None:
    model = _fit(loss=loss, tol=0.0)
    assert model.best_epoch_ == int(np.argmin(model.history_["validation_loss"])) + 1


def test_the_score_is_watched_by_choice() -> None:
    model = _fit(loss="logistic", monitor="score", tol=0.0)
    assert model.best_epoch_ == int(np.argmax(model.history_["validation_score"])) + 1
    assert model.model_.provenance["settings"]["early_stopping"]["monitor"] == "score"


def test_without_early_stopping_the_last_epoch_is_returned() -> None:
    X, _ = _noisy()
    model = KernelRegressor("gaussian:1", basis=Landmarks(50), max_epochs=2, device="cpu").fit(X, X[:, 0])
    assert model.best_epoch_ == model.n_iter_ == 2


def test_the_command_line_names_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    X, y = _noisy()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    monkeypatch.chdir(tmp_path)
    daskkern.ingest(["rows.npz"], "rows.zarr")
    command = ["fit", "rows.zarr", "--out", "model.zarr", "--kernel", "gaussian:1.5", "--landmarks", "100"]
    command += ["--loss", "logistic", "--epochs", "30", "--workers", "0", "--overwrite"]

    def run(*more: str) -> str:
        with pytest.raises(SystemExit):
            main([*command, *more])
        return "".join(capfd.readouterr())

    assert "the model of epoch " in run("--early-stopping", "--monitor", "score")
    assert "got --monitor loss without --early-stopping" in run("--monitor", "loss")
