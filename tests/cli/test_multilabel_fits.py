"""Several labels a row on the command line: fitted, scored, predicted and described as what they are."""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr

import daskkern
from daskkern import KernelClassifier
from daskkern.arrays import HostArray
from daskkern.cli.main import main

N = 600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4))
    y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0.5, X[:, 3] ** 2 > 1]).astype(np.int64)
    np.savez("rows.npz", X=X, y=y)
    daskkern.ingest(["rows.npz"], "rows.zarr")
    return tmp_path


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    found = capsys.readouterr()
    return int(ended.value.code or 0), found.out + found.err


def _labels() -> HostArray:
    labels: HostArray = np.load("rows.npz")["y"]
    return labels


def test_labels_are_fitted_scored_and_predicted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("rows.zarr", "--landmarks", "200", "--epochs", "5", "--kernel", "gaussian:2", "--workers", "0")
    code, said = _run(capsys, "fit", *words, "--multilabel", "--out", "m.zarr")
    assert code == 0, said
    model = daskkern.load("m.zarr")
    assert (model.task, model.loss, model.n_outputs) == ("multilabel", "squared_hinge", 3)
    code, said = _run(capsys, "score", "m.zarr", "rows.zarr", "--json")
    assert code == 0, said
    scored = json.loads(said[said.index("{") :])
    X = np.load("rows.npz")["X"]
    assert scored["accuracy"] == pytest.approx((model.predict(X) == _labels()).all(axis=1).mean())
    assert scored["accuracy"] > 0.8
    assert len(scored["roc_auc"]) == 3 if isinstance(scored["roc_auc"], list) else scored["roc_auc"] > 0.9
    code, said = _run(capsys, "score", "m.zarr", "rows.zarr")
    assert code == 0, said
    assert "accuracy of all 3 labels of a row" in said
    code, said = _run(capsys, "predict", "m.zarr", "rows.zarr", "--out", "p.zarr")
    assert code == 0, said
    arrays = [array for _, array in zarr.open_group("p.zarr", mode="r").arrays()]
    assert any(array.shape == (N, 3) and np.array_equal(array[:], model.predict(X)) for array in arrays)
    code, said = _run(capsys, "info", "m.zarr")
    assert code == 0, said
    assert "multilabel, 3 labels" in said
    fitted = KernelClassifier("gaussian:2", basis=daskkern.Landmarks(200), max_epochs=5, dtype="float32").fit(
        "rows.zarr"
    )
    np.testing.assert_allclose(model.decision_function(X), fitted.decision_function(X), atol=1e-4)
