"""Several labels a row on the command line: fitted, scored, predicted and described as what they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

import daskkern
from daskkern import KernelClassifier
from daskkern.cli.main import main
from daskkern.evaluation.raw_tables import trained_schema

N = 600
LABELS = ["warm", "wet", "windy"]
TARGETS = [word for name in LABELS for word in ("--target", name)]
SETTINGS = ("--kernel", "gaussian:2", "--landmarks", "100", "--epochs", "3", "--multilabel")


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4))
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    y = np.column_stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0.5, X[:, 3] ** 2 > 1]).astype(np.int64)
    frame[LABELS] = y ^ (rng.uniform(size=y.shape) < 0.05)
    return frame


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    found = capsys.readouterr()
    return int(ended.value.code or 0), found.out + found.err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, its store and a model of its labels."""
    folder = tmp_path_factory.mktemp("labels")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _table().to_csv("rows.csv", index=False)
        for words in (
            ("ingest", "rows.csv", *TARGETS, "--out", "rows.zarr", "--no-shuffle"),
            ("fit", "rows.zarr", *SETTINGS, "--workers", "0", "--out", "m.zarr"),
        ):
            with pytest.raises(SystemExit) as ended:
                main(list(words))
            assert ended.value.code in (None, 0)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("dtype", [int, bool])
def test_ingestion_names_the_option(folder: Path, form: str, dtype: type, capsys: pytest.CaptureFixture[str]) -> None:
    table = _table().astype(dict.fromkeys(LABELS, dtype))
    table.to_csv("labels.csv", index=False) if form == "csv" else table.to_parquet("labels.parquet")
    code, said = _run(capsys, "ingest", f"labels.{form}", *TARGETS, "--out", "labels.zarr")
    assert code == 0, said
    assert "(there are 3 targets; where they are labels of 0 and 1, fit --multilabel)" in said
    y = np.asarray(zarr.open_group("labels.zarr", mode="r")["y"][:])
    np.testing.assert_array_equal(np.sort(y, axis=0), np.sort(_table()[LABELS].to_numpy(), axis=0))


def test_the_model_is_that_of_the_estimator(folder: Path) -> None:
    model = daskkern.load("m.zarr")
    assert (model.task, model.loss, model.n_outputs, model.target_names) == (
        "multilabel",
        "squared_hinge",
        3,
        tuple(LABELS),
    )
    fitted = KernelClassifier("gaussian:2", basis=daskkern.Landmarks(100), max_epochs=3, dtype="float32")
    X = _table().iloc[:, :4].to_numpy()
    fitted.fit("rows.zarr")
    np.testing.assert_allclose(model.decision_function(X), fitted.decision_function(X), atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), fitted.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("place", ["rows.zarr", "rows.csv"])
