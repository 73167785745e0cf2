"""Scores of rows with weights, as the validation of a fit and scikit-learn's measures count them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, mean_absolute_error, r2_score, roc_auc_score
from sklearn.metrics import root_mean_squared_error as rmse

from daskkern import KernelClassifier, KernelRegressor, ingest
from daskkern.cli.main import main
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError
from daskkern.evaluation.metrics import MetricAccumulator
from daskkern.evaluation.score import score_store
from daskkern.evaluation.tables.scoring import score_rows
from daskkern.evaluation.tables.tasks import ScoringPlace

N = 5000  # more than a block


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N))
    weight = rng.choice([0.0, 0.5, 3.0], N)
    y = a + 0.3 * b**2 + rng.normal(size=N) * (1 + 0.5 * weight)
    return pd.DataFrame({"a": a, "b": b, "y": y, "label": np.where(y > 0.2, "high", "low"), "w": weight})


def _stores(folder: Path, target: str) -> tuple[pd.DataFrame, Path]:
    table = _table()
    table.to_parquet(folder / "t.parquet")
    other = "label" if target == "y" else "y"
    ingest(folder / "t.parquet", folder / "s.zarr", target=target, weight="w", drop=[other], shuffle=False)
    return table, folder / "s.zarr"


def test_measures_of_numbers(tmp_path: Path) -> None:
    table, store = _stores(tmp_path, "y")
    model = KernelRegressor(max_epochs=1).fit(table[["a", "b"]][:500], table["y"][:500])
    found = score_store(model.model_, open_store(store))
    truth, predicted, weight = table["y"], model.predict(table[["a", "b"]]), table["w"]
    assert found.n_rows == N
    assert found.weight == pytest.approx(weight.sum())
    assert found.rmse == pytest.approx(rmse(truth, predicted, sample_weight=weight), rel=1e-5)
    assert found.mae == pytest.approx(mean_absolute_error(truth, predicted, sample_weight=weight), rel=1e-5)
    assert found.r2 == pytest.approx(r2_score(truth, predicted, sample_weight=weight), rel=1e-5)
    assert score_rows(model.model_, str(store), ScoringPlace())[0] == found
    assert model.score(str(store)) == found.r2
    assert model.score(table[["a", "b"]], truth, weight) == pytest.approx(found.r2, rel=1e-5)


def test_targets_far_away_in_rows_that_count_nothing_or_little_change_no_r2() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y, weight = X[:, 0] + 0.3 * rng.normal(size=400), np.ones(400)
    model = KernelRegressor(max_epochs=1).fit(X, y)
    scores, predicted = model.model_.scores(X), model.predict(X)
    for far, little in ((1e6, 0.0), (-1e12, 0.0), (1e8, 1e-12)):
        y[:2], weight[:2] = far, little
        found = MetricAccumulator(model.model_, None)
        for start in (0, 1, 200):
            part = slice(start, {0: 1, 1: 200, 200: 400}[start])
            found.add(scores[part], y[part], weight[part])
        assert found.result().r2 == pytest.approx(r2_score(y, predicted, sample_weight=weight), rel=1e-6)
    of_constant = MetricAccumulator(model.model_, None)
    of_constant.add(scores, np.append([1e6, 1e6], np.full(398, 0.1)), np.append([0.0, 0.0], np.ones(398)))
    assert np.isnan(of_constant.result().r2)


def test_measures_of_classes(tmp_path: Path) -> None:
    table, store = _stores(tmp_path, "label")
    model = KernelClassifier(max_epochs=1, loss="logistic").fit(table[["a", "b"]][:500], table["label"][:500])
    found = score_store(model.model_, open_store(store))
    truth, weight, X = table["label"], table["w"], table[["a", "b"]]
    p = model.predict_proba(X)
    assert found.accuracy == pytest.approx(accuracy_score(truth, model.predict(X), sample_weight=weight), rel=1e-9)
    assert found.roc_auc == pytest.approx(roc_auc_score(truth, p[:, 1], sample_weight=weight), rel=1e-5)
    assert found.log_loss == pytest.approx(log_loss(truth, p, sample_weight=weight), rel=1e-5)
    assert found.brier == pytest.approx(brier_score_loss(truth == "low", p[:, 1], sample_weight=weight), rel=1e-5)
    assert np.sum(found.confusion) == N
    assert found.calibration_error is not None
    assert 0 <= found.calibration_error < 0.5


def test_the_score_of_validation_rows_is_that_of_the_fit(tmp_path: Path) -> None:
    _, store = _stores(tmp_path, "y")
    model = KernelRegressor(max_epochs=2, calibrate=False).fit(str(store), validation=str(store))
    last = model.history_["validation_score"][-1]
    assert model.score(str(store)) == pytest.approx(last, rel=1e-4)


def test_the_command_says_that_rows_have_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table, store = _stores(tmp_path, "y")
    KernelRegressor(max_epochs=1).fit(table[["a", "b"]], table["y"]).save(tmp_path / "m.zarr")

    def score(*words: object) -> str:
        with pytest.raises(SystemExit) as end:
            main(["score", str(tmp_path / "m.zarr"), *map(str, words)])
        assert end.value.code == 0
        return capfd.readouterr().out

    assert "5,000 rows of total weight " in score(store)
    weighted = json.loads(score(store, "--json"))
    assert weighted["weight"] == pytest.approx(table["w"].sum())
    plain = json.loads(score(tmp_path / "t.parquet", "--json"))
    assert "weight" not in plain
    assert plain["rmse"] != pytest.approx(weighted["rmse"], rel=1e-3)
    assert json.loads(score(tmp_path / "t.parquet", "--weight", "w", "--json")) == pytest.approx(weighted, rel=1e-5)


def test_weights_that_are_all_zero_are_refused(tmp_path: Path) -> None:
    table, _ = _stores(tmp_path, "y")
    table.assign(w=0.0).iloc[:100].to_parquet(tmp_path / "z.parquet")
    model = KernelRegressor(max_epochs=1).fit(table[["a", "b"]], table["y"])
    with pytest.raises(DataError, match="weight 0"):
        score_rows(model.model_, str(tmp_path / "z.parquet"), ScoringPlace(), weight="w")


def test_a_missing_column_of_weights_is_not_said_to_be_of_the_training_rows(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(30.0), "y": np.arange(30.0) % 7})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    model = KernelRegressor(device="cpu").fit(rows[["a"]], rows["y"]).model_
    with pytest.raises(DataError, match=r"has no column 'weight'; the columns are 'a', 'y'"):
        score_rows(model, str(tmp_path / "rows.csv"), ScoringPlace(), weight="weight")
