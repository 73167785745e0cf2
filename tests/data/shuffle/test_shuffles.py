"""A shuffle keeps every row, is uniform, depends on the seed alone, and stays within its memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.stats import chisquare

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.shuffle.buckets import Buckets, row_keys
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.check import check_store
from daskkern.data.storage.raw_rows import StoredBlock, StoredRows
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions import work_folder as work_module
from daskkern.errors import MemoryBudgetError, SpecError, StoreError

Make = Callable[..., Store]
Left = Callable[[], list[str]]


def _rows(store: Store) -> StoredBlock:
    return StoredRows(store).read(0, store.info.n_rows)


@pytest.mark.long
def test_the_order_is_that_of_the_keys_whatever_the_memory(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    store = make_store(X, X[:, :2].astype(np.float64), X[:, 0] ** 2.0, task="regression", n_targets=2)
    order = np.argsort(row_keys(3, 0, 103), kind="stable")  # the stupid way
    for memory in (4000, 9000, 1 << 28):
        found = _rows(shuffle_store(store.path, tmp_path / "out", seed=3, memory=memory, overwrite=True))
        np.testing.assert_array_equal(found.X, X[order])
        np.testing.assert_array_equal(found.y, X[order, :2].astype(np.float64))
        np.testing.assert_array_equal(found.weight, X[order, 0] ** 2.0)


def test_keys_do_not_depend_on_how_they_are_asked_for() -> None:
    keys = row_keys(1, 0, 10_000)
    np.testing.assert_array_equal(row_keys(1, 4000, 8500), keys[4000:8500])
    assert len(np.unique(keys)) == 10_000
    assert not np.array_equal(keys, row_keys(2, 0, 10_000))


@pytest.mark.repeated
def test_every_order_is_equally_likely(tmp_path: Path) -> None:
    rows = StoredBlock(np.arange(4)[:, None], None, None)
    seen = dict.fromkeys(range(256), 0)
    n_draws = 2400
    for seed in range(n_draws):
        buckets = Buckets(tmp_path / f"{seed}", 4 * 8, seed, memory=64)  # two buckets
        buckets.append(rows)
        order = np.concatenate([block.X[:, 0] for block in buckets.blocks()])
        seen[int(order @ [64, 16, 4, 1])] += 1
    counts = [count for count in seen.values() if count]
    assert len(counts) == 24
    assert chisquare(counts).pvalue > 1e-4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4"])
def test_everything_a_store_records_is_kept(make_store: Make, tmp_path: Path, dtype: str) -> None:
    X = np.arange(103 * 3).reshape(103, 3).astype(dtype)
    names = {"feature_names": ("a", "b", "c"), "target_names": ("t",)}
    store = make_store(X, np.arange(103) % 2, task="classification", classes=("no", "yes"), scale="standard", **names)
    found = shuffle_store(store.path, tmp_path / "out")
    assert found.array("X").dtype == np.dtype(dtype)
    for name in ("n_rows", "chunk_rows", "task", "classes", "class_counts", "feature_names", "target_names", "scaling"):
        assert getattr(found.info, name) == getattr(store.info, name), name
    np.testing.assert_allclose(found.info.statistics.std, store.info.statistics.std)
    np.testing.assert_array_equal(_rows(found).y, np.argsort(row_keys(0, 0, 103), kind="stable") % 2)
    found.verify()


def test_sparse_rows_are_shuffled_alike(tmp_path: Path) -> None:
    X = scipy.sparse.random_array((300, 40), density=0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    with StoreWriter(tmp_path / "s", n_features=40, task="regression", sparse=True, chunk_rows=32) as writer:
        writer.append(X, np.arange(300.0))
        writer.set_scaling(Scaling())
    for memory in (40_000, 1 << 28):
        found = shuffle_store(tmp_path / "s", tmp_path / "out", memory=memory, overwrite=True)
        order = np.argsort(row_keys(0, 0, 300), kind="stable")
        block = _rows(found)
        np.testing.assert_array_equal(block.y[:, 0], order)
        np.testing.assert_array_equal(block.X.toarray(), X.toarray()[order])
        found.verify()


def _files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files of a store by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_bytes_depend_on_the_seed_alone(tmp_path: Path, is_sparse: bool) -> None:
    X = scipy.sparse.random_array((3000, 40), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    X.data[1000:] *= 1e3  # sums in another order are rounded in another way
    settings: dict[str, Any] = {"task": "regression", "sparse": is_sparse, "chunk_rows": 90, "scale": "maxabs"}
    with StoreWriter(tmp_path / "s", n_features=40, **settings) as writer:
        for start in range(0, 3000, 100):
            rows = X[start : start + 100]
            writer.append(rows if is_sparse else rows.toarray(), np.arange(start, start + 100) * 0.1)
    found = []
    for memory in (100_000, 1 << 28):
        shuffle_store(tmp_path / "s", tmp_path / "out", memory=memory, overwrite=True)
        found.append(_files(tmp_path / "out"))
        assert check_store(tmp_path / "out").findings == ()
    assert found[0].keys() == found[1].keys()
    assert [name for name, content in found[0].items() if content != found[1][name]] == []
    assert open_store(tmp_path / "out").info.statistics == open_store(tmp_path / "s").info.statistics


def test_a_store_is_shuffled_onto_itself(make_store: Make, X: HostArray, left: Left) -> None:
    store = make_store(X)
    with pytest.raises(StoreError, match="exists"):
        shuffle_store(store.path, store.path)
    shuffle_store(store.path, store.path, overwrite=True)
    found = _rows(open_store(store.path)).X
    assert not np.array_equal(found, X)
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(X, axis=0))
    assert left() == ["made.zarr"]


@pytest.mark.long
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    n, d, budget = 40_000, 100, 4 << 20  # 16 MB of rows
    X = np.arange(n * d, dtype=np.float32).reshape(n, d)
    with StoreWriter(tmp_path / "s", n_features=d, chunk_rows=1000) as writer:
        writer.append(X)
    order = np.argsort(row_keys(0, 0, n), kind="stable")
    expected = X[order]
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    arguments = [sys.executable, "-c", _MEASURED, str(tmp_path), str(budget)]  # no other threads' memory is counted
    done = subprocess.run(arguments, env=environment, timeout=120, check=True, capture_output=True, text=True)
    peak = int(done.stdout)
    found = open_store(tmp_path / "out")
    assert n * d // 8 <= peak <= budget
    np.testing.assert_array_equal(_rows(found).X, expected)


def test_too_little_memory_or_disk_is_refused(
    make_store: Make, X: HostArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Left
) -> None:
    store = make_store(X)
    with pytest.raises(MemoryBudgetError, match=r"a chunk of rows has .* give more memory"):
        shuffle_store(store.path, tmp_path / "out", memory=700)
    with pytest.raises(SpecError, match="seed -1"):
        shuffle_store(store.path, tmp_path / "out", seed=-1)
    monkeypatch.setattr(work_module.shutil, "disk_usage", lambda folder: _Usage())
    with pytest.raises(StoreError, match=r"needs .* GB of temporary space .* 1e-07 GB are free"):
        shuffle_store(store.path, tmp_path / "out")
    assert left() == ["made.zarr"]


class _Usage:
    free = 100


def test_an_interrupt_leaves_nothing(make_store: Make, X: HostArray, tmp_path: Path, left: Left) -> None:
    store = make_store(X)

    def stop(done: int, total: int) -> None:
        if done > total * 0.7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shuffle_store(store.path, tmp_path / "out", progress=stop, memory=4000)
    assert left() == ["made.zarr"]


_MEASURED = """
import pathlib, sys, tracemalloc
from daskkern.data.shuffle.shuffle import shuffle_store