def test_scores_are_scikit_learns(folder: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _run(capsys, "score", "m.zarr", place, "--json")
    assert code == 0, said
    scored = json.loads(said[said.index("{") :])
    model, table = daskkern.load("m.zarr"), _table()
    X, y = table.iloc[:, :4].to_numpy(), table[LABELS].to_numpy()
    p = model.predict_proba(X)
    assert scored["accuracy"] == pytest.approx(accuracy_score(y, model.predict(X)))
    assert 0.7 < scored["accuracy"] < 1
    assert scored["error"] == pytest.approx(1 - scored["accuracy"])
    assert scored["roc_auc"] == pytest.approx(roc_auc_score(y, model.decision_function(X)), abs=1e-3)
    each = range(3)
    assert scored["log_loss"] == pytest.approx(np.mean([log_loss(y[:, k], p[:, k]) for k in each]), rel=1e-3)
    assert scored["brier"] == pytest.approx(np.mean([brier_score_loss(y[:, k], p[:, k]) for k in each]), rel=1e-3)
    code, said = _run(capsys, "score", "m.zarr", place, "--details")
    assert code == 0, said
    assert f"accuracy of all 3 labels of a row {scored['accuracy']:.2%}" in said
    assert "Calibration of the most probable class" in said


@pytest.mark.parametrize("place", ["rows.zarr", "rows.csv", "new.csv"])
def test_predictions_are_labels_and_probabilities(folder: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    _table().drop(columns=LABELS).to_csv("new.csv", index=False)
    code, said = _run(capsys, "predict", "m.zarr", place, "--out", "p.zarr")
    assert code == 0, said
    assert "prediction holds a label of 0 or 1 in each column" in said
    model, X = daskkern.load("m.zarr"), _table().iloc[:, :4].to_numpy()
    group = zarr.open_group("p.zarr", mode="r")
    found = {name: np.asarray(array[:]) for name, array in group.arrays()}
    assert (group.attrs["task"], group.attrs["classes"]) == ("multilabel", None)
    np.testing.assert_array_equal(found["prediction"], model.predict(X))
    assert set(np.unique(found["prediction"])) == {0, 1}
    np.testing.assert_allclose(found["probability"], model.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(found["prediction"], found["probability"] > 0.5)


def test_the_schema_of_the_rows_is_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = trained_schema(daskkern.load("m.zarr"))
    assert (schema.task, schema.n_targets, schema.target_names) == ("regression", 3, tuple(LABELS))
    assert schema.feature_names == ("a", "b", "c", "d")
    code, said = _run(capsys, "info", "m.zarr")
    assert code == 0, said
    assert "multilabel, 3 labels" in said
    code, said = _run(capsys, "plan", "rows.zarr", *SETTINGS)
    assert code == 0, said
    assert "one rank" in said


@pytest.mark.long
def test_a_report_names_the_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    code, said = _run(capsys, "report", "m.zarr", "--test", "rows.zarr", "--out", "report.html")
    assert code == 0, said
    page = Path("report.html").read_text()
    assert "Classifier of several labels" in page
    assert "ROC-AUC" in page
    assert all(name in page for name in LABELS)


def test_two_workers_give_the_model_of_one_process(
    folder: Path, cluster2: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(folder / "rows.zarr"), *SETTINGS, "--scheduler", cluster2, "--out", str(folder / "two.zarr"))
    code, said = _run(capsys, "fit", *words)
    assert code == 0, said
    assert "on 2 ranks" in said
    one, two, X = daskkern.load("m.zarr"), daskkern.load("two.zarr"), _table().iloc[:, :4].to_numpy()
    np.testing.assert_allclose(two.decision_function(X), one.decision_function(X), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(two.predict(X), one.predict(X))
    np.testing.assert_allclose(two.predict_proba(X), one.predict_proba(X), atol=1e-4)


def _two(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(wet=2 * table["wet"])


def _gap(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(wet=table["wet"].where(table.index != 5))


def _text(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(wet=np.where(table["wet"] > 0, "yes", "no"))


@pytest.mark.parametrize(
    ("change", "at_ingestion", "words"),
    [
        (_two, False, "got the label 2 in a table of several labels; expected 0 and 1 only"),
        (_gap, True, "no value in column 'wet'"),
        (_text, True, "is text; encode such targets as numbers, several labels of a row as 0 and 1"),
    ],
    ids=["two", "gap", "text"],
)
def test_other_values_than_0_and_1_are_one_sentence(
    folder: Path,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    at_ingestion: bool,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(_table()).to_csv("other.csv", index=False)
    code, said = _run(capsys, "ingest", "other.csv", *TARGETS, "--out", "other.zarr")
    assert code == int(at_ingestion), said
    if not at_ingestion:
        code, said = _run(capsys, "fit", "other.zarr", *SETTINGS, "--workers", "0", "--out", "other-model.zarr")
        assert code == 1
        assert not Path("other-model.zarr").exists()
    error = said.splitlines()[-1]
    assert error.startswith("daskkern: error: ")
    assert words in error
    for place in ["other.csv"] if at_ingestion else ["other.csv", "other.zarr"]:
        code, said = _run(capsys, "score", "m.zarr", place)
        assert code == 1, said
        assert said.splitlines()[-1].startswith("daskkern: error: ")
        assert at_ingestion or words in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--loss", "multinomial_logistic"), "makes classes exclude each other"),
        (("--class-weight", "balanced"), "got class weights for several labels"),
        (("--loss", "huber:1"), "huber"),
    ],
)
def test_settings_without_a_meaning_for_labels_are_refused(
    folder: Path, words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = _run(capsys, "fit", "rows.zarr", *SETTINGS, *words, "--workers", "0", "--out", "other.zarr")
    assert code in (1, 2)
    assert sentence in said.splitlines()[-1]
    assert not Path("other.zarr").exists()


def test_one_class_a_row_is_not_several_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--target", "warm", "--drop", "wet", "--drop", "windy", "--out", "one.zarr")
    assert _run(capsys, "ingest", "rows.csv", *words)[0] == 0
    code, said = _run(capsys, "fit", "one.zarr", *SETTINGS, "--workers", "0", "--out", "other.zarr")
    assert code in (1, 2)
    assert "got several labels to fit on rows of one class each; leave --multilabel out" in said.splitlines()[-1]
