"""Every file of figures has the one form, which refuses numbers without units, and pages are made from it alone."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from daskkern.systems import SYSTEMS

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
MACHINE = {"cpu": "none", "n_cores": 2}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the form, with the folder of the scripts on the path for as long as the test lasts."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield import_module("figures")
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_the_figures_that_are_kept_have_the_form(path: Path, scripts: ModuleType) -> None:
    runs = scripts.read(path)
    assert runs
    assert all(rows for run in runs for rows in run.tables.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"date": "yesterday"}, "date is an ISO date or null"),
        ({"benchmark": ""}, "benchmark is a name"),
        ({"settings": {"budget": {"s": 1}}}, "settings.budget is not flat"),
        ({"tables": {"times": {"s": 1}}}, "table times is a list of rows"),
        ({"tables": {"times": [{"duration": 1.5}]}}, "duration does not name its unit"),
        ({"tables": {"times": [{"what": {"s": 1}}]}}, "what is not a scalar"),
        ({"machine": [2]}, "machine is an object"),
        ({"more": 1}, "a run has"),
    ],
)
def test_what_has_not_the_form_is_refused(change: dict[str, object], said: str, scripts: ModuleType) -> None:
    record = {"benchmark": "b", "date": "2026-11-22", "machine": MACHINE, "versions": {}, "settings": {}, "tables": {}}
    assert not list(scripts.problems(record))
    assert any(said in problem for problem in scripts.problems(record | change))


def test_runs_are_added_and_read_back(tmp_path: Path, scripts: ModuleType) -> None:
    path = tmp_path / "figures.json"
    run = scripts.Run(
        "b", None, MACHINE, {}, {}, {"times": [{"n_rows": 3, "fit_seconds": [0.5, 0.25], "chosen": True}]}
    )
    scripts.add(run, path)
    scripts.add(run, path, keep=True)
    assert scripts.read(path) == [run, run]
    with pytest.raises(scripts.FiguresError, match="does not name its unit"):
        scripts.Run("b", None, MACHINE, {}, {}, {"times": [{"duration": 1}]})
    path.write_text(json.dumps([{"benchmark": "b"}]))
    with pytest.raises(scripts.FiguresError, match="daskkern-figures/1"):
        scripts.read(path)


def test_what_is_no_number_is_written_as_null(tmp_path: Path, scripts: ModuleType) -> None:
    path = tmp_path / "figures.json"
    row = {"error": float("nan"), "losses": [0.5, float("inf")], "fit_seconds": 2.0}
    scripts.add(scripts.Run("b", None, MACHINE, {}, {}, {"times": [row]}), path)
    (run,) = scripts.read(path)
    assert run.tables["times"] == [{"error": None, "losses": [0.5, None], "fit_seconds": 2.0}]
    assert import_module("pages").text([0.5, None]) == "0.5, "


def test_the_page_shows_fits_of_regressions(scripts: ModuleType) -> None:
    row = {
        "fit": "--epochs 0", "store": "s", "n_workers": 0, "n_rows_scored": 5, "epoch_seconds": [], "wall_seconds": 1.0,
        "peak_rss_of_processes_gb": [], "sgemm_gflops_before_after": [1, 1],
    }  # fmt: skip
    runs = [
        scripts.Run("main_job", None, MACHINE, {}, {}, {"fits": [{**row, **score}]})
        for score in ({"rmse": 12.25}, {"error": 0.125}, {})
    ]
    lines = import_module("pages").main_job(runs)[2:]
    assert [line.split(" | ")[4] for line in lines] == ["RMSE 12.2", "12.50%", ""]


def test_a_nested_record_becomes_a_run(scripts: ModuleType) -> None:
    record = {
        "benchmark": "b",
        "machine": MACHINE,
        "device": "cpu",
        "fit": {"setup_s": {"targets": 0.5}, "batch": 64},
        "rounds": [{"open": {"wall_seconds": 1.0}}],
        "wall_seconds": 2.0,
    }
    run = scripts.from_plain(record, ("device",), {"batch": "n_batch_rows"})
    assert (run.date, run.machine, run.settings) == (None, MACHINE, {"device": "cpu"})
    assert run.tables == {
        "fit": [{"setup_s_targets": 0.5, "n_batch_rows": 64}],
        "rounds": [{"open_wall_seconds": 1.0}],
        "whole": [{"wall_seconds": 2.0}],
    }
    with pytest.raises(scripts.FiguresError, match="batch does not name its unit"):
        scripts.from_plain(record)


def test_a_ratio_that_grew_is_a_regression_only_on_the_same_machine(scripts: ModuleType) -> None:
    regressions = import_module("regressions")

    def run(ratio: float, cpu: str = "none") -> object:
        row = {"what": "set-up", "median_seconds": 1.0, "ratio_to_matmul": ratio}
        return scripts.Run("regressions", "2026-11-22", MACHINE | {"cpu": cpu}, {}, {}, {"times": [row]})

    def judged(now: object, then: object | None) -> tuple[str, bool]:
        ((_, sentence, worse),) = regressions.compared(now, then, 1.25)
        return sentence, worse

    assert judged(run(1.2), run(1.0)) == ("1.2 x np.matmul (1e+03 ms), was 1 x on 2026-11-22: 1.20 times that", False)
    assert judged(run(1.3), run(1.0))[1]
    assert "on another machine" in judged(run(1.3), run(1.0, "other"))[0]
    assert not judged(run(1.3), run(1.0, "other"))[1]
    assert "not recorded before" in judged(run(1.3), None)[0]


def test_the_last_figures_of_the_same_sizes_and_machine_count(scripts: ModuleType) -> None:
    latest = import_module("regressions").latest

    def run(date: str, cpu: str, tiny: bool) -> object:
        return scripts.Run("regressions", date, MACHINE | {"cpu": cpu}, {}, {"tiny": tiny}, {"times": []})

    kept = [run("2026-01-01", "a", False), run("2026-01-02", "b", False), run("2026-01-03", "a", True)]
    assert latest(run("2026-02-01", "a", False), kept) is kept[0]
    assert latest(run("2026-02-01", "c", False), kept) is kept[1]
    assert latest(run("2026-02-01", "b", True), kept) is kept[2]
    assert latest(run("2026-02-01", "b", True), kept[:2]) is None


def test_the_page_of_papers_shows_their_figures_without_ours(tmp_path: Path, scripts: ModuleType) -> None:
    rows, page = import_module("papers.rows"), import_module("papers.page")
    text = page.page(tmp_path / "none.json")
    assert "Ours are not measured yet" in text
    assert len({row.key for row in rows.ROWS}) == len(rows.ROWS)
    assert {row.table for row in rows.ROWS} == set(rows.TABLES)
    for row in rows.ROWS:
        assert row.what in text
        assert all(sentence in text for sentence in row.differences)


def test_the_rows_of_the_papers_name_what_there_is(scripts: ModuleType) -> None:
    rows, documents = import_module("papers.rows"), import_module("papers.documents").documents()
    entries = [each for _, made in documents.values() for each in made]
    assert sorted(each.key for each in entries if each.key) == sorted(row.key for row in rows.ROWS)
    assert all(each.key or (each.why and (each.theirs or not each.data)) for each in entries)
    places = [import_module(f"daskkern.{name}") for name in ("solvers", "kernels", "basis", "losses")]
    for each in entries:
        for system in re.findall(r"systems? ((?:`\w+`(?:, )?)+)", each.ours):
            assert set(re.findall(r"`(\w+)`", system)) <= set(SYSTEMS), each.what
        for name in re.findall(r"`([A-Z]\w+)", each.ours):
            assert any(hasattr(place, name) for place in places), name
        for call in re.findall(r"`([A-Z]\w+\([^`]*\))`", each.ours):
            if not re.search(r"=(k\b|\.\.\.)", call):
                eval(call, {}, {**vars(places[2]), **vars(places[0])})  # its settings are valid


def test_the_longest_reading_of_a_budget_is_its_end(scripts: ModuleType, tmp_path: Path) -> None:
    data = import_module("contest.data").tiny_data(tmp_path / "tiny.npz")
    found = import_module("contest.race").ran(data, "daskkern auto", 20, budget_s=0.2)
    assert found["ended"] == "ended after 0.2 s"
    assert "error" not in found


def test_an_interrupt_ends_the_contender(scripts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, race = import_module("contest.data").tiny_data(tmp_path / "tiny.npz"), import_module("contest.race")
    begun: list[subprocess.Popen[str]] = []
    communicate = subprocess.Popen.communicate

    def interrupted(process: subprocess.Popen[str], *args: object, **kwargs: object) -> object:
        begun.append(process)
        if len(begun) == 1:
            raise KeyboardInterrupt
        return communicate(process)

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        race.ran(data, "daskkern auto", 20, budget_s=60.0)
    assert begun[0].returncode == -signal.SIGKILL


def test_a_contender_whose_error_is_no_number_has_failed(scripts: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    race = import_module("contest.race")
    process = SimpleNamespace(communicate=lambda timeout: ('\n{"error": NaN, "fit_seconds": 1.5}\n', ""), returncode=0)
    monkeypatch.setattr(race.subprocess, "Popen", lambda *args, **kwargs: process)
    found = race.ran(Path("none.npz"), "none", 20, budget_s=60.0)
    assert found.pop("whole_seconds") >= 0
    assert found == {"ended": "failed: its error is nan", "fit_seconds": 1.5}


def test_the_runner_sends_options_on_and_draws(
    scripts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = import_module("run")
    run.main([])
    assert "time_to_error NPZ" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there is no benchmark nothing"):
        run.main(["nothing"])
    with pytest.raises(SystemExit, match="got --plot without a path"):
        run.main(["recovery", "--plot"])
    reported = tmp_path / "told.txt"
    (tmp_path / "recovery.py").write_text(
        "import pathlib, shutil, sys\n"
        f"pathlib.Path({str(reported)!r}).write_text(' '.join(sys.argv[1:]))\n"
        f"shutil.copy({str(FOLDER / 'results-recovery.json')!r}, sys.argv[sys.argv.index('--out') + 1])\n"
        "sys.exit(3)\n"
    )
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    out, picture = tmp_path / "out.json", tmp_path / "out.png"
    with pytest.raises(SystemExit) as ended:
        run.main(["recovery.py", f"--plot={picture}", "--repeats", "2", "--out", str(out), "--", "--out", "theirs"])
    assert ended.value.code == 3
    assert reported.read_text() == f"--repeats 2 --out {out} -- --out theirs"
    assert scripts.read(out)
    assert picture.stat().st_size > 5000


def test_errors_on_tables_are_merged_over_runs_and_ranked(scripts: ModuleType) -> None:
    means = import_module("table_means")

    def run(contenders: list[str], **errors: list[float | None]) -> SimpleNamespace:
        rows = [{"data": data, **dict(zip(contenders, row, strict=True))} for data, row in errors.items()]
        named = [{key if key == "data" else f"{key}_error": row[key] for key in row} for row in rows]
        splits = means.summary(named, contenders)
        return SimpleNamespace(settings={"contenders": contenders}, tables={"means": splits})

    first = run(["ours", "theirs"], one=[0.2, 0.1], two=[0.3, 0.3], four=[0.2, 0.4])
    second = run(["ours", "other"], one=[0.1, None], three=[0.5, 0.4], four=[0.3, 0.1])
    found, names = means.merged([first, second])
    assert names == ["ours", "theirs", "other"]
    assert found["one"] == {"ours_error": 0.1, "theirs_error": 0.1, "other_error": None}
    assert "other_error" not in found["two"]
    over_all, ranks = means.of_all(found, names)  # of "one" and "four", which all were tried on
    assert over_all == {"ours_error": pytest.approx(0.2), "theirs_error": pytest.approx(0.25), "other_error": None}
    assert ranks == {"ours_error": 1.75, "theirs_error": 2.25, "other_error": 2.0}
