"""An ingestion that is interrupted while it gives all parts the same class codes is continued with the right labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline import parallel
from daskkern.data.storage.check import check_store
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import open_store
from daskkern.data.transactions import part_record

ROWS = 3000


@pytest.mark.parametrize("kind", ["texts", "floats"])
@pytest.mark.parametrize("chunk", [0, 10, 40, 43, None])
def test_labels_are_right_after_an_interrupt_at(
    chunk: int | None, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part has 10 chunks of codes; None interrupts after the last one."""
    labels = {"texts": np.array(["a", "b", "c"]), "floats": np.array([1.0, 2.0, 5.0])}[kind]
    number = np.arange(ROWS)
    y = np.where(number % 500 < 250, labels[2], labels[:2][number % 2])  # each part meets its labels in another order
    table = pa.table({"x": number * 1.0, "z": number * 2.0, "y": y})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=250)
    monkeypatch.setattr(parallel, "LEAST_BYTES", 4000)
    monkeypatch.setattr(part_record, "SECONDS", 0.0)
    settings: dict[str, Any] = {"target": "y", "chunk_rows": 50, "shuffle": False, "task": "classification"}
    source, out, plain, n_read = tmp_path / "d.parquet", f"file://{tmp_path}/s", ChunkedArrays.read, 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def read(self: ChunkedArrays, name: str, start: int) -> np.ndarray:
        nonlocal n_read
        n_read += 1
        return interrupt() if n_read == chunk + 1 else plain(self, name, start)

    with monkeypatch.context() as patch:
        if chunk is None:
            patch.setattr(SharedWriter, "sum_classes", interrupt)
        else:
            patch.setattr(ChunkedArrays, "read", read)
        with pytest.raises(KeyboardInterrupt):
            ingest(source, out, **settings)
    ingest(source, out, **settings)
    store = open_store(out)
    assert store.info.classes is not None
    assert store.info.classes == tuple(labels.tolist())
    np.testing.assert_array_equal(np.array(store.info.classes)[np.asarray(store.array("y")[:])], y)
    assert check_store(out).findings == ()
