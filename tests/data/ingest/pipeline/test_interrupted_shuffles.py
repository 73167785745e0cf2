"""An ingestion to a URL that is interrupted while it shuffles rows in the order of their target is continued."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from daskkern.data.ingest import ingest
from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import open_store
from daskkern.errors import CONTINUES, StoreError

ROWS = 2000
SETTINGS: dict[str, Any] = {"target": "y", "task": "classification", "chunk_rows": 50}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    number = np.arange(ROWS)
    pq.write_table(pa.table({"x": number * 1.0, "y": number // (ROWS // 2)}), tmp_path / "d.parquet")
    return tmp_path / "d.parquet"


def interrupted(source: Path, out: str, **settings: Any) -> None:
    """Ingest, and stop in the shuffle, in which each row counts twice."""

    def stop(done: int, total: int | None) -> None:
        if total == 2 * ROWS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as end:
        ingest(source, out, progress=stop, **SETTINGS, **settings)
    assert end.value.__notes__ == [CONTINUES]


def check_continues(source: Path, folder: Path, **settings: Any) -> None:
    out, seen = f"file://{folder}/s", list[int | None]()
    interrupted(source, out, **settings)
    report = ingest(source, out, progress=lambda _, total: seen.append(total), **SETTINGS, **settings)
    assert report.shuffled
    assert set(seen) == {2 * ROWS}  # nothing is ingested again
    ingest(source, folder / "one", **SETTINGS)
    one, other = open_store(folder / "one"), open_store(out)
    np.testing.assert_array_equal(np.asarray(one.array("X")[:]), np.asarray(other.array("X")[:]))
    assert one.info.checksums == other.info.checksums
    assert check_store(out).findings == ()
    with pytest.raises(StoreError, match="exists"):
        ingest(source, out, **SETTINGS, **settings)


def test_in_one_process(source: Path, tmp_path: Path) -> None:
    check_continues(source, tmp_path)


def test_in_place_of_another_store(source: Path, tmp_path: Path) -> None:
    out, seen = f"file://{tmp_path}/s", list[int | None]()
    ingest(source, out, **SETTINGS)
    interrupted(source, out, overwrite=True)
    assert ingest(source, out, overwrite=True, progress=lambda _, total: seen.append(total), **SETTINGS).shuffled
    assert set(seen) == {2 * ROWS}


@pytest.mark.cluster
def test_by_workers(source: Path, tmp_path: Path, client2: Client) -> None:
    check_continues(source, tmp_path, client=client2)


def test_other_stores_are_not_shuffled(source: Path, tmp_path: Path) -> None:
    in_order, of_others = f"file://{tmp_path}/in_order", f"file://{tmp_path}/of_others"
    ingest(source, in_order, shuffle=False, **SETTINGS)
    interrupted(source, of_others)
    for out, changes in ((in_order, {}), (of_others, {"chunk_rows": 40})):
        before = open_store(out).info.checksums
        with pytest.raises(StoreError, match="exists"):
            ingest(source, out, **{**SETTINGS, **changes})
        assert open_store(out).info.checksums == before
