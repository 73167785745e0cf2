"""Rows far apart are read by byte ranges, and are those of a plain read."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.abc.store import ByteRequest, RangeByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from daskkern.arrays import HostArray
from daskkern.data.rows.rows import Fields, take
from daskkern.data.rows.subset import RowsWithout
from daskkern.data.storage.random_access import gives_ranges, has_plain_chunks, parts_at, rows_at
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import StoreError

Make = Callable[..., Store]


class _Counting(WrapperStore[LocalStore]):
    """A store that remembers what was read of each key."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.read: list[tuple[str, int | None]] = []

    def _with_store(self, store: LocalStore) -> "_Counting":
        made = _Counting(store)
        made.read = self.read
        return made

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        size = byte_range.end - byte_range.start if isinstance(byte_range, RangeByteRequest) else None
        self.read.append((key, size))
        return await self._store.get(key, prototype, byte_range)


@pytest.fixture(scope="module", params=["in memory", "in files"])
def array(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "zarr.Array[zarr.core.metadata.ArrayV3Metadata]":
    store = zarr.storage.MemoryStore() if request.param == "in memory" else tmp_path_factory.mktemp("array")
    made = zarr.create_array(store, shape=(203, 6), chunks=(10, 6), dtype="float32", compressors=None)
    made[:] = np.arange(203 * 6, dtype=np.float32).reshape(203, 6)
    return made


@pytest.mark.long
@given(st.lists(st.integers(0, 202), max_size=60), st.integers(0, 200), st.integers(1, 600))
@settings(max_examples=100, deadline=None)
def test_any_rows_are_those_of_a_plain_read(array: "zarr.Array", places: list[int], gap: int, part: int) -> None:
    positions = np.sort(np.array(places, np.int64))
    np.testing.assert_array_equal(rows_at(array, positions), array[:][positions])
    covered = 0
    for slots, rows in parts_at(array, positions, gap=gap, part_bytes=part):
        assert (slots.start, len(rows)) == (covered, slots.stop - slots.start)
        np.testing.assert_array_equal(rows, array[:][positions[slots]])
        covered = slots.stop
    assert covered == positions.size


@pytest.mark.parametrize("dtype", ["float16", ">f4", "int8", ">i8", "uint16"])
def test_numbers_of_every_kind_and_byte_order(dtype: str, tmp_path: Path) -> None:
    made = zarr.create_array(tmp_path / "a", shape=(50, 3), chunks=(7, 3), dtype=dtype, compressors=None)
    made[:] = np.arange(150).reshape(50, 3) % 100
    assert has_plain_chunks(made)
    positions = np.array([0, 6, 7, 48, 49, 49])
    found = rows_at(made, positions)
    np.testing.assert_array_equal(found, made[:][positions])
    assert found.dtype.isnative


def test_few_rows_of_wide_chunks_cost_few_bytes(make_store: Make, rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 20_000)).astype(np.float32)
    weight = rng.random(200)
    make_store(X, X[:, :2], weight, task="regression", n_targets=2, chunk_rows=50)
    counting = _Counting(LocalStore(_place(make_store), read_only=True))
    rows = StoreRows(open_store(zarr.open_group(counting, mode="r")))
    counting.read.clear()
    positions = np.array([199, 3, 60, 3, 45, 46])
    block = take(rows, positions)
    np.testing.assert_array_equal(block.X, X[positions])
    np.testing.assert_array_equal(block.y, X[positions, :2])
    np.testing.assert_allclose(block.weight, weight[positions])
    sizes = [size for key, size in counting.read if key.startswith("X/c/")]
    assert sorted(size for size in sizes if size) == [80_000, 80_000, 80_000, 160_000]  # rows of 80 kB; 45 and 46
    assert len(sizes) == 4


def test_rows_side_by_side_are_read_together_however_wide(make_store: Make, rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 40_000)).astype(np.float32)  # 160 kB each
    make_store(X, chunk_rows=60)
    counting = _Counting(LocalStore(_place(make_store), read_only=True))
    rows = StoreRows(open_store(zarr.open_group(counting, mode="r")))
    counting.read.clear()
    np.testing.assert_array_equal(take(rows, np.arange(10, 50)).X, X[10:50])
    assert [size for key, size in counting.read if key.startswith("X/c/")] == [40 * 160_000]


def test_whether_ranges_are_given_is_asked_once(make_store: Make, X: HostArray) -> None:
    make_store(X)
    counting = _Counting(LocalStore(_place(make_store), read_only=True))
    rows = StoreRows(open_store(zarr.open_group(counting, mode="r")))
    counting.read.clear()
    for _ in range(3):
        take(rows, np.array([1, 99]))
    assert [size for key, size in counting.read if key == "X/zarr.json"] == [1]
    shutil.rmtree(_place(make_store) / "X")
    with pytest.raises(StoreError, match=r"rows \d+ to \d+ .*is missing"):
        take(rows, np.array([1, 99]))


def test_rows_held_out_scaled_and_compressed(make_store: Make, X: HostArray, codes: HostArray) -> None:
    store = make_store(X, codes, task="classification", classes=("a", "b", "c"), scale="standard")
    rows = StoreRows(store)
    left = RowsWithout(rows, np.array([0, 3, 50, 102]))
    positions = np.array([98, 0, 0, 47, 12])
    whole = left.read(0, left.n_rows)
    block = take(left, positions)
    assert whole.X is not None
    assert whole.y is not None
    np.testing.assert_array_equal(block.X, whole.X[positions])
    np.testing.assert_array_equal(block.y, whole.y[positions])
    assert take(left, positions, Fields.y).X is None
    packed = _place(make_store).with_name("packed.zarr")
    group = zarr.open_group(packed, mode="w")
    for name in ("X", "y"):
        array = store.array(name)
        group.create_array(name, data=array[:], chunks=array.chunks)  # zstd
    group.attrs.update(store.group.attrs.asdict())
    if "statistics" in store.group:
        group.create_array("statistics", data=store.group["statistics"][:])
    compressed = open_store(packed)
    assert not has_plain_chunks(compressed.array("X"))
    np.testing.assert_array_equal(take(RowsWithout(StoreRows(compressed), left._excluded), positions).X, block.X)


@pytest.mark.parametrize(("harm", "words"), [("cut", "chunk c/3/0 is shorter"), ("lose", "chunk c/3/0 is missing")])
def test_damaged_chunks_are_named(make_store: Make, X: HostArray, harm: str, words: str) -> None:
    rows = StoreRows(make_store(X))
    chunk = _place(make_store) / "X" / "c" / "3" / "0"
    if harm == "cut":
        chunk.write_bytes(chunk.read_bytes()[:-4])
    else:
        chunk.unlink()
    take(rows, np.array([29, 40]))
    with pytest.raises(StoreError, match=f"rows 39 to 40 .*{words}"):
        take(rows, np.array([39, 99]))


def test_zipped_stores(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    make_store(X)
    shutil.make_archive(str(tmp_path / "zipped"), "zip", _place(make_store))
    rows = StoreRows(open_store(tmp_path / "zipped.zip"))
    assert not gives_ranges(open_store(tmp_path / "zipped.zip").array("X"))  # a part costs all that lies before it
    np.testing.assert_array_equal(take(rows, np.array([102, 5, 44])).X, X[[102, 5, 44]])


def _place(make_store: Make) -> Path:
    """Return where the fixture writes its store."""
    return Path(make_store.__closure__[0].cell_contents) / "made.zarr"
