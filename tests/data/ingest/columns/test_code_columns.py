"""Text columns as codes of categories: positions, unseen and missing ones, and scalings that leave them alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from daskkern import ingest
from daskkern.data.schema.code_columns import with_codes_unscaled
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.encoding import ColumnEncoding, code_columns, encoding_from_json
from daskkern.data.schema.rank_tables import rank_tables
from daskkern.data.schema.same_columns import other_codes
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.unseen_categories import unseen_cells
from daskkern.errors import DataError

ROWS = 40
AIRPORTS = [f"A{k % 7}" for k in range(ROWS)]
CARRIERS: list[Any] = [None if k % 5 == 0 else "BC"[k % 2] for k in range(ROWS)]


def _table(folder: Path, name: str, **changes: Any) -> str:
    columns = {"size": np.arange(ROWS) / 4, "airport": AIRPORTS, "carrier": CARRIERS, "y": np.arange(ROWS) * 1.5}
    frame = pd.DataFrame({**columns, **changes})
    path = folder / name
    frame.to_csv(path, index=False) if name.endswith("csv") else frame.to_parquet(path)
    return str(path)


def _read(store: Store) -> np.ndarray:  # type: ignore[type-arg]
    X = StoreRows(store, np.float64, None).read(0, store.info.n_rows).X
    assert isinstance(X, np.ndarray)
    return X


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_text_column_becomes_one_column_of_codes_that_scaling_leaves_alone(tmp_path: Path, name: str) -> None:
    report = ingest(_table(tmp_path, name), tmp_path / "rows.zarr", target="y", categorical="codes", scale="standard")
    store = open_store(tmp_path / "rows.zarr")
    assert report.n_features == 3
    assert store.info.feature_names == ("size", "airport", "carrier")
    assert code_columns(store.info.encoding) == (1, 2)
    _, airport, carrier = store.info.encoding or ()
    assert airport == ColumnEncoding("airport", "code", tuple(f"A{k}" for k in range(7)))
    assert carrier == ColumnEncoding("carrier", "code", ("B", "C", "missing"), "missing")
    X = _read(store)
    np.testing.assert_array_equal(X[:, 1], [k % 7 for k in range(ROWS)])
    np.testing.assert_array_equal(X[:, 2], [2 if text is None else "BC".index(text) for text in CARRIERS])
    np.testing.assert_allclose([X[:, 0].mean(), X[:, 0].std()], [0, 1], atol=1e-6)
    assert unseen_cells(store) == {}


def test_codes_do_not_count_in_a_common_unit(tmp_path: Path) -> None:
    ingest(_table(tmp_path, "rows.csv"), tmp_path / "rows.zarr", target="y", categorical="codes", scale="common")
    scaling = open_store(tmp_path / "rows.zarr").info.scaling
    np.testing.assert_allclose(scaling.scale, (np.std(np.arange(ROWS) / 4), 1.0, 1.0))


@pytest.mark.parametrize("name", ["later.csv", "later.parquet"])
def test_categories_that_training_rows_do_not_have_share_a_code_and_are_counted(tmp_path: Path, name: str) -> None:
    ingest(_table(tmp_path, "rows.csv"), tmp_path / "rows.zarr", target="y", categorical="codes")
    airports = ["Z", "Y", None, *AIRPORTS[3:]]
    report = ingest(_table(tmp_path, name, airport=airports), tmp_path / "later.zarr", like=tmp_path / "rows.zarr")
    later = open_store(tmp_path / "later.zarr")
    np.testing.assert_array_equal(_read(later)[:, 1], [7, 7, 7, *(k % 7 for k in range(3, ROWS))])
    assert unseen_cells(later) == {"airport": 3}
    assert [note for note in report.notes if "column 'airport': 3 cells have a category that the training" in note]


def test_a_gap_is_refused_where_gaps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="carrier"):
        ingest(_table(tmp_path, "rows.csv"), tmp_path / "rows.zarr", target="y", categorical="codes", missing="refuse")


def test_columns_of_thousands_of_categories_are_codes_but_no_features_each(tmp_path: Path) -> None:
    texts = [f"t{k}" for k in range(1500)] * 2
    frame = pd.DataFrame({"many": texts, "y": np.arange(3000) % 2})
    frame.to_parquet(tmp_path / "many.parquet")
    with pytest.raises(DataError, match=r"more than 1000 different texts.*or use --categorical codes"):
        ingest(str(tmp_path / "many.parquet"), tmp_path / "a.zarr", target="y", categorical="onehot")
    ingest(str(tmp_path / "many.parquet"), tmp_path / "b.zarr", target="y", categorical="codes", shuffle=False)
    stored = open_store(tmp_path / "b.zarr")
    assert stored.array("X").dtype == np.uint16
    assert np.unique(_read(stored)).size == 1500


def test_scalings_of_every_kind_leave_codes_alone() -> None:
    rows = np.random.default_rng(0).standard_normal((300, 3)) * 5 + 2
    tables = rank_tables(rows, [0, 1])
    scaling = Scaling("ranks", (0.0, 0.0, 2.0), (1.0, 1.0, 5.0), (0.0, 0.0, 0.7), tables)
    found = with_codes_unscaled(scaling, (1, 2))
    made = found.apply(rows, np.float64)
    np.testing.assert_array_equal(made[:, 1:], rows[:, 1:])
    np.testing.assert_array_equal(made[:, 0], scaling.apply(rows, np.float64)[:, 0])
    assert with_codes_unscaled(scaling, ()) is scaling


def test_records_of_codes_are_read_and_compared() -> None:
    ours = (ColumnEncoding("a", "code", ("x", "y")), ColumnEncoding("b"))
    assert encoding_from_json([column.to_json() for column in ours]) == ours
    assert other_codes(ours, (ColumnEncoding("a", "code", ("x", "z")), ColumnEncoding("b"))) == "a"
    assert other_codes(ours, (ColumnEncoding("a", "ordinal", ("x", "y")), ColumnEncoding("b"))) == "a"
    assert other_codes(ours, ours) is None
