"""Stores exist whole or not at all, and are read with suspicion."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr

from daskkern.arrays import HostArray
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.schema.column_statistics import Moments
from daskkern.data.schema.layout import default_chunk_rows, stored_dtype
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions.atomic import atomic_group
from daskkern.errors import DataError, SpecError, StoreError

Make = Callable[..., Store]
Left = Callable[[], list[str]]


def test_rows_appended_in_uneven_blocks_come_back(make_store: Make, X: HostArray, codes: HostArray) -> None:
    weight = np.linspace(0, 1, len(X))
    store = make_store(X, codes, weight, task="classification", classes=("a", "b", "c"))
    block = StoreRows(store).read(0, len(X))
    np.testing.assert_array_equal(block.X, X)
    np.testing.assert_array_equal(block.y, codes)
    np.testing.assert_array_equal(block.weight, weight)
    assert store.info.class_counts == (35, 34, 34)
    assert store.array("X").chunks == (10, 5)
    store.verify()


def test_wide_rows_whose_last_features_are_all_zero_come_back(tmp_path: Path) -> None:
    X = scipy.sparse.csr_array((np.ones(20, "f4"), (np.arange(20), np.arange(20))), shape=(20, 500_000))
    with StoreWriter(tmp_path / "s", n_features=500_000, task="regression", sparse=True, chunk_rows=32) as writer:
        writer.append(X, np.arange(20.0))
        writer.set_scaling(Scaling())
    for store in (open_store(tmp_path / "s"), shuffle_store(tmp_path / "s", tmp_path / "shuffled")):
        assert (store.info.statistics.mean > 0).sum() == 20
        store.verify()


@pytest.mark.parametrize("classes", [("a", "b", "c"), (-1, 5, 2**60), (0.5, 1.5, 1e-300), (False, True)])
def test_classes_keep_their_kind(make_store: Make, X: HostArray, classes: tuple[object, ...]) -> None:
    y = np.arange(len(X)) % len(classes)
    found = make_store(X, y, task="classification", classes=classes).info.classes
    assert found == classes
    assert [type(label) for label in found or ()] == [type(label) for label in classes]


def test_chunks_of_zeros_are_stored(make_store: Make) -> None:
    store = make_store(np.zeros((40, 2), np.float32), np.zeros(40, int), task="classification", classes=(5, 6))
    np.testing.assert_array_equal(StoreRows(store).read(0, 40).X, np.zeros((40, 2)))


@pytest.mark.parametrize("dtype", ["f4", "u1", "i8"])
def test_chunk_files_are_those_that_zarr_writes(make_store: Make, tmp_path: Path, X: HostArray, dtype: str) -> None:
    rows = (10 * X).astype(dtype)
    store = make_store(rows)
    plain = zarr.create_array(
        str(tmp_path / "plain"), data=rows, chunks=store.array("X").chunks, compressors=None, fill_value=0
    )
    np.testing.assert_array_equal(plain[:], store.array("X")[:])
    mine, theirs = (
        {file.relative_to(folder): file.read_bytes() for file in (folder / "c").rglob("*") if file.is_file()}
        for folder in (Path(store.path) / "X", tmp_path / "plain")
    )
    assert mine == theirs
    assert len(mine) == -(-len(rows) // 10)


def test_codes_are_replaced_in_a_second_pass(tmp_path: Path, X: HostArray, codes: HostArray) -> None:
    with StoreWriter(tmp_path / "s", n_features=5, task="classification", chunk_rows=10) as writer:
        writer.append(X, codes)
        writer.set_classes(("a", "b"), np.array([1, 0, 0]))
    store = open_store(tmp_path / "s")
    np.testing.assert_array_equal(StoreRows(store).read(0, 103).y, [1 - min(int(code), 1) for code in codes])
    assert store.info.class_counts == (68, 35)
    store.verify()


def test_classes_of_mixed_kinds_are_refused(make_store: Make, X: HostArray, codes: HostArray, left: Left) -> None:
    with pytest.raises(StoreError, match="labels of one kind"):
        make_store(X, codes, task="classification", classes=("a", 1, True))
    assert left() == []


def test_regression_targets_are_a_matrix_of_doubles(make_store: Make, X: HostArray) -> None:
    store = make_store(X, X[:, :2].astype(np.float64) / 3, task="regression", n_targets=2)
    y = StoreRows(store).read(5, 9).y
    assert y is not None
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, X[5:9, :2].astype(np.float64) / 3)
    assert store.info.target_statistics is not None
    assert len(store.info.target_statistics.mean) == 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [("u1", "u1"), ("i8", "i8"), ("?", "u1"), ("f2", "f2"), ("f4", "f4"), ("f8", "f4"), (">f8", "f4"), (">i2", "i2")],
)
def test_stored_dtypes(make_store: Make, given: str, kept: str) -> None:
    X = (np.arange(60 * 2).reshape(60, 2) % 2).astype(given)
    store = make_store(X)
    assert store.array("X").dtype == np.dtype(kept)
    assert stored_dtype(given) == np.dtype(kept)
    block = StoreRows(store).read(0, 60)
    assert block.X is not None
    assert block.X.dtype == np.float32
    np.testing.assert_array_equal(block.X, X.astype(np.float32))


def test_complex_features_are_refused() -> None:
    with pytest.raises(DataError, match="real numbers"):
        stored_dtype(np.complex128)


def test_a_value_beyond_float32_is_refused_and_nothing_remains(tmp_path: Path, left: Left) -> None:
    with (
        pytest.raises(DataError, match=r"X holds an unusable value .* in row 3 .*, column 1"),
        StoreWriter(tmp_path / "s", n_features=2, dtype=np.float64) as writer,
    ):
        writer.append(np.array([[1.0, 2.0]] * 3 + [[1.0, 1e300]]))
    assert left() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_writer_leaves_nothing(
    tmp_path: Path, X: HostArray, left: Left, error: type[BaseException]
) -> None:
    def write() -> None:
        with StoreWriter(tmp_path / "s", n_features=5, chunk_rows=10) as writer:
            writer.append(X)
            assert any(name.startswith(".s.partial-") for name in left())
            raise error

    with pytest.raises(error):
        write()
    assert left() == []


def test_a_store_without_rows_is_refused(tmp_path: Path, left: Left) -> None:
    with pytest.raises(DataError, match="no rows"), StoreWriter(tmp_path / "s", n_features=5):
        pass
    assert left() == []


def test_wrong_shapes_are_refused(tmp_path: Path, X: HostArray) -> None:
    with StoreWriter(tmp_path / "s", n_features=5, task="regression") as writer:
        writer.append(X, X[:, 0])
        with pytest.raises(DataError, match="shape"):
            writer.append(X[:, :4], X[:, 0])
        with pytest.raises(DataError, match="y was not given"):
            writer.append(X)
        with pytest.raises(DataError, match="weight was given"):
            writer.append(X, X[:, 0], X[:, 0])
        with pytest.raises(DataError, match="int64 were appended to a store of float32"):
            writer.append(X.astype(np.int64), X[:, 0])


def test_an_existing_store_is_replaced_only_when_asked(make_store: Make, X: HostArray, left: Left) -> None:
    first = make_store(X)
    with pytest.raises(StoreError, match="exists; choose another name, or replace it with --overwrite"):
        make_store(X[:60])
    assert open_store(first.path).info.n_rows == 103
    make_store(X[:60], overwrite=True)
    assert open_store(first.path).info.n_rows == 60
    assert left() == ["made.zarr"]


def test_a_failed_replacement_keeps_the_old_store(make_store: Make, X: HostArray, left: Left) -> None:
    first = make_store(X)
    with pytest.raises(DataError):
        make_store(np.full((60, 5), np.nan, np.float32), overwrite=True)
    np.testing.assert_array_equal(StoreRows(open_store(first.path)).read(0, 103).X, X)
    assert left() == ["made.zarr"]


@pytest.mark.parametrize("what", ["file", "folder", "zarr group", "other kind"])
def test_what_is_no_store_is_never_overwritten(tmp_path: Path, X: HostArray, what: str) -> None:
    path = tmp_path / "s"
    if what == "file":
        path.write_text("precious")
    elif what == "folder":
        path.mkdir()
    elif what == "zarr group":
        zarr.open_group(path, mode="w", zarr_format=3)
    else:
        with atomic_group(path, kind="daskkern-model"):
            pass
    with (
        pytest.raises(StoreError, match="exists and is not a daskkern-store"),
        StoreWriter(path, n_features=5, overwrite=True) as writer,
    ):
        writer.append(X)
    assert path.exists()


@pytest.mark.parametrize("path", ["https://example.org/store", "store.zip"])
def test_destinations_that_cannot_be_renamed_are_refused(path: str) -> None:
    with pytest.raises(StoreError, match=r"write to a folder"), atomic_group(path, kind="k"):
        pass


def test_a_store_opens_from_a_zip_packed_either_way(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    store = make_store(X)
    flat = shutil.make_archive(str(tmp_path / "flat"), "zip", store.path)
    nested = shutil.make_archive(str(tmp_path / "nested"), "zip", tmp_path, "made.zarr")
    for archive in (flat, nested):
        opened = open_store(archive)
        np.testing.assert_array_equal(StoreRows(opened).read(0, 103).X, X)
        assert opened.fingerprint() == store.fingerprint()
        opened.group.store.close()


def test_a_store_opens_from_a_group_and_from_memory(make_store: Make, X: HostArray) -> None:
    store = make_store(X)
    memory = zarr.open_group(zarr.storage.MemoryStore(), mode="w", zarr_format=3, attributes=dict(store.group.attrs))
    memory.create_array("X", data=X, chunks=(10, 5), config={"write_empty_chunks": True})
    assert open_store(store.group).fingerprint() == store.fingerprint()
    assert open_store(memory).fingerprint() == store.fingerprint()


def test_the_fingerprint_tells_data_apart_and_not_names(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    store = make_store(X)
    copy = shutil.copytree(store.path, tmp_path / "copy")
    assert open_store(copy).fingerprint() == store.fingerprint()
    assert make_store(X[::-1], overwrite=True).fingerprint() != store.fingerprint()


def test_what_is_no_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store at"):
        open_store(tmp_path / "missing")
    (tmp_path / "data.csv").write_text("a,b")
    with pytest.raises(StoreError, match=r"is a file but not a store.*daskkern ingest"):
        open_store(tmp_path / "data.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="no Zarr v3 group"):
        open_store(tmp_path / "empty")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(StoreError, match="zip file without"):
        open_store(tmp_path / "z.zip")
    zarr.open_group(tmp_path / "g", mode="w", zarr_format=3)
    with pytest.raises(StoreError, match="not a daskkern-store"):
        open_store(tmp_path / "g")
    with pytest.raises(StoreError, match=r"cannot be opened|not installed|no Zarr"):
        open_store("nosuchprotocol://x/y")


def test_a_missing_chunk_and_a_missing_array_are_named(make_store: Make, X: HostArray, codes: HostArray) -> None:
    store = make_store(X, codes, task="classification", classes=(1, 2, 3))
    (Path(store.path) / "X" / "c" / "4" / "0").unlink()
    with pytest.raises(StoreError, match="chunk 4 of array 'X' is missing"):
        open_store(store.path)
    shutil.rmtree(Path(store.path) / "X")
    with pytest.raises(StoreError, match="no array 'X'"):
        open_store(store.path)


def test_changed_bytes_are_found_by_verify(make_store: Make, X: HostArray) -> None:
    store = make_store(X)
    chunk = Path(store.path) / "X" / "c" / "4" / "0"
    chunk.write_bytes(b"\x01" + chunk.read_bytes()[1:])
    with pytest.raises(StoreError, match="checksum"):
        open_store(store.path).verify()


def test_a_chunk_cut_short_is_a_sentence(make_store: Make, X: HostArray) -> None:
    store = make_store(X)
    chunk = Path(store.path) / "X" / "c" / "4" / "0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    with pytest.raises(StoreError, match=r"rows 40 to 50 of .*X cannot be read"):
        StoreRows(open_store(store.path)).read(40, 50)
    with pytest.raises(StoreError, match="cannot be read"):
        open_store(store.path).verify()


def test_disagreeing_shapes_are_refused(make_store: Make, X: HostArray, codes: HostArray) -> None:
    store = make_store(X, codes, task="classification", classes=(1, 2, 3))
    group = zarr.open_group(store.path, mode="a")
    y = group["y"]
    assert isinstance(y, zarr.Array)
    y.resize((50,))
    with pytest.raises(StoreError, match=r"'y' of the store .* has shape \(50,\), .* say \(103,\)"):
        open_store(store.path)


_HOSTILE: dict[str, list[object]] = {
    "format": [None, 3, "daskkern-model"],
    "version": [None, 2, 0, "1", True],
    "complete": [False, None, "yes"],
    "n_rows": [None, -1, 0, 1.5, "103", True, 10**30],
    "n_features": [None, 0, 4, [5]],
    "n_targets": [0, 2, None],
    "chunk_rows": [0, 7, None],
    "task": ["ranking", 3, None, ["classification"]],
    "classes": [
        None,
        {},
        {"kind": "object", "values": [1]},
        {"kind": "int", "values": ["a", "b", "c"]},
        {"kind": "str", "values": ["a", "a", "b"]},
        {"kind": "int", "values": [1, 2]},
    ],
    "index_base": [2, True, "1", [0]],
    "class_counts": [None, [1, 2, 3], [-1, 52, 52], ["a", "b", "c"]],
    "feature_names": [3, ["a"], [1, 2, 3, 4, 5]],
    "statistics": [None, {"mean": 3}, {"mean": [float("nan")] * 5, "std": [1] * 5, "min": [1] * 5, "max": [1] * 5}],
    "scaling": [
        None,
        {},
        {"kind": "log"},
        {"kind": "standard", "shift": [0.0] * 5, "scale": [0.0] * 5},
        {"kind": "standard", "shift": [0.0], "scale": [1.0]},
        {"kind": "minmax", "shift": [10**400] * 5, "scale": [1.0] * 5},
        {"kind": "auto", "shift": [0.0] * 5, "scale": [1.0] * 5, "bend": [1.0]},
        {"kind": "auto", "shift": [0.0] * 5, "scale": [1.0] * 5, "bend": [-1.0] * 5},
        {"kind": "auto", "shift": [0.0] * 5, "scale": [1.0] * 5, "bend": 3},
    ],
    "has_weight": [1, "no", None, True],
    "checksums": [None, [1], {"X": "1"}],
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in _HOSTILE.items() for value in values])
def test_hostile_attributes_are_refused(
    make_store: Make, X: HostArray, codes: HostArray, name: str, value: object
) -> None:
    store = make_store(X, codes, task="classification", classes=(1, 2, 3))
    path = Path(store.path) / "zarr.json"
    document = json.loads(path.read_text())
    document["attributes"][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(StoreError):
        open_store(store.path)


def test_a_newer_version_asks_for_an_update(make_store: Make, X: HostArray) -> None:
    store = make_store(X)
    zarr.open_group(store.path, mode="a").update_attributes({"version": 99})
    with pytest.raises(StoreError, match=r"version 99 .* update daskkern"):
        open_store(store.path)


def test_damaged_metadata_is_a_sentence(make_store: Make, X: HostArray) -> None:
    store = make_store(X)
    (Path(store.path) / "X" / "zarr.json").write_text("{")
    with pytest.raises(StoreError, match=r"array 'X' of the store .* is damaged"):
        open_store(store.path)
    (Path(store.path) / "zarr.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(store.path)


def test_codes_outside_the_classes_are_found_on_reading(make_store: Make, X: HostArray, codes: HostArray) -> None:
    store = make_store(X, codes, task="classification", classes=(1, 2, 3))
    y = zarr.open_group(store.path, mode="a")["y"]
    assert isinstance(y, zarr.Array)
    y[5] = 3
    with pytest.raises(StoreError, match="codes from 0 to 3, but there are 3 classes"):
        StoreRows(open_store(store.path)).read(0, 10)


def test_moments_match_numpy_even_far_from_zero(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1000, 3)) * [1e-3, 1, 100] + [1e6, 0, -5]
    moments = Moments(3)
    for part in np.array_split(X, [1, 17, 400]):
        assert moments.update(part)
    found = moments.result()
    np.testing.assert_allclose(found.mean, X.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.std, X.std(0), rtol=1e-6)
    assert found.min == tuple(X.min(0))
    assert found.max == tuple(X.max(0))
    assert not moments.update(np.array([[1.0, np.nan, 0.0]]))


@pytest.mark.parametrize("kind", ["standard", "minmax"])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "f8"])
def test_scaling_gives_the_promised_range(rng: np.random.Generator, kind: str, dtype: str) -> None:
    X = np.column_stack([rng.integers(0, 200, 300), np.full(300, 0.1 if dtype[0] == "f" else 7)]).astype(dtype)
    moments = Moments(2)
    moments.update(X)
    scaling = Scaling.of(kind, moments.result())
    before = X.copy()
    scaled = scaling.apply(X, np.float32)
    np.testing.assert_array_equal(X, before)
    assert scaled.dtype == np.float32
    assert scaling.scale[1] == 1.0  # no spread
    np.testing.assert_allclose(scaled[:, 1], 0.0, atol=1e-7)
    if kind == "standard":
        assert abs(scaled[:, 0].mean()) < 1e-5
        assert abs(scaled[:, 0].std() - 1) < 1e-5
    else:
        assert (scaled[:, 0].min(), scaled[:, 0].max()) == (0, 1)


@pytest.mark.parametrize("unit", [1e-100, 1.0, 1e150])
def test_a_common_unit_keeps_the_ratios_of_columns(rng: np.random.Generator, unit: float) -> None:
    X = unit * (rng.normal(size=(200, 3)) * (1.0, 10.0, 0.0) + (5.0, -3.0, 7.0))
    moments = Moments(3)
    moments.update(X)
    found = Scaling.of("common", moments.result())
    expected = X - X.mean(axis=0)
    expected /= unit * np.sqrt(np.mean((X / unit).var(axis=0)))
    np.testing.assert_allclose(found.apply(X, np.float64), expected, rtol=1e-6, atol=1e-9)
    same = Moments(2)
    same.update(np.full((5, 2), 3.0))
    assert Scaling.of("common", same.result()).scale == (1.0, 1.0)


def test_wide_integers_are_scaled_before_they_are_rounded() -> None:
    X = (1_700_000_000 + np.arange(100, dtype=np.int64))[:, None]
    moments = Moments(1)
    moments.update(X)
    scaled = Scaling.of("minmax", moments.result()).apply(X, np.float32)
    np.testing.assert_allclose(scaled[:, 0], np.linspace(0, 1, 100), rtol=1e-6)


def test_scaling_with_nothing_to_do_copies_nothing(X: HostArray) -> None:
    assert Scaling().apply(X, np.float32) is X
    with pytest.raises(SpecError, match="scale 'log'"):
        StoreWriter("x", n_features=1, scale="log")


def test_chunks_are_bounded_in_bytes() -> None:
    assert default_chunk_rows(784, "f4") == 4096
    assert default_chunk_rows(1_000_000, "f4") == 8
    assert default_chunk_rows(100_000_000, "f4") == 1
