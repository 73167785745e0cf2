"""Model cards: what they say follows from the model, and nothing in it is markup."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import KernelClassifier, Landmarks, unsupervised
from daskkern.cli.main import main
from daskkern.data.schema.encoding import ColumnEncoding
from daskkern.errors import SpecError
from daskkern.models import KernelModel, save_model
from daskkern.report import write_markdown, write_report


@pytest.fixture(scope="module")
def fitted() -> KernelModel:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "up", "down")
    return KernelClassifier("gaussian:2", basis=Landmarks(20), loss="squared_hinge", max_epochs=2).fit(X, y).model_


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_command_writes_a_scored_card(
    fitted: KernelModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(fitted, tmp_path / "m.zarr")
    X = np.random.default_rng(1).normal(size=(80, 3))
    np.savez(tmp_path / "d.npz", X=X, y=np.where(X[:, 0] > 0, "up", "down"))
    out = tmp_path / "c.md"
    assert command("report", tmp_path / "m.zarr", "--card", "--test", tmp_path / "d.npz", "--out", out) == 0
    assert f"the model card is in {out}" in capsys.readouterr().out
    text = out.read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        f"## {t}" for t in ("Use", "Data", "Model", "Settings of the fit", "Metrics", "Limits", "Versions")
    ]
    right = np.mean(fitted.predict(X) == np.where(X[:, 0] > 0, "up", "down"))
    assert "On 80 rows of d.npz." in text
    assert f"| test accuracy | {right:.2%} |" in text
    assert "| kernel | Gaussian(length\\_scale=2.0) |" in text
    assert f"| numpy | {np.__version__} |" in text
    assert "| classes (2) | down, up |" in text
    assert "- Missing values are refused." in text


def test_the_use_that_a_card_shows_is_right(fitted: KernelModel, tmp_path: Path) -> None:
    save_model(fitted, tmp_path / "m.zarr")
    write_markdown(fitted, tmp_path / "c.md")
    code = (tmp_path / "c.md").read_text().partition("```python\n")[2].partition("```")[0]
    rows = np.zeros((2, 3))
    names = {"rows": rows}
    *first, last = code.replace("PATH", str(tmp_path / "m.zarr")).strip().splitlines()
    exec("\n".join(first), names)
    assert eval(last.partition("  #")[0], names).tolist() == fitted.predict(rows).tolist()


def test_limits_follow_from_the_model(fitted: KernelModel, tmp_path: Path) -> None:
    columns = (
        ColumnEncoding("a", fill=1.0), ColumnEncoding("b", "ordinal", ("x", "y")), ColumnEncoding("c", "code", ("z",))
    )  # fmt: skip
    write_markdown(replace(fitted, encoding=columns), tmp_path / "c.md")
    text = (tmp_path / "c.md").read_text()
    assert "- Categories that the training data do not have are refused, in 1 columns." in text
    assert "- Unknown categories of code columns count as one further category." in text
    assert "- Missing values are replaced by the values that the model records." in text
    assert "- Its error on rows that it has not seen is not part of this card." in text
    assert "daskkern.predict_table" in text


def test_recorded_texts_are_not_markup(fitted: KernelModel, tmp_path: Path) -> None:
    hostile = replace(fitted, feature_names=("<script>|", "b\n# c", "[d](e)"))
    write_markdown(hostile, tmp_path / "c.md")
    assert "\\<script\\>\\|, b \\# c, \\[d\\](e)" in (tmp_path / "c.md").read_text()


def test_other_files_stay(fitted: KernelModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(fitted, tmp_path / "m.zarr")
    (tmp_path / "c.md").write_text("mine")
    assert command("report", tmp_path / "m.zarr", "--card", "--out", tmp_path / "c.md") == 1
    assert "is not a model card of daskkern" in capsys.readouterr().err
    write_markdown(fitted, tmp_path / "c.md", overwrite=True)
    write_markdown(fitted, tmp_path / "c.md")
    assert command("report", tmp_path / "m.zarr", "--card", "--png", tmp_path) != 0
    assert "a model card has no figures" in capsys.readouterr().err
    assert daskkern.load(tmp_path / "m.zarr").task == "classification"


def test_estimators_and_paths_are_reported_as_models_are(tmp_path: Path) -> None:
    X = np.random.default_rng(1).normal(size=(80, 3))
    np.savez(tmp_path / "d.npz", X=X, y=np.where(X[:, 0] > 0, "up", "down"))
    daskkern.ingest(tmp_path / "d.npz", tmp_path / "d.zarr")
    estimator = KernelClassifier("gaussian:2", basis=Landmarks(20), max_epochs=2).fit(tmp_path / "d.zarr")
    estimator.save(tmp_path / "m.zarr")
    cards = []
    for number, model in enumerate((estimator, estimator.model_, tmp_path / "m.zarr", str(tmp_path / "m.zarr"))):
        write_markdown(model, tmp_path / f"{number}.md", test=tmp_path / "d.zarr")
        cards.append((tmp_path / f"{number}.md").read_text())
    assert len(set(cards)) == 1
    with pytest.raises(SpecError, match="got a dict; expected a fitted estimator"):
        write_markdown({}, tmp_path / "other.md")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("KernelPCA", ("Kernel principal components", "n components", "feature-extraction", "its components")),
        ("KernelDensity", ("Kernel density estimate", "density-estimation", "the density there")),
        ("KernelKMeans", ("Clusters of kernel k-means", "n clusters", "clustering", "the number of its cluster")),
        ("SpectralClustering", ("Spectral clusters", "n clusters", "clustering", "the number of its cluster")),
        ("OneClassSVM", ("One-class support vector machine", "| nu |", "novelty-detection", "the decision value")),
    ],
)
def test_cards_of_unsupervised_models_name_no_fit_that_they_did_not_have(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3))
    getattr(unsupervised, name)().fit(X).save(tmp_path / "m.zarr")
    write_markdown(tmp_path / "m.zarr", tmp_path / "c.md")
    card = (tmp_path / "c.md").read_text()
    for word in (*words, "on 60 rows of arrays in memory", "It has no targets to be compared with."):
        assert word in card
    for word in ("eigenpro", "Regressor", "Classifier", "epochs", "targets |", "| loss", "--test", "calibrated"):
        assert word not in card
    write_report(tmp_path / "m.zarr", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert words[0] in page
    assert "eigenpro" not in page
    assert "Not scored" not in page
