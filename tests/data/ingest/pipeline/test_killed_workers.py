"""A worker is killed in the middle of a part of an ingestion: the part is written again, every row exactly once."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline import parallel
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.storage.shared_writer import SharedWriter
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from tests.support.cluster import local_cluster

ROWS, FILES = 2000, 4


def die_in_a_part(mark: Path) -> None:
    """On a worker: the first process that has appended rows twice is killed, and leaves a file that says so."""
    plain, appended = SharedWriter.append, 0

    def append(self: SharedWriter, X: FeatureRows, *rest: np.ndarray | None) -> None:
        nonlocal appended
        plain(self, X, *rest)
        appended += 1
        if appended == 2:
            mark.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    SharedWriter.append = append  # type: ignore[method-assign]


def processes(client: Client) -> set[int]:
    return set(client.run(os.getpid).values())


@pytest.mark.cluster
@pytest.mark.repeated
@pytest.mark.timeout(120)
def test_the_store_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "lake").mkdir()
    for part in range(FILES):
        number = np.arange(part * ROWS, (part + 1) * ROWS)
        columns = {"number": number.astype(np.float64), "x": rng.normal(size=ROWS), "y": number % 7 * 0.5}
        pq.write_table(pa.table(columns), tmp_path / "lake" / f"part-{part}.parquet", row_group_size=250)
    settings: dict[str, Any] = {"target": "y", "task": "regression", "shuffle": False, "chunk_rows": 250}
    monkeypatch.setattr(parallel, "LEAST_BYTES", 4000)
    reported: list[int] = []
    with local_cluster(2) as client:
        before = processes(client)
        client.run(die_in_a_part, tmp_path / "killed", workers=[next(iter(client.scheduler_info()["workers"]))])
        ingest(
            tmp_path / "lake", tmp_path / "s", client=client, progress=lambda done, _: reported.append(done), **settings
        )
        assert (tmp_path / "killed").exists()
        client.wait_for_workers(2, timeout=60)
        assert len(before & processes(client)) == 1
    ingest(tmp_path / "lake", tmp_path / "one", **settings)
    ours, alone = open_store(tmp_path / "s"), open_store(tmp_path / "one")
    ours.verify()
    assert ours.info.checksums == alone.info.checksums
    assert reported == sorted(set(reported))
    assert reported[-1] == FILES * ROWS
    X = StoreRows(ours).read(0, FILES * ROWS).X
    np.testing.assert_array_equal(X[:, 0], np.arange(FILES * ROWS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "lake", "one", "s"]
