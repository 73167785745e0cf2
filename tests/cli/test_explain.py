"""``daskkern explain``: what the predictions of a model depend on, as a table and as JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern import KernelRegressor, Landmarks
from daskkern.cli.main import main
from daskkern.kernels import Gaussian
from daskkern.models import save_model


def _run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with a category, and a model of it."""
    rng = np.random.default_rng(0)
    kinds, number, noise = rng.choice(["a", "b", "c"], 300), rng.standard_normal(300), rng.standard_normal(300)
    y = 2 * (kinds == "b") + np.sin(number)
    rows = zip(kinds, number, noise, y, strict=True)
    text = "".join(f"{kind},{x:.5f},{z:.5f},{target:.5f}\n" for kind, x, z, target in rows)
    (tmp_path / "t.csv").write_text("kind,number,noise,y\n" + text)
    monkeypatch.chdir(tmp_path)
    daskkern.ingest("t.csv", "t.zarr", target="y", scale="standard")
    fitted = KernelRegressor(Gaussian(2.0), basis=Landmarks(60), max_epochs=4, device="cpu").fit("t.zarr")
    save_model(fitted.model_, tmp_path / "m.zarr")
    return tmp_path


def test_columns_are_listed_by_what_the_score_falls_by(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for rows in ("t.zarr", "t.csv"):
        code, out, err = _run(capfd, "explain", "m.zarr", rows, "--rows", 100)
        assert code == 0, err
        lines = out.splitlines()
        assert lines[0].startswith(f"100 rows of {rows}; score 0.9")
        assert lines[1].split("  ")[0] == "column"
        assert [line.split()[0] for line in lines[2:5]] == ["kind", "number", "noise"]
        assert "root mean square of the mixed derivative" in out
    code, out, _ = _run(capfd, "explain", "m.zarr", "t.zarr", "--top", 1, "--repeats", 0)
    assert "score falls by" not in out
    assert "and 2 more; see --top" in out


def test_json_has_every_column(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capfd, "explain", "m.zarr", "t.zarr", "--json", "--scoring", "neg_mean_absolute_error")
    assert code == 0, err
    found = json.loads(out)
    assert (found["rows"], found["score"] < 0) == (300, True)
    assert [column["name"] for column in found["columns"]] == ["kind", "number", "noise"]
    assert sum(column["share"] for column in found["columns"]) == pytest.approx(1)
    assert all(set(column) == {"name", "share", "slope", "fall", "fall_std"} for column in found["columns"])
    assert len(found["pairs"]) == len(found["interactions"]) == 3
    assert {*found["interactions"][0]} == {"columns", "strength"}
    assert found["columns"][0]["fall"] > found["columns"][2]["fall"]


def test_a_model_without_gradients_is_permuted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["t.zarr", "--basis", "random_features", "--kernel", "arc_cosine:0", "--features", 50, "--solver", "direct"]
    code, _, err = _run(capfd, "fit", *words, "--alpha", 1e-3, "--loss", "squared", "--workers", 0, "--out", "s.zarr")
    assert code == 0, err
    code, out, err = _run(capfd, "explain", "s.zarr", "t.zarr", "--rows", 50)
    assert code == 0, err
    assert "note: no gradients: a model of steps is constant between its jumps" in out
    assert "share of gradient" not in out
    code, _, err = _run(capfd, "explain", "s.zarr", "t.zarr", "--repeats", 0)
    assert (code, "constant between its jumps" in err) == (2, True)


def test_a_score_without_permutations_is_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capfd, "explain", "m.zarr", "t.zarr", "--repeats", 0, "--scoring", "r2")
    assert (code, "got --scoring without permutations" in err) == (2, True)
    code, _, err = _run(capfd, "explain", "m.zarr", "t.zarr", "--scoring", "accuracy")
    assert (code, "for a regression model" in err) == (2, True)
