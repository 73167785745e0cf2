"""Help, wrong options and shells are answered from records; these are those of the commands."""

import json
import shlex
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from daskkern.cli.help.groups import EXAMPLES, GROUPS, OTHERS, PLACEHOLDERS
from daskkern.cli.help.light_commands import LightCommand
from daskkern.cli.help.records import PLACE, stored_records
from daskkern.cli.help.write import as_json, declared_records
from daskkern.cli.main import COMMANDS, SILENT, TOPICS, cli, main, whole_command


def _help(*words: str) -> str:
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0
    return result.output


def test_the_records_are_those_of_the_commands() -> None:
    assert PLACE.read_text() == as_json(declared_records()), "run: python -m daskkern.cli.help.write"


def test_every_command_is_in_one_topic_and_has_an_example() -> None:
    assert sorted(name for names in TOPICS.values() for name in names) == sorted(COMMANDS) == sorted(EXAMPLES)
    assert set(SILENT) < set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_right_and_headings_name_options(name: str) -> None:
    record = stored_records()[name]
    known = {item.name for item in record.parameters}
    for line in EXAMPLES[name]:
        program, command, *words = shlex.split(line)
        assert (program, command) == ("daskkern", name)
        LightCommand(record, lambda: whole_command(name)).make_context(name, words)
    for heading, names in GROUPS.get(name, {}).items():
        assert (f"{heading}:" in _help(name)) == bool(known & set(names))
        if name != "plan" and heading not in OTHERS:  # it has the headings of a fit, whose options it shares
            assert set(names) <= known
    assert {parameter for command, parameter in PLACEHOLDERS if command == name} <= known


@pytest.mark.parametrize("light", [True, False])
def test_features_are_learned_as_suits_them_where_no_metric_is_named(light: bool) -> None:
    whole = whole_command("fit")
    command = LightCommand(stored_records()["fit"], lambda: whole) if light else whole
    words = ["train.zarr", "--out", "model.zarr", "--learn-features"]
    assert command.make_context("fit", [*words]).params["learn_features"] == "auto"
    assert command.make_context("fit", [*words, "--seed", "3"]).params["learn_features"] == "auto"
    assert command.make_context("fit", [*words, "full"]).params["learn_features"] == "full"
    with pytest.raises(click.UsageError, match="requires an argument"):
        command.make_context("fit", [*words[:3], "--kernel"])


def test_help_shows_choices_defaults_and_examples_by_heading() -> None:
    text = _help("fit")
    assert "TEXT" not in text
    assert text.index("Output:") < text.index("--out MODEL") < text.index("Model:") < text.index("--kernel NAME")
    assert "--dtype auto|float32|float64" in text
    assert "daskkern fit train.zarr --out model.zarr --config fit.yaml \\\n      --set solver.window=4\n" in text
    assert "Other options:\n  -h, --help" in text
    assert "--task auto|classification|regression" in _help("ingest")


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_a_terminal_of_80_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = _help(name)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    examples = text.partition("Examples:\n")[2].replace("\\\n", " ")
    shown = [shlex.split(line) for line in examples.splitlines()[: len(EXAMPLES[name])]]
    assert shown == [shlex.split(line) for line in EXAMPLES[name]]


def test_the_whole_command_gets_the_words_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[object] = []

    @click.command("score")
    @click.argument("model")
    @click.argument("store")
    @click.option("--json", "as_json", is_flag=True)
    def command(model: str, store: str, as_json: bool) -> None:
        got.extend([model, store, as_json, click.get_current_context().find_root().params["debug"]])

    monkeypatch.setattr("daskkern.cli.main.whole_command", {"score": command}.get)
    with pytest.raises(SystemExit) as end:
        main(["score", "m.zarr", "--json", "s.zarr", "--debug"])
    assert end.value.code == 0
    assert got == ["m.zarr", "s.zarr", True, True]


@pytest.mark.parametrize(
    ("line", "offered"),
    [("daskkern sco", "score"), ("daskkern fit --lan", "--landmarks"), ("daskkern fit --loss hu", "huber"),
     ("daskkern fit --device g", "gpu"), ("daskkern predict --device c", "cpu")],
)  # fmt: skip
def test_shells_complete_commands_options_and_values(line: str, offered: str) -> None:
    words = line.split()
    variables = {"_DASKKERN_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(cli, [], prog_name="daskkern", env=variables)
    assert offered in [row.partition(",")[2] for row in result.output.splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> str:
    table = tmp_path / "t.csv"
    table.write_text("a,b,y\n" + "".join(f"{i},{'' if i == 3 else i % 7},{i % 2}\n" for i in range(60)))
    out = str(tmp_path / "t.zarr")
    assert CliRunner().invoke(cli, ["ingest", str(table), "--target", "y", "--out", out, "-q"]).exit_code == 2
    result = CliRunner().invoke(cli, ["--quiet", "ingest", str(table), "--target", "y", "--out", out])
    assert (result.exit_code, result.output) == (0, "")
    return out


def test_quiet_prints_results_and_errors_only(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    for words, shown in (
        (["info", store], True),
        (["check", store], True),
        (["shuffle", store, "--out", f"{store}2"], False),
    ):
        with pytest.raises(SystemExit) as end:
            main([*words, "--quiet"])
        assert end.value.code == 0
        out, err = capfd.readouterr()
        assert (bool(out), err) == (shown, "")
    with pytest.raises(SystemExit):
        main(["shuffle", store, "--out", f"{store}2", "--quiet"])
    assert "error" in capfd.readouterr().err


def test_quiet_leaves_out_what_is_said_of_tables(store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": ["u", "v"] * 30, "b": np.arange(60.0), "y": ["n", "p", "p"] * 20}), table)
    for words in ("plan", table, "--target", "y", "--landmarks", "20"), ("sweep", store, "--landmarks", "20"):
        with pytest.raises(SystemExit) as end:
            main([*words, "--workers", "0", "--quiet"])
        assert end.value.code == 0
        out, _ = capfd.readouterr()
        assert "note:" not in out
        assert "not ingested" not in out
        assert out


@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", ["sweep {} --landmarks 20 --workers 0", "plan {} --landmarks 20 --workers 0"])
def test_json_is_all_that_is_printed(store: str, words: str) -> None:
    result = CliRunner().invoke(cli, [*words.format(store).split(), "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    if words.startswith("plan"):
        assert record["memory_total"] == sum(record["memory"].values())
        assert record["seconds"] >= sum(record["stages"].values()) > 0
        assert record["worker_hours"] > 0
    else:
        errors = [point["error"] for point in record["points"]]
        assert errors == sorted(errors)
        assert record["command"].startswith("daskkern fit")


def test_settings_come_from_stdin(store: str) -> None:
    words = ["fit", store, "--out", f"{store}.model", "--config", "-", "--workers", "0"]
    result = CliRunner().invoke(cli, words, input="solver: nonsense\n")
    assert "solver 'nonsense' is unknown" in str(result.exception)
