"""Names of columns on the command line: with commas, repeated, or in quotes, in every command alike."""

from pathlib import Path

import click
import pandas as pd
import pytest

from daskkern.cli.ingest import command as ingest_command
from daskkern.cli.main import COMMANDS, whole_command
from daskkern.cli.options.column_lists import column_names
from daskkern.data.storage.store import open_store
from daskkern.errors import SpecError


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["a,b"], ("a", "b")),
        (["a", "b"], ("a", "b")),
        (["a, b", "c"], ("a", "b", "c")),
        (['"price, EUR",b'], ("price, EUR", "b")),
        (['b, "he said ""no"""'], ("b", 'he said "no"')),
        (['5" pipe'], ('5" pipe',)),
        ([], ()),
    ],
)
def test_names_with_commas_repeated_and_in_quotes(texts: list[str], names: tuple[str, ...]) -> None:
    assert column_names("--drop", texts) == names


@pytest.mark.parametrize("texts", [["a,,b"], [""], ["a", "a"], ["a,b,a"], ['"a'], ["a,"]])
def test_lists_that_are_none_are_refused(texts: list[str]) -> None:
    with pytest.raises(SpecError, match="got --drop"):
        column_names("--drop", texts)


@pytest.mark.parametrize("words", [["--drop", "b,c"], ["--drop", "b", "--drop", "c"], ["--columns", "a, d"]])
def test_an_ingestion_takes_them_as_a_fit_does(tmp_path: Path, words: list[str]) -> None:
    pd.DataFrame({name: [1.5, 2.5, 4.0] for name in "abcdy"}).to_csv(tmp_path / "t.csv", index=False)
    words = [str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "s"), *words]
    ingest_command.main(words, standalone_mode=False)
    assert open_store(tmp_path / "s").info.feature_names == ("a", "d")


def test_every_command_has_the_same_lists() -> None:
    lists = {"--target", "--drop", "--keep", "--partition-by", "--sample-dims", "--coords"}
    for command in map(whole_command, COMMANDS):
        for item in command.params:
            if isinstance(item, click.Option) and (
                lists & {*item.opts} or (item.opts == ["--columns"] and command.name == "ingest")
            ):
                assert item.multiple, (command.name, item.name)
                assert item.process_value(click.Context(command), ("a,b", "c")) == ("a", "b", "c")
