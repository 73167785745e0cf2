"""``fit --log-json``, ``--log-file`` and ``fit --report``, and what the tasks of a fit are called."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.cli import fit as cli_fit
from daskkern.cli.main import main
from daskkern.cluster.scheduler.client import install_fits
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.models import KernelModel, save_model
from daskkern.training.jobs.handle import list_fits


def _run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    X = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _kinds(text: str) -> list[str]:
    """Return the events that do not come by the clock."""
    kinds = [str(json.loads(line)["event"]) for line in text.splitlines()]
    return [kind for kind in kinds if kind not in ("RankReported", "BatchFinished")]


_WORDS = ["fit", "d.zarr", "--out", "m.zarr", "--kernel", "gaussian:2", "--landmarks", 50, "--epochs", 2]


def test_json_lines_are_alone_on_stdout(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capfd, *_WORDS, "--workers", 0, "--log-json")
    assert code == 0, err
    events = _kinds(out)
    assert (events[0], events[-1], events.count("EpochFinished")) == ("FitStarted", "FitFinished", 2)
    assert "the model is in m.zarr" in err
    code, out, err = _run(capfd, *_WORDS, "--workers", 0, "--log-file", "log", "--overwrite")
    assert code == 0, err
    assert "the model is in m.zarr" in out
    assert _kinds((folder / "log").read_text()) == events


def test_a_flag_takes_no_word_and_foreign_files_stay(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = _run(capfd, "watch", "--log-json", "FIT")
    assert (code, "no cluster was named" in err) == (2, True)
    assert not (folder / "FIT").exists()
    (folder / "notes").write_text("my notes")
    (folder / "lines").write_text('{"name": "mine"}\n')
    for option, file, code, message in (
        ("--log-file", "notes", 1, "is not a log of events"),
        ("--log-file", "lines", 1, "is not a log of events"),
        ("--log-file", "", 2, "give the name of a file"),
        ("--log-file", "no/log", 1, "No such file"),
        ("--log-file", ".", 1, "Is a directory"),
        ("--report", "notes", 1, "notes exists and is not a performance report of Dask"),
        ("--report", "", 2, "is not a local file"),
    ):
        found, _, err = _run(capfd, *_WORDS, option, file)
        assert (found, message in err, err.count("\n")) == (code, True, 1), err
    assert (folder / "notes").read_text() == "my notes"
    assert not (folder / "m.zarr").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", 0, "--report", "r.html"], "no Dask tasks to report on"),
        (["--detach", "--log-file", "log", "--scheduler", "tcp://127.0.0.1:1"], "daskkern watch FIT --log-json"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    words: list[object], message: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _run(capfd, *_WORDS, *words)
    assert code == 2
    assert message in err
    assert not (folder / "m.zarr").exists()


@pytest.mark.long
@pytest.mark.cluster
def test_dask_reports_on_a_fit_of_its_cluster(
    folder: Path, capfd: pytest.CaptureFixture[str], cluster2: str, client2: Client
) -> None:
    code, out, err = _run(capfd, *_WORDS, "--scheduler", cluster2, "--report", "dask.html")
    assert code == 0, err
    assert "Dask's report is in dask.html" in out
    text = (folder / "dask.html").read_text()
    assert "daskkern_eigenpro" in text
    assert [path.name for path in folder.iterdir() if "partial-" in path.name] == []
    assert check_file("dask.html", FileKind.DASK_REPORT) == Path("dask.html")  # an older report is replaced
    code, _, err = _run(capfd, *_WORDS, "--scheduler", cluster2, "--report", "no/dask.html")
    assert (code, "give one in an existing folder" in err) == (2, True)


@pytest.mark.cluster
def test_tasks_say_what_they_are_and_a_fit_is_one_span(client2: Client) -> None:
    install_fits(client2)
    X = np.random.default_rng(0).standard_normal((200, 3))
    before = client2.run_on_scheduler(_names)
    KernelClassifier("gaussian:1", basis=Landmarks(40), max_epochs=1, client=client2, device="cpu").fit(X, X[:, 0] > 0)
    prefixes, spans = client2.run_on_scheduler(_names)
    new = set(prefixes) - set(before[0])
    assert {name for name in new if not name.startswith(("daskkern_", "finalize"))} == set()
    assert any(span[0] == "daskkern" and span[1].startswith("eigenpro ") for span in spans if len(span) == 2)


def _names(dask_scheduler: object) -> tuple[list[str], list[tuple[str, ...]]]:
    spans = dask_scheduler.extensions["spans"].spans.values()  # type: ignore[attr-defined]
    return list(dask_scheduler.task_prefixes), [span.name for span in spans]  # type: ignore[attr-defined]


@pytest.mark.long
@pytest.mark.cluster
def test_a_fit_has_finished_when_its_model_is_written(
    folder: Path, client2: Client, cluster2: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []

    def save(model: KernelModel, out: str, *, check: Callable[[], None]) -> None:
        states.append(list_fits(client2)[-1].state)
        if len(states) == 1:
            raise OSError("No space left on device")
        save_model(model, out, check=check)

    monkeypatch.setattr(cli_fit, "save_model", save)
    code, out, err = _run(capfd, *_WORDS, "--scheduler", cluster2)
    assert code == 1
    assert "the fit has ended, but its model could not be written to m.zarr: No space left on device; fix that" in err
    assert "the model is in" not in out + err
    code, out, err = _run(capfd, *_WORDS, "--scheduler", cluster2, "--resume")
    assert (code, "the model is in m.zarr" in out) == (0, True), err
    assert states == ["running", "running"]
    assert [status.state for status in list_fits(client2)[-2:]] == ["failed", "finished"]
    assert list_fits(client2)[-2].error.startswith("the fit has ended, but its model could not be written")