folder, budget = pathlib.Path(sys.argv[1]), int(sys.argv[2])
shuffle_store(folder / "s", folder / "warm", memory=budget)  # imports and caches
tracemalloc.start()
shuffle_store(folder / "s", folder / "out", memory=budget)
print(tracemalloc.get_traced_memory()[1])
"""

_KILLED = """
import os, sys
from daskkern.data.shuffle.shuffle import shuffle_store
def die(done, total):
    if done > total * 0.7:
        os.kill(os.getpid(), 9)
shuffle_store(sys.argv[1], sys.argv[2], progress=die, memory=4000)
"""


def test_a_rerun_removes_what_a_killed_process_left(make_store: Make, X: HostArray, tmp_path: Path, left: Left) -> None:
    store = make_store(X)
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", _KILLED, store.path, str(tmp_path / "out")], env=environment, timeout=120)
    assert any(name.startswith(".out.work-") for name in left())
    mine = tmp_path / f".out.work-elsewhere-{os.getpid()}-00000000"  # of another host: not ours to judge
    mine.mkdir()
    shuffle_store(store.path, tmp_path / "out")
    assert left() == [mine.name, "made.zarr", "out"]


def test_damaged_rows_are_a_sentence(make_store: Make, X: HostArray, tmp_path: Path, left: Left) -> None:
    store = make_store(X)
    chunk = Path(store.path) / "X" / "c" / "4" / "0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    with pytest.raises(StoreError, match="cannot be read"):
        shuffle_store(store.path, tmp_path / "out")
    assert left() == ["made.zarr"]


def test_scaled_rows_are_read_alike(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    store = make_store(X, scale="minmax")
    found = shuffle_store(store.path, tmp_path / "out")
    order = np.argsort(row_keys(0, 0, 103), kind="stable")
    expected = StoreRows(store).read(0, 103).X
    assert expected is not None
    np.testing.assert_array_equal(StoreRows(found).read(0, 103).X, expected[order])
