"""Filters of columns of floats keep the rows that pandas keeps, whatever the row groups and the type of the column."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskkern.data.ingest import ingest
from daskkern.data.lake import open_lake
from daskkern.data.lake.opening import count_rows
from daskkern.errors import DataError

Series: TypeAlias = "pd.Series[Any]"
Condition: TypeAlias = tuple[str, Callable[[Series], Series]]
"""A filter of the column x, and what pandas makes of it: true, false, or missing, which leaves a row out."""

DTYPES = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
SIZES = (4, 1000)
NAN, INF = float("nan"), float("inf")
ROWS: list[list[float | None]] = [
    [0.0, NAN, 0.0, 0.0],
    [-0.0, -0.0, -0.0, -0.0],
    [0.1, NAN, 0.1, 0.1],
    [0.1, 0.2, NAN, 0.3],
    [None, NAN, None, NAN],
    [NAN, NAN, NAN, NAN],
    [None, None, None, None],
    [INF, -INF, NAN, INF],
    [INF, INF, INF, INF],
    [1.0, None, 2.0, NAN],
    [-5.0, -5.0, None, -5.0],
    [0.3, 0.3, 0.3, 0.3],
]
VALUES = [value for group in ROWS for value in group]
NUMBERS = ["0", "-0.0", "0.1", "0.3", "-5", "100", "1e39", "-1e39", "1e-50", "9" * 400]
MARKS: dict[str, Callable[[Series, Any], Series]] = {
    "=": pd.Series.eq,
    "!=": pd.Series.ne,
    "<": pd.Series.lt,
    "<=": pd.Series.le,
    ">": pd.Series.gt,
    ">=": pd.Series.ge,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as each type of floats, in row groups of each size."""
    place = tmp_path_factory.mktemp("floats")
    known = np.array([0.0 if value is None else value for value in VALUES])
    gaps = np.array([value is None for value in VALUES])
    for name, dtype in DTYPES.items():
        table = pa.table({"row": np.arange(len(VALUES)), "x": pa.array(known.astype(dtype), mask=gaps)})
        for size in SIZES:
            pq.write_table(table, place / f"{name}-{size}.parquet", row_group_size=size)
    return place


def kept(file: Path, where: str) -> list[int]:
    """Return the numbers of the rows that pass a filter."""
    with suppress(DataError):  # where statistics exclude all row groups
        lake = count_rows(open_lake(file, columns=["row"], where=where))
        batches = [batch.rows for piece in lake.pieces for batch in lake.batches(piece, ["row"], 7)]
        return [row for batch in batches for row in batch["row"].to_pylist()]
    return []


def expected(name: str, condition: Condition) -> list[int]:
    """Return the rows that pandas keeps."""
    rows = pd.Series([NAN if value is None else value for value in VALUES]).astype(DTYPES[name])
    return np.flatnonzero(condition[1](rows).fillna(False).to_numpy(bool)).tolist()


def typed(number: str, rows: Series) -> Any:
    with np.errstate(over="ignore"):
        return rows.dtype.type(float(number))


def with_gaps(passes: Series) -> Series:
    return passes.astype("boolean").mask(pd.Series([value is None for value in VALUES]))


def comparison(mark: str, number: str) -> Condition:
    return f"x {mark} {number}", lambda rows: with_gaps(MARKS[mark](rows, typed(number, rows)))


def mirrored(mark: str, number: str) -> Condition:
    turned = mark.translate(str.maketrans("<>", "><"))
    return f"{number} {mark} x", comparison(turned, number)[1]


def among(numbers: list[str], negated: bool) -> Condition:
    def passes(rows: Series) -> Series:
        found = with_gaps(rows.astype(float).isin([float(typed(number, rows)) for number in numbers]))
        return ~found if negated else found

    return f"x {'not ' * negated}in ({', '.join(numbers)})", passes


def between(low: str, high: str, negated: bool) -> Condition:
    def passes(rows: Series) -> Series:
        found = with_gaps(rows.between(typed(low, rows), typed(high, rows)))
        return ~found if negated else found

    return f"x {'not ' * negated}between {low} and {high}", passes


def opposite(condition: Condition) -> Condition:
    return f"not ({condition[0]})", lambda rows: ~condition[1](rows)


