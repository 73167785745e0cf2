"""Quantities that a table writes as texts, and files in other dialects, are named and not encoded."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from daskkern import KernelClassifier
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.data.ingest.columns.written_values import written_as
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError

DAYS = [f"2020-01-{day:02d}" for day in range(1, 13)]


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ([f"{k}.5%" for k in range(12)], "percentages"),
        ([f"-{k} %" for k in range(12)], "percentages"),
        ([f"${k},000.25" for k in range(1, 13)], "amounts of money"),
        ([f"{k},50 EUR" for k in range(12)], "amounts of money"),
        ([f"{k},000" for k in range(1, 13)], "numbers with separators"),
        ([f"{k},25" for k in range(12)], "numbers with separators"),
        (DAYS, "dates or times"),
        ([f"{day}T10:30:00Z" for day in DAYS], "dates or times"),
        ([f"{day}/12/21 9:15 PM" for day in range(1, 13)], "dates or times"),
        ([f"{hour}:30" for hour in range(12)], "dates or times"),
        ([*DAYS, "unknown"], "dates or times"),  # one in thirteen is something else
        ([f"{k}-{k + 9}" for k in range(0, 120, 10)], ""),
        ([f"item {k}" for k in range(12)], ""),
        ([f"{k} years" for k in range(12)], ""),
        ([f"v{k}.2.1" for k in range(12)], ""),
        ([*DAYS[:6], *"abcdef"], ""),
        ([f"192.168.{k}.1" for k in range(12)], ""),
        ([f"2020-{k}-45" for k in range(1, 13)], ""),
    ],
)
def test_texts_that_stand_for_quantities_are_known(texts: list[str], name: str) -> None:
    found = written_as(dict.fromkeys(texts, 3), 3 * len(texts))
    assert (found.name if found else "") == name


def test_a_column_of_texts_that_stand_for_numbers_is_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": range(60), "rate": [f"{k % 20}.5%" for k in range(60)], "y": ["u", "v"] * 30})
    table.to_csv(tmp_path / "t.csv", index=False)
    words = "column 'rate' of .* holds percentages, such as '0.5%', and would become 20 categories; write plain numbers"
    with pytest.raises(DataError, match=words):
        ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y")
    report = ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y", categorical="onehot")
    assert report.n_features == 21


def test_few_categories_that_look_like_numbers_are_categories(tmp_path: Path) -> None:
    pd.DataFrame({"a": ["5%", "7%", "19%"] * 20, "y": [0.5, 1.5] * 30}).to_csv(tmp_path / "t.csv", index=False)
    assert ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y").n_features == 3


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,2\n3,4\n", encoding=encoding)
    with pytest.raises(DataError, match="is encoded in UTF-16 or UTF-32; save it in UTF-8"):
        ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y")


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("|", "vertical bars")])
def test_other_separators_are_named(tmp_path: Path, mark: str, name: str) -> None:
    (tmp_path / "t.csv").write_text(f"a{mark}y\n1,5{mark}2\n3,5{mark}4\n")
    with pytest.raises(DataError, match=f"has no comma, but {name}; separate values by commas or tabs"):
        ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y")


@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.tsv.gz", "named, t.tsv"])
def test_tabs_separate_values(tmp_path: Path, name: str) -> None:
    table = pd.DataFrame({"a": [1.5, 2.5, 3.5, 4.5], "b": ["u,v", "w", "w", "u,v"], "y": ["p", "q"] * 2})
    if "," in name:
        table = table.rename(columns={"a": "a,b"})
    table.to_csv(tmp_path / name, sep="\t", index=False)
    ingest(tmp_path / name, tmp_path / "s.zarr", target="y")
    found = StoreRows(open_store(tmp_path / "s.zarr")).read(0, 4)
    np.testing.assert_array_equal(found.X, [[1.5, 1, 0], [2.5, 0, 1], [3.5, 0, 1], [4.5, 1, 0]])


def test_decimal_commas_are_no_categories(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\ty\n" + "".join(f"{k},5\tp\n{k},5\tq\n" for k in range(12)))
    with pytest.raises(DataError, match="numbers with separators"):
        ingest(tmp_path / "t.tsv", tmp_path / "s.zarr", target="y")


def test_a_table_without_targets_is_not_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(40), "b": rng.standard_normal(40), "answer": ["u", "v"] * 20})
    table.to_csv(tmp_path / "t.csv", index=False)
    table[["a", "b"]].to_csv(tmp_path / "bare.csv", index=False)
    ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="answer")
    KernelClassifier(max_epochs=2, device="cpu").fit(tmp_path / "s.zarr").save(tmp_path / "m.zarr")
    with pytest.raises(SystemExit) as ended:
        main(["score", str(tmp_path / "m.zarr"), str(tmp_path / "bare.csv")])
    assert ended.value.code != 0
    assert "has no targets to score predictions against; add a column 'answer'" in capsys.readouterr().err


def test_ratings_with_a_few_codes_are_categories(tmp_path: Path) -> None:
    ratings = [str(1 + k % 5) for k in range(190)] + [f"code {k % 10}" for k in range(10)]
    pd.DataFrame({"rating": ratings, "y": [0.5, 1.5] * 100}).to_csv(tmp_path / "t.csv", index=False)
    assert ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y").n_features == 15


def test_plain_numbers_among_grouped_ones_are_numbers_too(tmp_path: Path) -> None:
    prices = [f"{k},000" for k in range(1, 41)] + [str(k % 9) for k in range(20)] + ["n/s"] * 2
    pd.DataFrame({"price": prices, "y": [0.5, 1.5] * 31}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="holds numbers with separators, such as '1,000'"):
        ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y")


def test_marks_in_quotes_are_no_separators(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a|b",y\n1,2\n3,4\n')
    assert ingest(tmp_path / "t.csv", tmp_path / "s.zarr", target="y").n_features == 1


def test_a_corrupt_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"a,y\n" + b"1.5,2\n" * 9000)
    (tmp_path / "t.csv.gz").write_bytes(whole[:30] + bytes(len(whole) - 30))
    with pytest.raises(DataError, match="cannot be read as CSV"):
        ingest(tmp_path / "t.csv.gz", tmp_path / "s.zarr", target="y")


@pytest.mark.parametrize("n_rows", [41, 1500])
def test_a_text_among_many_numbers_is_named(tmp_path: Path, n_rows: int) -> None:
    lines = [f"{k}.5,{k % 2}" for k in range(n_rows - 1)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", "none yet,1", *lines]) + "\n")
    with pytest.raises(DataError, match=r"column 'a' .* holds numbers, but texts such as 'none yet' in 1 of \d+ rows"):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")


@pytest.mark.parametrize("blank", [" ", "  "])
def test_blank_cells_are_missing_numbers(tmp_path: Path, blank: str) -> None:
    lines = [f"{k}.5,{k % 2}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *lines, f"{blank},1"]) + "\n")
    made = ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")
    assert made.n_features == 1
    assert any("1 missing number" in note for note in made.notes)


@pytest.mark.parametrize("cell", ["1_000", "٣"])
def test_a_cell_that_only_looks_like_a_number_is_named(tmp_path: Path, cell: str) -> None:
    lines = [f"{k}.5,{k % 2}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *lines, f"{cell},1"]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"column 'a' of .* holds numbers, but texts such as '{cell}' in 1 of 41 rows"):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")


def test_numbers_that_are_stored_as_text_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [str(k) for k in range(60)], "y": ["u", "v"] * 30})
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'a' of .* holds numbers that are stored as text, such as '0'; store"):
        ingest([str(tmp_path / "t.parquet")], tmp_path / "d", target="y")
    ingest([str(tmp_path / "t.parquet")], tmp_path / "d", target="y", categorical="onehot")


def test_a_header_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Größe,y\n1,2\n3,4\n", encoding="latin-1")
    with pytest.raises(
        DataError, match=r"the first line of .*t\.csv is not encoded in UTF-8; convert it, from Latin-1"
    ):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")


def test_labels_that_differ_by_spaces_alone_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": range(40), "y": ["yes", "no", " yes", "no"] * 10})
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="the target has the labels ' yes' and 'yes', which differ by spaces alone"):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")
    assert not (tmp_path / "d").exists()
    table.assign(y=" " + table["y"].str.strip()).to_csv(tmp_path / "t.csv", index=False)
    ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")


def test_a_value_in_another_encoding_is_named(tmp_path: Path) -> None:
    lines = ["place,a,y", *(f"{'Genf' if k < 30 else 'Zürich'},{k},{k % 2}" for k in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="latin-1")
    with pytest.raises(DataError, match=r"is not encoded in UTF-8 \(row 30, column 'place'\); convert it, .*iconv -f"):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")


def test_infinite_values_are_no_gaps(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((40, 2))
    X[3, 1] = np.inf
    np.savez(tmp_path / "t.npz", X=X, y=np.arange(40) % 2)
    with pytest.raises(DataError, match=r"has inf, .* correct such values or remove the rows; --missing fills gaps"):
        ingest([str(tmp_path / "t.npz")], tmp_path / "d", missing="mean")


def test_lengths_of_time_may_be_written_as_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"t": pd.to_timedelta(range(40), "h"), "a": range(40), "y": ["u", "v"] * 20})
    table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"write it as numbers, or leave it out with --drop t"):
        ingest([str(tmp_path / "t.parquet")], tmp_path / "d", target="y")


def test_targets_whose_squares_overflow_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,1e20\n2,-3e200\n3,2\n")
    with pytest.raises(
        DataError, match=r"row 1 of .* has the target -3e\+200, whose square float64 cannot hold; rescale"
    ):
        ingest([str(tmp_path / "t.csv")], tmp_path / "d", target="y")
    assert not (tmp_path / "d").exists()
