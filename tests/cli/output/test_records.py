"""``--json`` of commands that write something: one object on stdout, the same facts as in the words."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from daskkern.cli.main import main
from daskkern.cli.output.fit_results import finish, fit_record, in_options


def _run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def _record(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code, out, err = _run(capfd, *words)
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_ingest_fit_and_predict_print_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    np.savez("d.npz", X=X, y=np.where(X[:, 0] > 0, "up", "down"))
    store = _record(capfd, "ingest", "d.npz", "--out", "d.zarr", "--json")
    assert (store["path"], store["n_rows"], store["classes"]) == ("d.zarr", 90, ["down", "up"])
    fit = _record(
        capfd, "fit", "d.zarr", "--out", "m.zarr", "--workers", "0", "--kernel", "gaussian:1", "--epochs", "2", "--json"
    )
    assert (fit["model"], fit["task"], fit["n_epochs"], fit["reason"]) == ("m.zarr", "classification", 2, "max_epochs")
    assert 0 < fit["loss"] < 10
    assert fit["validation_loss"] is None
    predicted = _record(capfd, "predict", "m.zarr", "d.zarr", "--out", "p.csv", "--json")
    assert (predicted["out"], predicted["n_rows"]) == ("p.csv", 90)
    code, out, err = _run(capfd, "fit", "d.zarr", "--out", "m.zarr", "--workers", "0", "--json")
    assert (code, out) == (1, "")
    assert err.startswith("daskkern: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet_may_stand_anywhere(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", X=np.eye(4), y=np.arange(4.0))
    assert _run(capfd, "ingest", "d.npz", flag, "--out", "d.zarr") == (0, "", "")
    assert _run(capfd, "ingest", "d.npz", "--out", "e.zarr", "--", flag)[0] == 1, "a source of that name"


@pytest.mark.parametrize(("n_epochs", "words"), [(1, "1 epoch, 2 s\n"), (3, "3 epochs, 2 s each on average\n")])
def test_epochs_are_counted_in_words(n_epochs: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = SimpleNamespace(nbytes=10, calibration=None)
    epochs = [SimpleNamespace(seconds=2.0)] * n_epochs
    finished = SimpleNamespace(note="", reason="max_epochs", best_epoch=0)
    finish(SimpleNamespace(model=model, epochs=epochs, times=(), finished=finished), "m.zarr")  # type: ignore[arg-type]
    assert capsys.readouterr().out.startswith(words)


def test_a_note_names_options_in_place_of_parameters() -> None:
    assert in_options("raise max_epochs, or max_seconds") == "raise --epochs, or --max-seconds"
    assert in_options("raise solver.max_rounds") == "raise --set solver.max_rounds"


def test_the_record_has_the_measures_of_the_epoch_that_the_model_is_of() -> None:
    epochs = [SimpleNamespace(epoch=k, loss=loss, validation_loss=v, validation_score=0.9) for k, loss, v in _EPOCHS]
    model = SimpleNamespace(task="classification", points=np.ones((2, 1)), n_features=1, n_outputs=1, nbytes=10)
    for best, loss, validation in ((2, 0.3, 0.4), (0, 0.2, 0.7)):
        finished = SimpleNamespace(note="", reason="early_stopping", best_epoch=best, seconds=1.0)
        result = SimpleNamespace(model=model, history=epochs, epochs=epochs, finished=finished)
        record = fit_record(result, "m.zarr")  # type: ignore[arg-type]
        assert (record["n_epochs"], record["loss"], record["validation_loss"]) == (3, loss, validation)


_EPOCHS = [(1, 0.5, 0.6), (2, 0.3, 0.4), (3, 0.2, 0.7)]
