"""Files that declare far more than they hold are refused before memory is taken."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from daskkern.data.ingest import ingest
from daskkern.data.schema.column_statistics import WIDE
from daskkern.data.schema.schema import STATISTICS
from daskkern.data.storage.recorded_checksums import read_records
from daskkern.data.storage.sizes import check_chunks, stored_bytes
from daskkern.data.storage.store import open_store
from daskkern.errors import ModelError, StoreError
from daskkern.kernels import Gaussian
from daskkern.models import KernelModel, load_model, save_model
from daskkern.solvers import Shard, Snapshot
from daskkern.training.checkpoints.checkpoint import begin_checkpoint, read_checkpoint
from daskkern.training.checkpoints.checkpoint_writer import CheckpointWriter
from daskkern.training.checkpoints.commits import Commit, Position
from tests.support.traced_memory import traced_peak

HUGE = 600_000_000


def wide(metadata: dict[str, Any]) -> None:
    """More columns, in chunks of as many as before: only those of the first column are stored."""
    metadata["shape"][-1] = HUGE


def tall(metadata: dict[str, Any]) -> None:
    """One chunk of more rows, which is stored in fewer bytes."""
    metadata["shape"][0] = HUGE
    metadata["chunk_grid"]["configuration"]["chunk_shape"][0] = HUGE


def packed(metadata: dict[str, Any]) -> None:
    """The same, with chunks that claim to be compressed."""
    tall(metadata)
    metadata["codecs"].append({"name": "zstd", "configuration": {"level": 0, "checksum": False}})


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))


def peak_of(refused: Callable[[], object], kind: type[Exception]) -> int:
    def attempt() -> None:
        with pytest.raises(kind, match=r"declares|incomplete|has shape|is missing|shapes"):
            refused()

    return traced_peak(attempt)


@pytest.mark.parametrize("change", [wide, tall, packed])
def test_a_model_that_declares_gigabytes_is_refused(change: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    model = KernelModel(
        Gaussian(2.0), np.ones((5, 4)), np.ones((5, 1)), loss="squared", task="regression", classes=None
    )
    save_model(model, tmp_path / "m")
    edit(tmp_path / "m" / "points" / "zarr.json", change)
    assert peak_of(lambda: load_model(tmp_path / "m"), ModelError) < 20e6


@pytest.mark.parametrize("change", [wide, tall, packed])
def test_a_checkpoint_that_declares_gigabytes_is_refused(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    place = str(tmp_path / "c")
    commit = Commit(Snapshot({"coef": Shard(np.arange(6), np.ones((6, 1)))}, {}, {}), Position(steps=1))
    with CheckpointWriter(begin_checkpoint(place, "run"), 0, "run", "{}", 0.0) as writer:
        writer.offer(commit, at_once=True)
    edit(next((tmp_path / "c").glob("commit-*/shard/coef/zarr.json")), change)
    assert peak_of(lambda: read_checkpoint(place, "{}"), StoreError) < 20e6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", [wide, tall, packed])
@pytest.mark.parametrize("name", [STATISTICS, "chunk_checksums/X", "y"])
def test_a_store_that_declares_gigabytes_is_refused(
    name: str, change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).standard_normal((20, WIDE + 1)), y=np.arange(20) % 2)
    ingest(tmp_path / "rows.npz", tmp_path / "s")
    edit(tmp_path / "s" / name / "zarr.json", change)
    assert peak_of(lambda: read_records(open_store(tmp_path / "s").group), StoreError) < 20e6


def test_chunks_may_be_compressed_within_reason_and_small_arrays_freely(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    values = np.random.default_rng(0).integers(0, 4, (1 << 20, 4)).astype(np.int32)
    array = group.create_array("x", data=values, chunks=(1 << 18, 4), compressors=zarr.codecs.ZstdCodec())
    assert stored_bytes(array) < values.nbytes / 4
    assert check_chunks(array, "x") is None
    zeros = group.create_array(
        "z", data=np.zeros((1 << 22, 8)), chunks=(1 << 20, 8), config={"write_empty_chunks": True}
    )
    with pytest.raises(StoreError, match=r"z of g declares 268\.4 MB .* made to exhaust memory"):
        check_chunks(zeros, "z of g")
    few = group.create_array("few", data=np.zeros(1000), config={"write_empty_chunks": True})
    assert check_chunks(few, "few") is None
    columns = group.create_array("c", data=np.ones((4, 4)), chunks=(2, 2), compressors=None)
    assert check_chunks(columns, "columns") is None
    (tmp_path / "g" / "c" / "c" / "1" / "1").unlink()
    assert check_chunks(columns, "columns") == 1
