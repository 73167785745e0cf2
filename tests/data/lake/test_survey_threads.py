"""The first pass over a local lake decodes in as many threads as there are cores: each holds tens of MB."""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskkern.backend.processors import cpu_count
from daskkern.data.ingest.readers.lake_survey import SurveyJob, survey
from daskkern.data.lake.decoded_columns import DecodedColumns
from daskkern.data.lake.lake import Lake
from daskkern.data.lake.lake_piece import LakeBatch, LakePiece
from daskkern.data.lake.opening import decode_here, open_lake

N_FILES = 48


class Counting(DecodedColumns):
    """Counts the threads that decode at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.most, self._counting = 0, 0, threading.Lock()

    def keep(self, piece: LakePiece, batches: Iterable[LakeBatch]) -> Iterator[LakeBatch]:
        with self._counting:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        yield from super().keep(piece, batches)
        with self._counting:
            self.now -= 1


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Small files, each of which says that it is large enough for a task of its own."""
    for part in range(N_FILES):
        values = pa.array(np.arange(4.0) + part, mask=np.arange(4) == 1)
        pq.write_table(pa.table({"x": values}), tmp_path / f"{part}.parquet")
    found = open_lake(tmp_path)
    return replace(found, pieces=tuple(replace(piece, n_bytes=1 << 30) for piece in found.pieces))


def test_no_more_threads_decode_than_there_are_cores(lake: Lake) -> None:
    counting = Counting()
    found = survey(SurveyJob(replace(lake, decoded=counting), ("x",), (), "mean", "auto", ()), None)
    assert found.numbers["x"].gaps == N_FILES
    assert found.numbers["x"].present == 3 * N_FILES
    assert 1 <= counting.most <= min(16, cpu_count())


def test_four_times_as_many_decode_what_comes_from_servers(lake: Lake) -> None:
    far, threads = replace(lake.pieces[0], file="s3://bucket/x.parquet"), set()

    def seen(_: int) -> None:
        threads.add(threading.get_ident())
        time.sleep(0.02)

    decode_here(replace(lake, pieces=(*lake.pieces, far)))(seen, range(N_FILES))
    assert min(16, cpu_count() + 1) <= len(threads) <= min(16, 4 * cpu_count())
