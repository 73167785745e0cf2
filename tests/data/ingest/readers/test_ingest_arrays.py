"""Ingestion of .npz and .npy files."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.ingest import IngestReport, ingest
from daskkern.data.ingest.pipeline.split import TEST, Split, SplitSettings
from daskkern.data.rows.rows import RowBlock
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError, SpecError, StoreError

Left = Callable[[], list[str]]


def _read(path: Path) -> RowBlock:
    store = open_store(path)
    store.verify()
    return StoreRows(store, np.float64).read(0, store.info.n_rows)


def _labels(path: Path) -> list[object]:
    """Return the labels of a store's rows, by value."""
    classes, y = open_store(path).info.classes, _read(path).y
    assert classes is not None
    assert y is not None
    return [classes[code] for code in y]


@pytest.fixture(params=[np.savez, np.savez_compressed], ids=["stored", "deflated"])
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Save the arrays as an .npz file and return its name."""

    def write(**arrays: object) -> Path:
        request.param(tmp_path / "d.npz", **arrays)
        return tmp_path / "d.npz"

    return write


@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_round_trip(save: Callable[..., Path], X: HostArray, tmp_path: Path, order: str, left: Left) -> None:
    y = X[:, 0].astype(np.float64) / 3
    weight = np.arange(103)
    source = save(X=np.asarray(X, order=order), y=y, w=weight)  # type: ignore[call-overload]
    report = ingest(source, tmp_path / "s", weight="w")
    block = _read(tmp_path / "s")
    np.testing.assert_array_equal(block.X, X)
    np.testing.assert_array_equal(block.y, y[:, None])
    np.testing.assert_array_equal(block.weight, weight)
    assert (report.task, report.task_reason, report.n_rows) == ("regression", "the target holds floats", 103)
    assert left() == ["d.npz", "s"]


def test_npz_larger_than_one_block(save: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 1000)
    X = np.arange(5000, dtype=np.float32).reshape(1000, 5)
    for stored in (X, np.asfortranarray(X)):
        ingest(save(X=stored, y=X[:, :2]), tmp_path / "s", overwrite=True)
        np.testing.assert_array_equal(_read(tmp_path / "s").X, X)
        np.testing.assert_array_equal(_read(tmp_path / "s").y, X[:, :2])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["no", "yes", "äh"], ("no", "yes", "äh")),
        ([b"b", b"a", b"c"], ("a", "b", "c")),
        ([3, -1, 20], (-1, 3, 20)),
        ([True, False, True], (False, True)),
    ],
)
def test_labels_of_any_kind_are_remembered_by_value(
    save: Callable[..., Path], X: HostArray, tmp_path: Path, labels: list[object], classes: tuple[object, ...]
) -> None:
    y = np.array(labels * 34 + labels[:1])
    report = ingest(save(X=X, y=y), tmp_path / "s")
    assert report.task == "classification"
    assert report.classes == classes
    assert [type(c) for c in report.classes or ()] == [type(c) for c in classes]
    expected = [label.decode() if isinstance(label, bytes) else label for label in y.tolist()]
    assert _labels(tmp_path / "s") == expected


@pytest.mark.parametrize("hint", ["multiclass", "binary", "classification"])
def test_the_task_entry_decides_and_whole_floats_become_ints(
    save: Callable[..., Path], X: HostArray, tmp_path: Path, hint: str
) -> None:
    report = ingest(save(X=X, y=np.arange(103) % 3 * 2.0, task=hint), tmp_path / "s")
    assert (report.task, report.classes) == ("classification", (0, 2, 4))
    assert all(type(label) is int for label in report.classes or ())
    assert hint in report.task_reason


def test_an_explicit_task_overrides_the_entry(save: Callable[..., Path], X: HostArray, tmp_path: Path) -> None:
    source = save(X=X, y=np.arange(103) % 3, task="multiclass")
    assert ingest(source, tmp_path / "a", task="regression").task == "regression"
    source = save(X=X, y=np.arange(103) % 3 + 0.5, task="regression")
    assert ingest(source, tmp_path / "b", task="classification").classes == (0.5, 1.5, 2.5)


def test_pixels_stay_bytes_and_images_are_flattened(save: Callable[..., Path], tmp_path: Path) -> None:
    X = np.arange(20 * 3 * 4, dtype=np.uint8).reshape(20, 3, 4)
    report = ingest(save(X=X, y=np.arange(20) % 2), tmp_path / "s")
    assert open_store(tmp_path / "s").array("X").dtype == np.uint8
    np.testing.assert_array_equal(_read(tmp_path / "s").X, X.reshape(20, 12))
    assert "flattened to 12 features" in report.notes[0]


def _train_test(X: HostArray, **changes: object) -> dict[str, object]:
    y = np.arange(103) % 3
    return {"X_train": X, "y_train": y, "X_test": X[:20] + 1, "y_test": y[:20][::-1], **changes}


def test_the_test_part_is_loaded_like_the_training_part(
    save: Callable[..., Path], X: HostArray, tmp_path: Path
) -> None:
    report = ingest(save(**_train_test(X)), tmp_path / "s", out_test=tmp_path / "t", scale="standard")
    assert (report.n_rows, report.n_test_rows) == (103, 20)
    train, test = open_store(tmp_path / "s").info, open_store(tmp_path / "t").info
    assert test.scaling == train.scaling != type(train.scaling)()
    assert test.classes == train.classes
    assert _labels(tmp_path / "t") == (np.arange(20) % 3)[::-1].tolist()
    np.testing.assert_array_equal(open_store(tmp_path / "t").array("X")[:], X[:20] + 1)


def test_a_test_part_without_a_store_for_it_is_reported(
    save: Callable[..., Path], X: HostArray, tmp_path: Path, left: Left
) -> None:
    report = ingest(save(**_train_test(X)), tmp_path / "s")
    assert any("X_test" in note and "--out-test" in note for note in report.notes)
    assert left() == ["d.npz", "s"]


def test_an_unseen_test_label_is_named(save: Callable[..., Path], X: HostArray, tmp_path: Path, left: Left) -> None:
    y_test = np.array([0, 1, 2, 7] * 5)
    with pytest.raises(DataError, match="label 7, which no training row has"):
        ingest(save(**_train_test(X, y_test=y_test)), tmp_path / "s", out_test=tmp_path / "t")
    assert left() == ["d.npz"]


def test_test_labels_are_compared_by_value(save: Callable[..., Path], X: HostArray, tmp_path: Path) -> None:
    ingest(save(**_train_test(X, y_test=np.arange(20) % 3 * 1.0)), tmp_path / "s", out_test=tmp_path / "t")
    assert _labels(tmp_path / "t") == (np.arange(20) % 3).tolist()


def test_npy_pair_and_several_npz_files(X: HostArray, codes: HostArray, tmp_path: Path) -> None:
    for stored in (X, np.asfortranarray(X)):
        np.save(tmp_path / "X.npy", stored)
        np.save(tmp_path / "y.npy", codes)
        ingest([tmp_path / "X.npy", tmp_path / "y.npy"], tmp_path / "s", overwrite=True)
        np.testing.assert_array_equal(_read(tmp_path / "s").X, X)
        assert _labels(tmp_path / "s") == codes.tolist()
    np.savez(tmp_path / "p1.npz", X=X[:50], y=codes[:50])
    np.savez(tmp_path / "p2.npz", X=X[50:].astype(np.float64), y=codes[50:])
    report = ingest(str(tmp_path / "p*.npz"), tmp_path / "both")
    assert (report.n_files, report.n_rows) == (2, 103)
    np.testing.assert_array_equal(_read(tmp_path / "both").X, X)
    np.savez(tmp_path / "p3.npz", X=X[:, :4], y=codes)
    with pytest.raises(DataError, match=r"do not belong together: their features differ \(5 and 4\)"):
        ingest(str(tmp_path / "p*.npz"), tmp_path / "three")


def test_rows_without_targets_when_said_so(save: Callable[..., Path], X: HostArray, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no y; name the targets with --target"):
        ingest(save(X=X), tmp_path / "s")
    report = ingest(save(X=X), tmp_path / "s", target=())
    assert (report.task, report.n_targets) == (None, 0)
    assert _read(tmp_path / "s").y is None
    assert ingest(save(X=X, label=X[:, 0]), tmp_path / "u", target="label").task == "regression"


def _bad(**changes: object) -> dict[str, object]:
    X = np.ones((6, 3), np.float32)
    X[:, 0] = range(6)
    return {"X": X, "y": np.arange(6) % 2, **changes}


def _with(value: float, row: int, column: int) -> HostArray:
    X = np.ones((6, 3))
    X[row, column] = value
    return X


@pytest.mark.parametrize(
    ("arrays", "settings", "words"),
    [
        (_bad(X=_with(np.nan, 4, 2)), {}, r"row 4 of .*d\.npz \(counted from 0\) has nan.* column 2"),
        (_bad(X=_with(-np.inf, 5, 0)), {}, "row 5 .* has -inf.* column 0"),
        (_bad(X=_with(1e39, 1, 1)), {}, r"row 1 .* has 1e\+39, which float32 cannot hold"),
        (_bad(y=np.array([0, 1, 2, np.nan, 1, 1])), {}, "row 3 .* has nan.* in target column 0"),
        (_bad(y=np.array([0, 1, np.inf, 0, 1, 1])), {"task": "classification"}, "row 2 .* has inf"),
        (_bad(y=_with(np.nan, 4, 2)), {}, "row 4 .* in target column 2"),
        (_bad(w=np.array([1, 1, -1, 1, 1, 1])), {"weight": "w"}, "row 2 .* has weight -1"),
        (_bad(w=np.array([1, 1, 1, np.nan, 1, 1])), {"weight": "w"}, "row 3 .* has weight nan"),
        (_bad(w=np.zeros(6)), {"weight": "w"}, "weights that are all 0"),
        (_bad(w=np.ones((6, 2))), {"weight": "w"}, "one number per row"),
        (_bad(), {"weight": "w"}, "no entry 'w' for the weight; it has X, y"),
        (_bad(), {"target": "z"}, "no entry 'z' for the target; it has X, y"),
        (_bad(), {"target": ("y", "X")}, "one entry holds all"),
        (_bad(), {"drop": ["a"]}, "--drop names columns"),
        (_bad(), {"task": "clustering"}, "got task 'clustering'; choose one of auto, classification"),
        (_bad(), {"scale": "log"}, "got scale 'log'; choose one of standard, common, minmax, maxabs"),
        (_bad(), {"split": 0.5}, "add --out-test STORE"),
        (_bad(y=np.zeros(6, int)), {}, "same label 0; classification needs two classes"),
        (_bad(y=np.arange(6)), {}, "6 different values in 6 rows.*--task"),
        (_bad(y=np.arange(4)), {}, r"shape \(6, 3\), but .*'y'.* has shape \(4,\)"),
        (_bad(y=np.array(["a", "b"] * 3)), {"task": "regression"}, "target of .* is text"),
        (_bad(y=np.ones((6, 2), int)), {"task": "classification"}, "2 targets, but classes are one target"),
        (_bad(y=np.array([object()] * 6)), {}, "holds Python objects; objects are pickles"),
        (_bad(X=np.array([[object()] * 3] * 6)), {}, "holds Python objects; objects are pickles"),
        (_bad(X=np.ones((6, 3), complex)), {}, "features are real numbers"),
        (_bad(X=np.full((6, 3), "a")), {}, "features are real numbers"),
        (_bad(X=np.ones(6)), {}, r"shape \(6,\); expected rows of features"),
        (_bad(X=np.ones((0, 3)), y=np.ones(0)), {}, "no rows"),
        (_bad(y=np.ones((6, 2, 2))), {}, r"expected \(rows,\) or \(rows, targets\)"),
        (_bad(y=np.zeros(6, "M8[s]")), {}, "cannot be targets"),
        (_bad(task="ranking"), {}, "'task' of .* is 'ranking'; binary, multiclass"),
        (_bad(task=3), {}, "'task' of .* is not a string"),
        (_bad(X_train=np.ones((6, 3))), {}, "expected X and y, or X_train"),
        ({"a": np.ones(3)}, {}, "holds a; expected X and y"),
    ],
)
def test_refusals_of_npz(
    tmp_path: Path, left: Left, arrays: dict[str, object], settings: dict[str, object], words: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises((DataError, SpecError), match=words):
        ingest(tmp_path / "d.npz", tmp_path / "s", **settings)  # type: ignore[arg-type]
    assert left() == ["d.npz"]


def test_more_classes_than_anyone_means_are_refused_early(tmp_path: Path, left: Left) -> None:
    np.savez(tmp_path / "d.npz", X=np.ones((5000, 1)), y=np.arange(5000) // 4)
    with pytest.raises(DataError, match=r"more than 1000 different values.*--task classification"):
        ingest(tmp_path / "d.npz", tmp_path / "s")
    assert left() == ["d.npz"]
    assert len(ingest(tmp_path / "d.npz", tmp_path / "s", task="classification").classes or ()) == 1250


def test_refusals_about_the_test_part(X: HostArray, tmp_path: Path, left: Left) -> None:
    np.savez(tmp_path / "d.npz", **_train_test(X))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="already has a test part"):
        ingest(tmp_path / "d.npz", tmp_path / "s", split=0.2, out_test=tmp_path / "t")
    with pytest.raises(SpecError, match="name two stores"):
        ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "s")
    np.savez(tmp_path / "d.npz", **_train_test(X, X_test=X[:20, :3]))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="have 3 features, but the training rows have 5"):
        ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "t")
    np.savez(tmp_path / "d.npz", **_bad())  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="has no X_test; use --split"):
        ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "t")
    assert left() == ["d.npz"]


def test_damaged_files_are_sentences(X: HostArray, tmp_path: Path, left: Left) -> None:
    path = tmp_path / "d.npz"
    path.write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"not a valid \.npz file"):
        ingest(path, tmp_path / "s")
    np.savez(path, X=X, y=X[:, 0])
    whole = path.read_bytes()
    path.write_bytes(whole[:500] + b"\x55" * 100 + whole[600:])
    with pytest.raises(DataError, match=r"not a valid \.npz file.*CRC"):
        ingest(path, tmp_path / "s")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00\x05\x00(1,)\n")
        archive.writestr("y.npy", b"")
    with pytest.raises(DataError, match="not an array in NumPy's format"):
        ingest(path, tmp_path / "s")
    with zipfile.ZipFile(path, "w") as archive:  # a few bytes that claim to be terabytes
        header = {"descr": "<f4", "fortran_order": False, "shape": (2, 10**12)}
        with archive.open("X.npy", "w") as stream:
            np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(DataError, match=r"'X' of .* ends too early"):
        ingest(path, tmp_path / "s", target=())
    assert left() == ["d.npz"]
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "X.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:-9])
    with pytest.raises(DataError, match="ends too early"):
        ingest(tmp_path / "X.npy", tmp_path / "s", target=())
    assert left() == ["X.npy", "d.npz"]


def test_outputs_in_the_way_are_found_before_reading(X: HostArray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **_bad())  # type: ignore[arg-type]
    ingest(tmp_path / "d.npz", tmp_path / "s")
    with pytest.raises(StoreError, match="exists"):
        ingest("not there at all", tmp_path / "s")
    ingest(tmp_path / "d.npz", tmp_path / "s", overwrite=True)
    with pytest.raises(StoreError, match="is not a daskkern-store"):
        ingest(tmp_path / "d.npz", tmp_path / "d.npz", overwrite=True)


def test_sources_that_cannot_be(tmp_path: Path) -> None:
    out = tmp_path / "s"
    for sources, words in (
        ([], "no source"),
        ("nowhere.npz", "there is no file .*nowhere.npz"),
        (str(tmp_path / "*.npz"), "no file matches"),
        (str(tmp_path), "is a folder without tables; name files"),
    ):
        with pytest.raises(DataError, match=words):
            ingest(sources, out)
    (tmp_path / "a.npz").touch()
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.xls").touch()
    with pytest.raises(DataError, match="different formats"):
        ingest([tmp_path / "a.npz", tmp_path / "a.csv"], out)
    with pytest.raises(DataError, match=r"unknown format; write the sheet"):
        ingest(tmp_path / "a.xls", out)


def _split(tmp_path: Path, n: int, seed: int = 0, fraction: float = 0.2) -> tuple[IngestReport, HostArray]:
    X = np.arange(n, dtype=np.float32)[:, None]
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(n) % 2)
    settings = {"split": fraction, "out_test": tmp_path / "t", "seed": seed, "overwrite": True}
    report = ingest(tmp_path / "d.npz", tmp_path / "s", **settings)  # type: ignore[arg-type]
    train, test = _read(tmp_path / "s"), _read(tmp_path / "t")
    for block in (train, test):
        assert block.X is not None
        np.testing.assert_array_equal(block.y, block.X[:, 0] % 2)
    return report, np.concatenate([_column(train), _column(test)])


def _column(block: RowBlock) -> HostArray:
    assert block.X is not None
    return block.X[:, 0]


@pytest.mark.parametrize(("n", "expected"), [(10, 2), (1024, 205), (3001, 600)])
def test_a_split_is_exact_and_loses_nothing(tmp_path: Path, n: int, expected: int) -> None:
    report, rows = _split(tmp_path, n)
    assert (report.n_rows, report.n_test_rows) == (n - expected, expected)
    np.testing.assert_array_equal(np.sort(rows), np.arange(n))


def test_a_split_depends_on_the_seed_and_not_on_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = _split(tmp_path, 3000)
    monkeypatch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 500)
    _, again = _split(tmp_path, 3000)
    _, other = _split(tmp_path, 3000, seed=1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_impossible_splits_are_refused(tmp_path: Path) -> None:
    for fraction, words in ((1.5, "between 0 and 1"), (0.0, "between 0 and 1"), (0.01, "puts 0 of 10 rows")):
        with pytest.raises((SpecError, DataError), match=words):
            _split(tmp_path, 10, fraction=fraction)


def test_a_label_that_only_the_test_part_has_is_refused(tmp_path: Path, left: Left) -> None:
    y = np.zeros(40, int)
    y[::2] = 1
    y[7] = 2
    np.savez(tmp_path / "d.npz", X=np.ones((40, 1)), y=y)
    one = np.zeros(40, np.int64)
    splits = (Split(SplitSettings(0.5, stratify=False, seed=seed), [40]).assign(one) for seed in range(60))
    seed = next(seed for seed, parts in enumerate(splits) if parts[7] == TEST)
    with pytest.raises(DataError, match="label 2 is so rare"):
        ingest(tmp_path / "d.npz", tmp_path / "s", split=0.5, seed=seed, out_test=tmp_path / "t", stratify=False)
    assert left() == ["d.npz"]


def test_progress_counts_the_rows_of_both_parts(X: HostArray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **_train_test(X))  # type: ignore[arg-type]
    seen: list[tuple[int, int | None]] = []
    ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "t", progress=lambda *counts: seen.append(counts))
    assert seen == [(103, 123), (123, 123)]


def test_an_interrupt_leaves_nothing(X: HostArray, tmp_path: Path, left: Left) -> None:
    np.savez(tmp_path / "d.npz", **_train_test(X))  # type: ignore[arg-type]

    def interrupt(done: int, total: int | None) -> None:
        del total
        if done > 103:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "t", progress=interrupt)
    assert left() == ["d.npz"]


def test_a_column_that_float32_barely_resolves_is_remarked_on(tmp_path: Path) -> None:
    seconds = 1.7e9 + np.arange(100) / 10
    np.savez(tmp_path / "d.npz", X=seconds[:, None], y=np.arange(100) % 2)
    report = ingest(tmp_path / "d.npz", tmp_path / "s")
    assert "feature column 0" in report.notes[0]
    assert "float32" in report.notes[0]


_MEMORY = """
import sys
import numpy as np
from daskkern.data.ingest import ingest
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
ingest(sys.argv[1], sys.argv[2], task="classification")
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak memory from Linux's /proc")
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_npz_is_never_in_memory(tmp_path: Path, order: str) -> None:
    n, d = 32_768, 800  # 105 MB
    X = np.zeros((n, d), np.float32, order=order)  # type: ignore[call-overload]
    X[::7] = 1.5
    np.savez_compressed(tmp_path / "d.npz", X=X, y=np.arange(n) % 10)
    del X
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _MEMORY, str(tmp_path / "d.npz"), str(tmp_path / "s")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=200)
    assert int(result.stdout) < 60_000_000
    assert open_store(tmp_path / "s").info.n_rows == n


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        (np.zeros((3, 2)), "got numpy.ndarray to ingest"),
        ((np.zeros((3, 2)), np.zeros(3)), "got numpy.ndarray and numpy.ndarray to ingest"),
        ((da.zeros((3, 2)), da.zeros(3)), r"got dask.Array and dask.Array to ingest.*DaskArrays\(X, y\)"),
        (7, "got builtins.int to ingest; expected paths, URLs"),
    ],
    ids=["array", "pair", "dask", "number"],
)
def test_what_is_no_source_is_refused_with_what_is(tmp_path: Path, sources: Any, found: str) -> None:
    with pytest.raises(DataError, match=found):
        ingest(sources, tmp_path / "s.zarr")
