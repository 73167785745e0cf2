"""What scripts rely on: JSON of every command that writes something, and tables from standard input."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import daskkern
from daskkern.cli.main import COMMANDS, whole_command
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows

Run = Callable[..., tuple[int, str, str]]

WITHOUT_JSON = {"demo", "watch"}
"""One is for people, and the other has --log-json."""


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The text of a table of two features and a label."""
    rows = "".join(f"{0.1 * i:.1f},{i * 7 % 11},{i % 2}\n" for i in range(60))
    return f"a,b,label\n{rows}"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def type_in(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return type_in


def test_every_command_but_two_has_json() -> None:
    without = {
        name for name in COMMANDS if not any("--json" in parameter.opts for parameter in whole_command(name).params)
    }
    assert without == WITHOUT_JSON


def test_a_table_from_stdin_is_ingested_scored_and_predicted(
    run: Run, table: str, typed: Callable[[str], None], tmp_path: Path
) -> None:
    typed(table)
    code, out, err = run("ingest", "-", "--target", "label", "--out", tmp_path / "s", "--json")
    assert code == 0, err
    assert json.loads(out)["n_rows"] == 60
    assert open_store(tmp_path / "s").info.feature_names == ("a", "b")
    model = tmp_path / "m"
    fit = ("fit", tmp_path / "s", "--out", model, "--workers", 0, "--kernel", "gaussian:1", "--solver", "direct")
    assert run(*fit, "--loss", "squared", "--alpha", 0.01)[0] == 0
    typed(table)
    code, out, err = run("score", model, "-", "--json")
    assert code == 0, err
    assert json.loads(out)["n_rows"] == 60
    typed(table)
    code, out, err = run("predict", model, "-", "--out", tmp_path / "p.csv", "--json")
    assert code == 0, err
    assert json.loads(out)["n_rows"] == 60
    typed(table)
    code, out, err = run("explain", model, "-", "--json", "--repeats", 1)
    assert code == 0, err


def test_what_cannot_be_read_from_stdin_is_said(
    run: Run, table: str, typed: Callable[[str], None], tmp_path: Path
) -> None:
    typed("")
    code, _, err = run("ingest", "-", "--target", "label", "--out", tmp_path / "s")
    assert (code, "stdin is empty; pipe a CSV table" in err) == (1, True)
    typed(table)
    code, _, err = run("ingest", "-", "-", "--target", "label", "--out", tmp_path / "s")
    assert (code, "got - twice" in err) == (2, True)
    code, _, err = run("ingest", "-", "--target", "y", "--out", tmp_path / "s", "--scheduler", "tcp://127.0.0.1:1")
    assert (code, "workers elsewhere cannot read stdin" in err) == (2, True)


def test_shuffles_reports_and_exports_as_json(run: Run, table: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table)
    assert run("ingest", tmp_path / "t.csv", "--target", "label", "--out", tmp_path / "s")[0] == 0
    code, out, _ = run("shuffle", tmp_path / "s", "--out", tmp_path / "u", "--json")
    assert code == 0
    assert json.loads(out) == {"path": str(tmp_path / "u"), "n_rows": 60, "seed": 0}
    fit = ("fit", tmp_path / "s", "--out", tmp_path / "m", "--workers", 0, "--kernel", "gaussian:1")
    assert run(*fit, "--solver", "direct", "--loss", "squared", "--alpha", 0.01)[0] == 0
    code, out, _ = run("report", tmp_path / "m", "--card", "--out", tmp_path / "card.md", "--json")
    assert code == 0
    assert json.loads(out) == {"out": str(tmp_path / "card.md"), "pictures": []}
    pytest.importorskip("onnx")
    code, out, _ = run("export", tmp_path / "m", "--out", tmp_path / "m.onnx", "--json")
    assert code == 0
    assert json.loads(out) == {"out": str(tmp_path / "m.onnx"), "inputs": "auto"}


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_the_demo_runs_the_commands_that_it_shows(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("demo", "--out", tmp_path)
    assert code == 0, err
    shown = re.findall(r"^\d\. \w+: daskkern (.*)$", out, re.MULTILINE)
    assert [words.split()[0] for words in shown] == ["ingest", "fit", "score"]
    X = StoreRows(open_store(tmp_path / "test.zarr")).read(0, 359).X
    before = daskkern.load(tmp_path / "model.zarr").decision_function(X)
    monkeypatch.chdir(tmp_path)
    for words in shown:
        code, again, err = run(*words.split(), *([] if words.startswith("score") else ["--overwrite"]))
        assert code == 0, err
    assert again.strip() in out
    np.testing.assert_array_equal(daskkern.load(tmp_path / "model.zarr").decision_function(X), before)


def test_a_folder_without_checkpoints_resumes_nothing(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("resume", "--all", tmp_path, "--json")
    assert (code, json.loads(out)) == (0, [])


def test_an_output_that_cannot_be_made_names_the_option(run: Run, table: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(table)
    assert run("ingest", tmp_path / "t.csv", "--target", "label", "--out", tmp_path / "s")[0] == 0
    if not Path("/proc/self").exists():
        pytest.skip("needs a folder of the system in which nothing can be created: run on Linux")
    code, _, err = run("fit", tmp_path / "s", "--out", "/proc/m.zarr", "--workers", 0)
    assert code == 1
    assert "choose another place for the model, or for the checkpoint alone with --checkpoint" in err
