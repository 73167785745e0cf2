"""``daskkern score --details`` and ``--json`` tell all that one pass found out."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.preprocessing import minmax_scale

from daskkern import KernelRegressor, Landmarks
from daskkern.cli.main import main


def _run(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    assert end.value.code == 0, err
    return out


def test_tables_and_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    np.savez(tmp_path / "cancer.npz", X=minmax_scale(X), y=np.array(["malignant", "benign"])[y])
    store, model = tmp_path / "cancer.zarr", tmp_path / "model.zarr"
    _run(capfd, "ingest", tmp_path / "cancer.npz", "--out", store)
    words = ["--kernel", "gaussian:1", "--landmarks", 100, "--epochs", 2, "--loss", "logistic", "--workers", 0]
    _run(capfd, "fit", store, "--out", model, *words)
    shown = _run(capfd, "score", model, store, "--details")
    for part in ("accuracy", "ROC-AUC", "log loss", "true malignant", "true benign", "Calibration", "mean probability"):
        assert part in shown
    read = json.loads(_run(capfd, "score", model, store, "--json"))
    assert read["n_rows"] == len(y)
    assert np.trace(read["confusion"]) == round(read["accuracy"] * len(y))
    assert read["roc_auc"] > 0.9


def test_threads_are_asked_for_and_checked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    np.savez(tmp_path / "d.npz", X=X, y=X[:, 0] > 0)
    store, model = tmp_path / "d.zarr", tmp_path / "m.zarr"
    _run(capfd, "ingest", tmp_path / "d.npz", "--out", store)
    _run(capfd, "fit", store, "--out", model, "--kernel", "gaussian:2", "--epochs", 1, "--workers", 0)
    one, two = (_run(capfd, "score", model, store, "--json", "--threads", threads) for threads in (1, 2))
    assert one == two
    _run(capfd, "predict", model, store, "--out", tmp_path / "p.zarr", "--threads", 2)
    for command in (["score", model, store], ["predict", model, store, "--out", tmp_path / "q.zarr"]):
        with pytest.raises(SystemExit) as end:
            main([*map(str, command), "--threads", "0"])
        assert end.value.code == 2
        error = "daskkern: error: Invalid value for '--threads': 0 is not in the range x>=1.\n"
        assert capfd.readouterr().err == error


def test_the_r2_of_one_value_is_undefined_in_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    np.savez(tmp_path / "rows.npz", X=X, y=np.full(40, 7.5))
    store, model = tmp_path / "rows.zarr", tmp_path / "model.zarr"
    _run(capfd, "ingest", tmp_path / "rows.npz", "--out", store, "--task", "regression")
    regressor = KernelRegressor("gaussian:2", basis=Landmarks(10), max_epochs=1, device="cpu").fit(X, X[:, 0])
    regressor.save(model)
    assert "R2 undefined: a target has the same value in all rows" in _run(capfd, "score", model, store)
    assert json.loads(_run(capfd, "score", model, store, "--json"))["r2"] is None
    with pytest.warns(UndefinedMetricWarning, match="a target has the same value in all rows"):
        assert np.isnan(regressor.score(store))
