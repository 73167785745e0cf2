"""``daskkern report``: one file that holds what it shows, of models with and without a history."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.cli.main import main
from daskkern.data.transactions.atomic import write_text
from daskkern.kernels import Laplacian
from daskkern.models import save_model

_VOID = {"meta", "br", "img", "use", "path", "hr", "input", "link"}


class _Page(HTMLParser):
    """Collects text, identifiers and what the page refers to, and checks that elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.identifiers: list[str] = []
        self.references: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open += [] if tag in _VOID else [tag]
        self._attributes(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes(attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.identifiers += [value or ""] if name == "id" else []
            self.references += [value or ""] if name in ("src", "href", "xlink:href") else []


def _run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    labels = np.array(["<low> 花", "mid & up", r"$\frac$"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    np.savez(tmp_path / "c.npz", X=X, y=labels)
    np.savez(tmp_path / "r.npz", X=X, y=np.column_stack([X[:, 0], X[:, 1] * X[:, 2]]))
    for name in ("c", "r"):
        daskkern.ingest([str(tmp_path / f"{name}.npz")], tmp_path / f"{name}.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _alone(page: _Page, text: str) -> None:
    """Check that the page needs nothing but itself and names no folder."""
    assert len(set(page.identifiers)) == len(page.identifiers)
    for reference in page.references:
        assert reference.startswith(("#", "data:")), reference
        assert not reference.startswith("#") or reference[1:] in page.identifiers
    assert "url(http" not in text
    assert "<script" not in text
    assert "@import" not in text
    for name in re.findall(r"url\(#([^)]+)\)", text):
        assert name in page.identifiers


@pytest.mark.repeated
def test_a_classifier_is_reported_in_one_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--kernel", "gaussian:1", "--landmarks", 60, "--epochs", 3, "--loss", "multinomial_logistic"]
    assert _run(capfd, "fit", "c.zarr", "--out", "m.zarr", "--validation", "c.zarr", "--workers", 0, *words)[0] == 0
    (folder / "pictures").mkdir()
    for name in ("report.html", "pictures/confusion.png"):
        (folder / name).write_text("mine")
        code, _, err = _run(capfd, "report", "m.zarr", "--test", "c.zarr", "--png", "pictures")
        assert (code, f"{name} exists and is no" in err) == (1, True)
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
    for _ in range(2):  # an older one of ours is replaced
        code, out, err = _run(capfd, "report", "m.zarr", "--test", "c.zarr", "--png", "pictures")
        assert (code, err) == (0, "")
    (folder / "pictures" / "confusion.png").write_text("mine")
    code, out, err = _run(capfd, "report", "m.zarr", "--test", "c.zarr", "--png", "pictures", "--overwrite")
    assert code == 0, err
    assert "the report is in report.html" in out
    text = (folder / "report.html").read_text()
    page = _Page(text)
    _alone(page, text)
    words_of = " ".join(page.words)
    parts = (
        "test accuracy",
        "mid & up",
        "<low>",
        r"$\frac$",
        "spectrum",
        "multinomial_logistic",
        "Versions",
        "numpy",
        "training",
    )
    for part in parts:
        assert part in words_of
    assert str(folder) not in text
    assert {path.stem for path in (folder / "pictures").iterdir()} >= {"confusion", "calibration", "loss"}
    assert [path.name for path in folder.iterdir() if "partial" in path.name] == []


@pytest.mark.repeated
def test_a_regressor_and_a_model_without_a_history(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--kernel", "gaussian:1", "--landmarks", 60, "--epochs", 2, "--workers", 0]
    assert _run(capfd, "fit", "r.zarr", "--out", "m.zarr", *words)[0] == 0
    assert _run(capfd, "report", "m.zarr", "--test", "r.zarr", "--out", "r.html")[0] == 0
    text = (folder / "r.html").read_text()
    page = _Page(text)
    _alone(page, text)
    assert {"caption-residuals-1", "caption-residuals-2"} <= set(page.identifiers)
    assert "nine of ten are below" in " ".join(page.words)
    captions = re.findall("Errors of ([^<]*) against the truth", text)
    assert len(captions) == len(set(captions)) == 2
    save_model(replace(daskkern.load("m.zarr"), provenance={}), "bare.zarr")
    code, out, _ = _run(capfd, "report", "bare.zarr", "--out", "bare.html")
    assert code == 0
    assert "saved without a history" in out
    bare = _Page((folder / "bare.html").read_text())
    assert "there are no curves to show" in " ".join(bare.words)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "provenance",
    [
        {"data": {"name": "a"}},
        {"settings": ["falkon"]},
        {"settings": {"solver": "falkon"}},
        {"environment": {"processor": "x"}},
        {"data": {"name": "a", "rows": "many", "features": 1}},
        {"reason": 5},
        {"run": 7, "history": []},
    ],
)
def test_a_model_of_another_program_is_one_sentence(
    provenance: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((20, 2))
    model = KernelRegressor("gaussian:1", basis=Landmarks(5), max_epochs=1, device="cpu").fit(X, X[:, 0]).model_
    save_model(replace(model, provenance=provenance), "m.zarr")
    code, _, err = _run(capfd, "report", "m.zarr")
    assert (code, err.count("\n"), "saved with the model" in err) == (1, 1, True), err
    assert not (tmp_path / "report.html").exists()


def test_a_text_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.html", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_reported_leaves_nothing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capfd, "report", "missing.zarr")
    assert (code, "there is no model at missing.zarr" in err) == (1, True)
    for option, place, message in (
        ("--out", str(folder), "which is a folder"),
        ("--out", "no/r.html", "whose folder does not exist"),
        ("--out", "", "which is not a local file"),
        ("--out", "http://me:SECRET@host/r.html", "'http://host/r.html' was given, which is not a local file"),
        ("--png", "c.npz", "which is not a local folder"),
    ):
        code, _, err = _run(capfd, "report", "c.zarr", option, place)
        assert (code, message in err) == (2, True), err
    assert not (folder / "report.html").exists()


@pytest.mark.long
def test_features_are_listed_where_the_metric_tells_them_apart(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 300))
    model = KernelRegressor(Laplacian(tuple(np.r_[0.5, np.full(299, 10.0)])), basis=Landmarks(20), max_epochs=1)
    save_model(model.fit(X, X[:, 0]).model_, folder / "model.zarr")
    assert _run(capfd, "report", "model.zarr", "--out", "page.html")[0] == 0
    text = (folder / "page.html").read_text()
    words = _Page(text).words
    assert words[words.index("feature 0") + 1] == "57.22%"
    assert "The first 20 features; 280 more are left out" in words
    assert "..." in next(word for word in words if word.startswith("Laplacian("))
    save_model(KernelRegressor(basis=Landmarks(20), max_epochs=1).fit(X, X[:, 0]).model_, folder / "plain.zarr")
    assert _run(capfd, "report", "plain.zarr", "--out", "plain.html")[0] == 0
    assert "Features" not in _Page((folder / "plain.html").read_text()).words
