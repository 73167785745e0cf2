"""Whether targets are classes or quantities: few whole numbers are classes, values that hardly repeat are none."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from daskkern.arrays import HostArray
from daskkern.data.ingest import IngestReport, ingest
from daskkern.data.storage.store import open_store
from daskkern.errors import DataError


def _npz(folder: Path, y: HostArray) -> Path:
    np.savez(folder / "d.npz", X=np.arange(3.0 * len(y)).reshape(-1, 3), y=y)
    return folder / "d.npz"


def _npy(folder: Path, y: HostArray) -> Path:
    np.save(folder / "X.npy", np.arange(3.0 * len(y)).reshape(-1, 3))
    np.save(folder / "y.npy", y[:, None])
    return folder / "[Xy].npy"


def _csv(folder: Path, y: HostArray) -> Path:
    rows = [f"{i},{label}" for i, label in enumerate(y.tolist())]
    (folder / "d.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    return folder / "d.csv"


def _parquet(folder: Path, y: HostArray) -> Path:
    half = len(y) // 2  # two files, so that they are joined
    for name, part in (("0", slice(0, half)), ("1", slice(half, None))):
        table = pa.table({"a": np.arange(len(y), dtype=np.float64)[part], "y": y[part]})
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    return folder / "*.parquet"


def _hdf5(folder: Path, y: HostArray) -> Path:
    with h5py.File(folder / "d.h5", "w") as file:
        file["X"], file["y"] = np.arange(3.0 * len(y)).reshape(-1, 3), y
    return folder / "d.h5"


_FORMATS = [_npz, _npy, _csv, _parquet, _hdf5]
Writer = Callable[[Path, HostArray], Path]


def _ingest(folder: Path, write: Writer, y: HostArray, task: str = "auto") -> IngestReport:
    target = "y" if write in (_csv, _parquet) else None
    return ingest(str(write(folder, y)), folder / "s", target=target, task=task)


@pytest.mark.parametrize("write", _FORMATS)
def test_few_whole_numbers_are_classes(write: Writer, tmp_path: Path) -> None:
    y = np.tile([0.0, 1.0, 1.0, 3.0], 10)
    report = _ingest(tmp_path, write, y)
    assert (report.task, report.classes, report.class_counts) == ("classification", (0, 1, 3), (10, 20, 10))
    target = "target 'y'" if write in (_csv, _parquet) else "the target"
    assert report.task_reason == f"{target} has 3 whole-number values; use --task regression for a regression"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("write", _FORMATS)
@pytest.mark.parametrize(
    "y",
    [
        np.tile([0.0, 1.0, 1.0, 3.5], 10),
        np.tile(np.arange(21.0), 10),
        np.array([5.0, 6.0, 7.0, 8.0, 9.0]),
        np.full(10, 2.0),
    ],
)
def test_other_floats_are_quantities(write: Writer, y: HostArray, tmp_path: Path) -> None:
    report = _ingest(tmp_path, write, y)
    assert (report.task, report.task_reason) == ("regression", "the target holds floats")


def test_a_regression_on_few_whole_numbers_is_asked_for(tmp_path: Path) -> None:
    report = _ingest(tmp_path, _csv, np.tile([0.0, 1.0], 10), "regression")
    assert (report.task, report.task_reason) == ("regression", "as asked")


@pytest.mark.parametrize(
    ("y", "found"),
    [
        (np.linspace(0, 1, 400), "more than 20 different values, and fractions among them"),
        (np.arange(400), "400 different values in 400 rows"),
        (np.arange(400.0), "400 different values in 400 rows"),
        (np.array([f"name {i}" for i in range(400)]), "400 different values in 400 rows"),
    ],
)
def test_values_that_hardly_repeat_are_no_classes_though_asked(y: HostArray, found: str, tmp_path: Path) -> None:
    sentence = f"--task classification was given, but the target has {found}; classes are few values"
    with pytest.raises(DataError, match=sentence):
        _ingest(tmp_path, _npz, y, "classification")
    assert not (tmp_path / "s").exists()


def test_classes_with_fractions_may_be_asked_for(tmp_path: Path) -> None:
    report = _ingest(tmp_path, _npz, np.tile([0.5, 1.0, 1.5], 10), "classification")
    assert report.classes == (0.5, 1.0, 1.5)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([f"2024-01-{1 + k % 28:02d} 10:00:00" for k in range(60)], "holds dates or times, such as '2024-01-"),
        (
            [f"{k % 20},500" for k in range(60)],
            "numbers with separators, such as .* write plain numbers",
        ),
        ([f"2024-01-{1 + k % 28:02d}T{k % 24:02d}:{k % 60:02d}" for k in range(60)], "holds dates or times"),
        ([f"item {k}" for k in range(60)], "does not look like classes; use --task classification when these really"),
    ],
    ids=["dates", "amounts", "each its own", "names"],
)
def test_a_target_of_texts_that_stand_for_quantities_is_refused(tmp_path: Path, texts: list[str], words: str) -> None:
    rows = [f'{k},"{text}"' for k, text in enumerate(texts)]
    (tmp_path / "d.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    with pytest.raises(DataError, match=words):
        ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y")
    if len(set(texts)) < len(texts):
        report = ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y", task="classification")
        assert len(report.classes or ()) == len(set(texts))


def test_few_dates_are_classes(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,y\n" + "".join(f"{k},2024-0{1 + k % 4}-01\n" for k in range(60)))
    assert len(ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y").classes or ()) == 4


def test_a_gap_in_the_target_is_not_to_be_filled_in(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,y\n1,0.5\n2,\n3,1.5\n")
    with pytest.raises(DataError, match=r"row 1 .* no value in column 'y', which is a target or weight; remove"):
        ingest(tmp_path / "d.csv", tmp_path / "s.zarr", target="y")


def test_labels_with_leading_zeros_are_texts(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,t\n" + "".join(f"{i}.5,{('007', '07', '1')[i % 3]}\n" for i in range(60)))
    report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", target="t")
    assert open_store(tmp_path / "rows.zarr").info.classes == ("007", "07", "1")
    assert report.task == "classification"
    ingest(tmp_path / "rows.csv", tmp_path / "numbers.zarr", target="t", task="regression")
    assert np.unique(open_store(tmp_path / "numbers.zarr").array("y")[:]).tolist() == [1, 7]
