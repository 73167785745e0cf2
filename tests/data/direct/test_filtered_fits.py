"""Fits straight from Parquet of some rows and columns: those of an ingestion with the same filter."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import daskkern
from daskkern.cli.main import main
from daskkern.errors import DataError, SpecError
from daskkern.training.direct.registry import direct_rows
from daskkern.training.direct.roles import RowRoles

OPTIONS = ("--kernel", "gaussian:2", "--landmarks", "all", "--alpha", "0.01", "--solver", "direct", "--workers", "0")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=300) for name in ("a", "b", "c")}
    rows = pa.table({**columns, "day": rng.integers(0, 5, 300), "y": columns["a"]})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=64)
    return tmp_path / "t.parquet"


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_direct_fit_of_a_filter_is_that_of_the_filtered_store(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = ("--target", "y", "--columns", "a,c", "--where", "day >= 2")
    assert command("fit", table, "--out", tmp_path / "m", *some, *OPTIONS) == 0, capsys.readouterr().err
    frame = pq.read_table(table)
    n_rows = int(np.sum(frame["day"].to_numpy() >= 2))
    assert f"reads {n_rows} rows x 2 features" in capsys.readouterr().out.replace("\n", " ")
    pq.write_table(frame.filter(frame["day"].to_numpy() >= 2).select(["a", "c", "y"]), tmp_path / "f.parquet")
    assert command("fit", tmp_path / "f.parquet", "--out", tmp_path / "n", "--target", "y", *OPTIONS) == 0
    one, other = (daskkern.load(tmp_path / name) for name in "mn")
    assert one.feature_names == ("a", "c")
    X = np.random.default_rng(1).normal(size=(20, 2))
    assert one.provenance["data"]["rows"] == n_rows
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-3, atol=1e-3)
    assert np.ptp(one.predict(X)) > 0.1


def test_filters_that_do_not_apply_are_refused(table: Path) -> None:
    rows = ds.dataset(pq.read_table(table))
    with pytest.raises((DataError, SpecError), match="where"):
        direct_rows(rows, RowRoles(("y",), where="day > 1"))