def joined(first: Condition, word: str, second: Condition) -> Condition:
    def passes(rows: Series) -> Series:
        one, other = first[1](rows), second[1](rows)
        return one & other if word == "and" else one | other

    return f"({first[0]}) {word} ({second[0]})", passes


CASES = [comparison(mark, number) for mark in MARKS for number in NUMBERS]
CASES += [among(numbers, negated) for numbers in (["0"], ["-0.0", "0.3"], ["0.1", "1e39"]) for negated in (False, True)]
CASES += [between(*ends, negated) for ends in (("0", "0"), ("0.1", "0.3"), ("-9", "9")) for negated in (False, True)]
NULLS: list[Condition] = [
    ("x is null", lambda rows: pd.Series([value is None for value in VALUES]).astype("boolean")),
    ("x is not null", lambda rows: pd.Series([value is not None for value in VALUES]).astype("boolean")),
]


@pytest.mark.parametrize("name", DTYPES)
def test_each_condition_and_its_negation_keep_what_pandas_keeps(name: str, folder: Path) -> None:
    for case in [*CASES, *map(opposite, CASES), *NULLS, *map(opposite, NULLS)]:
        for size in SIZES:
            found = kept(folder / f"{name}-{size}.parquet", case[0])
            assert found == expected(name, case), (case[0], size)


numbers = st.sampled_from(NUMBERS)
conditions = st.recursive(
    st.one_of(
        st.builds(comparison, st.sampled_from(list(MARKS)), numbers),
        st.builds(mirrored, st.sampled_from(list(MARKS)), numbers),
        st.builds(among, st.lists(numbers, min_size=1, max_size=3), st.booleans()),
        st.builds(between, numbers, numbers, st.booleans()),
        st.sampled_from(NULLS),
    ),
    lambda inner: st.one_of(
        st.builds(opposite, inner), st.builds(joined, inner, st.sampled_from(["and", "or"]), inner)
    ),
    max_leaves=4,
)


@given(name=st.sampled_from(list(DTYPES)), condition=conditions)
def test_row_groups_do_not_matter(name: str, condition: Condition, folder: Path) -> None:
    rows = expected(name, condition)
    for size in SIZES:
        assert kept(folder / f"{name}-{size}.parquet", condition[0]) == rows


def test_row_groups_that_cannot_pass_are_not_read(folder: Path) -> None:
    file = folder / "float32-4.parquet"
    for where, n_pieces in (("x = 0.2", 3), ("x < -5.5", 3), ("x between 0.15 and 0.2", 3), ("not x != 0.2", 3)):
        assert 0 < len(open_lake(file, where=where).pieces) <= n_pieces + 2 < len(ROWS), where


@pytest.mark.parametrize("order", [("float32", "float64"), ("float64", "float32"), ("int32", "float64")])
def test_a_number_takes_the_type_that_holds_the_values_of_all_files(order: tuple[str, str], tmp_path: Path) -> None:
    for at, name in enumerate(order):
        values = np.array([0.1, 3.0]).astype(name)
        pq.write_table(
            pa.table({"row": [2 * at, 2 * at + 1], "x": values}), tmp_path / f"{at}.parquet", row_group_size=1
        )
    shared = np.concatenate([np.array([0.1, 3.0]).astype(name).astype(np.float64) for name in order])
    number = "0.1" if "int32" not in order else "0"
    for mark, compare in MARKS.items():
        passing = np.flatnonzero(compare(pd.Series(shared), float(number))).tolist()
        assert kept(tmp_path, f"x {mark} {number}") == passing, mark


@pytest.mark.parametrize("size", [1, 4])
def test_a_filter_that_keeps_no_row_is_named(size: int, tmp_path: Path) -> None:
    table = pa.table({"k": [1, 2, 4, 5], "a": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 5.0]})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=size)
    words = r"^no row of .*e\.parquet passes the filter 'k = 3'; check the filter$"
    with pytest.raises(DataError, match=words):
        ingest(tmp_path / "e.parquet", tmp_path / "s", target="y", where="k = 3")


def test_numbers_beyond_the_range_of_a_column_give_no_warning(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept(folder / "float32-4.parquet", "x > 1e39") == []
        assert len(kept(folder / "float32-4.parquet", "x <= 1e39")) == sum(v is not None and v == v for v in VALUES)
