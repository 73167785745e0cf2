"""Workers of a cluster write the store that one process writes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.shuffle import parallel
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.check import check_store
from daskkern.data.storage.raw_rows import StoredRows
from daskkern.data.storage.store import Store
from daskkern.errors import StoreError

pytestmark = pytest.mark.cluster
Make = Callable[..., Store]
Left = Callable[[], list[str]]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("memory", [4000, 9000, 1 << 28])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_workers_write_what_one_process_writes(
    make_store: Make, X: HostArray, tmp_path: Path, client2: Client, memory: int, task: str, left: Left
) -> None:
    settings = {"classes": ("a", "b", "c")} if task == "classification" else {"n_targets": 2}
    y = np.arange(103) % 3 if task == "classification" else X[:, :2].astype(np.float64)
    X[:30] = 0  # some chunks are all zeros
    store = make_store(X, y, X[:, 0] ** 2.0, task=task, scale="standard", **settings)
    alone = shuffle_store(store.path, tmp_path / "alone", seed=2)
    together = shuffle_store_on(client2, store.path, tmp_path / "together", seed=2, memory=memory)
    expected, found = (StoredRows(made).read(0, 103) for made in (alone, together))
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.weight, expected.weight)
    assert together.info.checksums == alone.info.checksums
    assert together.info.scaling == store.info.scaling
    assert check_store(together.path).findings == ()
    assert left() == ["alone", "made.zarr", "together"]


def test_what_fails_on_a_worker_leaves_nothing(
    make_store: Make, X: HostArray, tmp_path: Path, client2: Client, left: Left
) -> None:
    store = make_store(X)
    with pytest.raises(StoreError, match="exists"):
        shuffle_store_on(client2, store.path, store.path)
    chunk = Path(store.path) / "X" / "c" / "4" / "0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    with pytest.raises(StoreError, match="cannot be read"):
        shuffle_store_on(client2, store.path, tmp_path / "out")
    assert left() == ["made.zarr"]


def test_a_folder_that_a_worker_does_not_find_is_a_sentence(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    store = make_store(X)
    part = parallel._Part(parallel._Shuffle(store.path, tmp_path / "elsewhere", 0, 1 << 20), 0, (0, 10))
    with pytest.raises(StoreError, match=r"a worker cannot reach .*elsewhere; write to a folder that all"):
        parallel._scatter(part)
