"""Ingestion of HDF5, Zarr and AnnData files, written here by hand as their formats say."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.errors import DataError

Left = Callable[[], list[str]]
CONTAINERS = ["h5", "zarr2", "zarr3"]


@contextmanager
def container(kind: str, path: Path) -> Iterator[Any]:
    """Yield an empty HDF5 file or Zarr group for writing."""
    if kind == "h5":
        with h5py.File(path, "w") as file:
            yield file
    else:
        yield zarr.open_group(path, mode="w", zarr_format=int(kind[-1]))  # type: ignore[arg-type]


def put(group: Any, name: str, values: object, chunks: tuple[int, ...] | None = None) -> None:
    array = np.asarray(values)
    if isinstance(group, h5py.Group):
        if array.dtype.kind == "U":
            group.create_dataset(name, data=array.tolist(), dtype=h5py.string_dtype())
        else:
            group.create_dataset(name, data=array, chunks=chunks)
    elif array.dtype.kind == "U":
        group.create_array(name, shape=array.shape, dtype=str)[:] = array.astype(object)
    else:
        group.create_array(name, data=array, chunks=chunks or array.shape)


def put_csr(group: Any, name: str, X: HostArray) -> None:
    csr, sub = scipy.sparse.csr_array(X), group.create_group(name)
    sub.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(X.shape)})
    for part in ("data", "indices", "indptr"):
        put(sub, part, getattr(csr, part))


def put_categorical(group: Any, name: str, codes: object, categories: list[str]) -> None:
    sub = group.create_group(name)
    sub.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    put(sub, "codes", np.asarray(codes, np.int8))
    put(sub, "categories", np.asarray(categories))


def annotated(group: Any, X: HostArray, sparse: bool) -> None:
    """Write an AnnData file: cells in rows, genes in columns, annotations in obs and var."""
    group.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    if sparse:
        put_csr(group, "X", X)
    else:
        put(group, "X", X)
    obs, var = group.create_group("obs"), group.create_group("var")
    obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
    var.attrs.update({"encoding-type": "dataframe", "_index": "gene"})
    put(var, "gene", np.array([f"g{j}" for j in range(X.shape[1])]))
    put(obs, "_index", np.array([f"c{i}" for i in range(len(X))]))
    put_categorical(obs, "cell type", np.arange(len(X)) % 3, ["T cell", "B cell", "NK"])
    put(obs, "age", np.arange(len(X)) / 2)
    put(obs, "w", np.arange(len(X)))


def suffix(kind: str, annotated: bool = False) -> str:
    return (".h5ad" if annotated else ".h5") if kind == "h5" else ".zarr"


def read(path: Path) -> Any:
    store = open_store(path)
    store.verify()
    return StoreRows(store, np.float64).read(0, store.info.n_rows)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", ">i4"])
def test_x_and_y_by_their_names(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str
) -> None:
    monkeypatch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 300)
    X = rng.integers(0, 100, (103, 5)).astype(dtype)
    with container(kind, tmp_path / f"d{suffix(kind)}") as group:
        put(group, "X", X, chunks=(16, 5))
        put(group, "y", np.arange(103) % 4)
    report = ingest(tmp_path / f"d{suffix(kind)}", tmp_path / "s", shuffle=False)
    assert (report.task, report.n_rows, report.classes) == ("classification", 103, (0, 1, 2, 3))
    np.testing.assert_array_equal(read(tmp_path / "s").X, X.astype(np.float64))
    kept = {"f8": "f4"}.get(dtype, np.dtype(dtype).newbyteorder("="))
    assert open_store(tmp_path / "s").array("X").dtype == np.dtype(kept)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_entries_by_name(tmp_path: Path, X: HostArray, kind: str) -> None:
    source = tmp_path / f"d{suffix(kind)}"
    with container(kind, source) as group:
        inner = group.create_group("a")
        put(inner, "rows", X.reshape(103, 5, 1))
        put(group, "t", X[:, :2].astype(np.float64))
        put(group, "labels", np.array([f"l{i % 2}" for i in range(103)]))
        put(group, "w", np.arange(103))
    report = ingest(source, tmp_path / "s", features="a/rows", target="t", weight="w", shuffle=False)
    assert (report.task, report.n_targets) == ("regression", 2)
    np.testing.assert_array_equal(read(tmp_path / "s").y, X[:, :2])
    np.testing.assert_array_equal(read(tmp_path / "s").weight, np.arange(103))
    report = ingest(source, tmp_path / "u", features="a/rows", target="labels")
    assert report.classes == ("l0", "l1")
    with pytest.raises(DataError, match="has no entry 'q'; it has a, labels, t, w"):
        ingest(source, tmp_path / "v", features="q", target="t")
    with pytest.raises(DataError, match="holds a, labels, t, w, but no 'X'; name the array with --features KEY"):
        ingest(source, tmp_path / "v", target="t")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("sparse", [True, False])
def test_annotated_data(tmp_path: Path, rng: np.random.Generator, kind: str, sparse: bool) -> None:
    X = np.where(rng.random((103, 9)) < 0.2, rng.normal(size=(103, 9)), 0).astype(np.float32)
    source = tmp_path / f"d{suffix(kind, annotated=True)}"
    with container(kind, source) as group:
        annotated(group, X, sparse)
    report = ingest(source, tmp_path / "s", target="cell type", drop=["g2", "g5"], weight="w", shuffle=False)
    assert report.classes == ("B cell", "NK", "T cell")
    info = open_store(tmp_path / "s").info
    assert info.is_sparse == sparse
    assert info.feature_names == ("g0", "g1", "g3", "g4", "g6", "g7", "g8")
    assert info.target_names == ("cell type",)
    block = read(tmp_path / "s")
    found = block.X.toarray() if sparse else block.X
    np.testing.assert_array_equal(found, np.delete(X, [2, 5], axis=1))
    np.testing.assert_array_equal(block.y, np.array([2, 0, 1])[np.arange(103) % 3])
    report = ingest(source, tmp_path / "u", target=["age", "w"], shuffle=False)
    np.testing.assert_array_equal(read(tmp_path / "u").y, np.column_stack([np.arange(103) / 2, np.arange(103)]))


@pytest.mark.parametrize("sparse", [True, False])
def test_features_are_matched_by_name(tmp_path: Path, X: HostArray, sparse: bool) -> None:
    X = np.where(X > 3, X, 0)
    for name, order in (("a", [0, 1, 2, 3, 4]), ("b", [3, 1, 4, 0, 2])):
        with h5py.File(tmp_path / f"{name}.h5ad", "w") as file:
            annotated(file, X[:, order], sparse)
            file["var/gene"][...] = [f"g{j}" for j in order]
    ingest(tmp_path / "a.h5ad", tmp_path / "s", target="cell type", drop=["g1"], shuffle=False)
    ingest(tmp_path / "b.h5ad", tmp_path / "t", like=tmp_path / "s", shuffle=False)
    for name in ("s", "t"):
        rows = read(tmp_path / name).X
        np.testing.assert_array_equal(rows.toarray() if sparse else rows, np.delete(X, 1, axis=1))
        assert open_store(tmp_path / name).info.feature_names == ("g0", "g2", "g3", "g4")
    with pytest.raises(DataError, match=r"names of features differ \(g0 and g3\)"):
        ingest([tmp_path / "a.h5ad", tmp_path / "b.h5ad"], tmp_path / "u", target="age")
    with h5py.File(tmp_path / "b.h5ad", "r+") as file:
        file["var/gene"][0] = "g9"
    with pytest.raises(DataError, match="has no feature 'g3', which the training rows had"):
        ingest(tmp_path / "b.h5ad", tmp_path / "u", like=tmp_path / "s")


def test_a_missing_category_is_refused(tmp_path: Path, X: HostArray) -> None:
    with h5py.File(tmp_path / "d.h5ad", "w") as file:
        annotated(file, X, False)
        file["obs/cell type/codes"][41] = -1
        csc = file.create_group("C")
        csc.attrs.update({"encoding-type": "csc_matrix", "shape": [1, 1]})
    with pytest.raises(DataError, match=r"row 41 of .* has no value in 'obs/cell type'"):
        ingest(tmp_path / "d.h5ad", tmp_path / "s", target="cell type")
    with pytest.raises(DataError, match=r"Pass --target NAME; there are age, cell type, w"):
        ingest(tmp_path / "d.h5ad", tmp_path / "s")
    with pytest.raises(DataError, match=r"of encoding 'csc_matrix'.*tocsr"):
        ingest(tmp_path / "d.h5ad", tmp_path / "s", target="age", features="C")
    with pytest.raises(DataError, match="has no feature 'g99' to drop"):
        ingest(tmp_path / "d.h5ad", tmp_path / "s", target="age", drop=["g99"])


@pytest.mark.parametrize("version", [2, 3])
def test_a_pair_of_zarr_arrays(tmp_path: Path, X: HostArray, version: int) -> None:
    for name, values in (("rows", X), ("labels", np.arange(103) % 2)):
        array = zarr.create_array(tmp_path / name, data=values, zarr_format=version)  # type: ignore[arg-type]
        assert array.shape == values.shape
    report = ingest([tmp_path / "rows", tmp_path / "labels"], tmp_path / "s", shuffle=False)
    assert (report.format, report.task) == ("zarr", "classification")
    np.testing.assert_array_equal(read(tmp_path / "s").X, X)
    with pytest.raises(DataError, match="1 Zarr arrays were given; give two"):
        ingest(tmp_path / "rows", tmp_path / "u")
    with pytest.raises(DataError, match="is already a daskkern store"):
        ingest(tmp_path / "s", tmp_path / "u")


def test_several_files_are_joined_and_must_agree(tmp_path: Path, X: HostArray) -> None:
    for name, rows in (("1", X[:50]), ("2", X[50:])):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            put(file, "X", rows)
            put(file, "y", np.arange(len(rows)) % 2)
    ingest(str(tmp_path / "*.h5"), tmp_path / "s", shuffle=False)
    np.testing.assert_array_equal(read(tmp_path / "s").X, X)
    with h5py.File(tmp_path / "3.h5", "w") as file:
        put(file, "X", X[:, :4])
        put(file, "y", np.arange(103) % 2)
    with pytest.raises(DataError, match=r"their features differ \(5 and 4\)"):
        ingest(str(tmp_path / "*.h5"), tmp_path / "u")


_MEMORY = """
import sys
import h5py
from daskkern.data.ingest import ingest
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024
before = peak()
ingest(sys.argv[1], sys.argv[2])
print(peak() - before)
"""


@pytest.mark.repeated
@pytest.mark.one_in(2, 1)
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the peak memory from Linux's /proc")
@pytest.mark.parametrize("kind", ["h5", "zarr3"])
def test_a_large_file_is_never_in_memory(tmp_path: Path, kind: str) -> None:
    source = tmp_path / f"d{suffix(kind)}"
    with container(kind, source) as group:
        put(group, "X", np.zeros((30_000, 800), np.float32), chunks=(700, 800))  # 96 MB
        put(group, "y", np.arange(30_000) % 10)
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _MEMORY, str(source), str(tmp_path / "s")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=200)
    assert int(result.stdout) < 75_000_000


def test_what_is_wrong_is_a_sentence(tmp_path: Path, X: HostArray, left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.h5").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="cannot be opened as HDF5"):
        ingest(tmp_path / "d.h5", tmp_path / "s")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "X", X)
        put(file, "y", np.arange(100))
        put(file, "t", np.array(["a"] * 103))
    with pytest.raises(DataError, match=r"'X' of .* has 103 rows, but 'y' has shape \(100,\)"):
        ingest(tmp_path / "d.h5", tmp_path / "s")
    with pytest.raises(DataError, match=r"'t' of .* has shape \(103,\); expected rows of features"):
        ingest(tmp_path / "d.h5", tmp_path / "s", features="t", target="y")
    with pytest.raises(DataError, match="have no column names"):
        ingest(tmp_path / "d.h5", tmp_path / "s", target="t", drop=["a"])
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"needs the package h5py.*pip install 'daskkern\[formats\]'"):
        ingest(tmp_path / "d.h5", tmp_path / "s")
    assert left() == ["d.h5"]
