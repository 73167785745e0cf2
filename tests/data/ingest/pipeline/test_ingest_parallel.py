"""Ingestion by workers writes the store that one process writes."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import zarr
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st

from daskkern.arrays import HostArray
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline.parallel import part_bounds
from daskkern.data.ingest.pipeline.sources import open_source
from daskkern.data.ingest.readers.tables import Piece, Request
from daskkern.data.storage.store import Store, open_store
from daskkern.errors import DataError, SpecError

Left = Callable[[], list[str]]
KINDS = ["npz", "csv", "parquet", "feather", "arrows", "h5", "zarr", "svm"]


@pytest.fixture
def labels() -> HostArray:
    return np.array(["b", "a", "d", "c"])[np.arange(1003) * 7 // 1000 % 4]


@pytest.fixture(name="X")
def many_rows(rng: np.random.Generator) -> HostArray:
    return rng.normal(size=(1003, 4)).astype(np.float32)


def save(folder: Path, kind: str, X: HostArray, y: HostArray) -> Path:
    """Save rows in two files of one kind and return the pattern that both match."""
    columns = {f"f{j}": X[:, j] for j in range(X.shape[1])}
    for number, part in enumerate((slice(0, 700), slice(700, None))):
        path = folder / f"part{number}.{kind}"
        table = pa.table({**{name: values[part] for name, values in columns.items()}, "t": y[part]})
        if kind == "npz":
            np.savez_compressed(path, X=X[part], t=y[part])
        elif kind == "csv":
            table.to_pandas().to_csv(path, index=False)
        elif kind == "parquet":
            pq.write_table(table, path, row_group_size=90)
        elif kind == "feather":
            pa.feather.write_feather(table, path, chunksize=90)
        elif kind == "arrows":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=90)
        elif kind == "h5":
            with h5py.File(path, "w") as file:
                file.create_dataset("X", data=X[part], chunks=(50, 4))
                file.create_dataset("t", data=y[part].tolist(), dtype=h5py.string_dtype())
        elif kind == "zarr":
            group = zarr.open_group(path, mode="w")
            group.create_array("X", data=X[part], chunks=(50, 4))
            group.create_array("t", shape=y[part].shape, dtype=str)[:] = y[part].astype(object)
        else:
            lines = [
                f"{ord(label)} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row))
                for row, label in zip(X[part].tolist(), y[part], strict=True)
            ]
            path.write_text("\n".join(lines) + "\n")
    return folder / f"part*.{kind}"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_can_begin_at_any_row(
    tmp_path: Path, X: HostArray, labels: HostArray, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 1000)
    target = None if kind == "svm" else ("t",)
    request = Request(target, None, (), "auto", tmp_path, count=False)
    table = open_source(str(save(tmp_path, kind, X, labels)), request, ()).parts.train
    for start in (0, 1, 89, 90, 699, 700, 701, 1002, 1003):
        pieces = list(table.rows_from(start))
        assert sum(piece.X.shape[0] for piece in pieces) == 1003 - start
        if start < 1003:
            np.testing.assert_array_equal(np.concatenate([_dense(piece) for piece in pieces]), X[start:])
            assert pieces[0].first == (start if start < 700 else start - 700)


def _dense(piece: Piece) -> HostArray:
    X = piece.X.toarray() if hasattr(piece.X, "toarray") else piece.X
    return np.asarray(X, np.float32)


@given(
    n_rows=st.integers(1, 500),
    chunk_rows=st.integers(1, 60),
    starts=st.none() | st.sets(st.integers(1, 499)),
    parts=st.integers(1, 20),
)
def test_parts_cover_the_rows_and_begin_where_chunks_begin(
    n_rows: int, chunk_rows: int, starts: set[int] | None, parts: int
) -> None:
    known = None if starts is None else (0, *sorted(start for start in starts if start < n_rows))
    bounds = part_bounds(n_rows, chunk_rows, known, parts)
    assert [row for bound in bounds for row in range(*bound)] == list(range(n_rows))
    assert len(bounds) <= parts
    for start, stop in bounds:
        assert start % chunk_rows == 0
        assert stop > start
        assert known is None or start < chunk_rows or any(start - chunk_rows < at <= start for at in known)


def _same(one: Store, other: Store) -> None:
    for store in (one, other):
        store.verify()
    assert one.info.checksums == other.info.checksums
    for name in ("n_rows", "chunk_rows", "task", "classes", "class_counts", "feature_names", "encoding", "has_weight"):
        assert getattr(one.info, name) == getattr(other.info, name)
    np.testing.assert_allclose(one.info.statistics.table(), other.info.statistics.table(), rtol=1e-12)
    np.testing.assert_allclose(one.info.scaling.scale, other.info.scaling.scale, rtol=1e-12)


@pytest.mark.long
@pytest.mark.one_in(7)
@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "feather", "h5", "zarr"])
@pytest.mark.parametrize("chunk_rows", [17, 5000])
def test_workers_write_what_one_process_writes(
    tmp_path: Path, client2: Client, X: HostArray, labels: HostArray, kind: str, chunk_rows: int
) -> None:
    source = str(save(tmp_path, kind, X, labels))
    reported: list[tuple[int, int | None]] = []
    settings = {"target": "t", "scale": "standard", "chunk_rows": chunk_rows, "shuffle": False}
    ingest(source, tmp_path / "s", client=client2, progress=lambda *at: reported.append(at), **settings)  # type: ignore[arg-type]
    ingest(source, tmp_path / "u", **settings)  # type: ignore[arg-type]
    _same(open_store(tmp_path / "s"), open_store(tmp_path / "u"))
    assert open_store(tmp_path / "s").info.classes == ("a", "b", "c", "d")
    assert reported[-1] == (1003, 1003)


@pytest.mark.cluster
def test_gaps_categories_weights_and_a_store_to_be_like(tmp_path: Path, client2: Client, X: HostArray) -> None:
    X[::9, 1] = np.nan
    frame = {"a": X[:, 0], "b": X[:, 1], "c": np.array(["u", "v", "w"])[np.arange(1003) % 3]}
    frame |= {"p": X[:, 2], "q": X[:, 3], "w": np.arange(1003)}
    pq.write_table(pa.table(frame), tmp_path / "d.parquet", row_group_size=100)
    settings = {"target": ["p", "q"], "weight": "w", "missing": "mean", "categorical": "onehot", "chunk_rows": 50}
    for name, client in (("s", client2), ("u", None)):
        ingest(tmp_path / "d.parquet", tmp_path / name, client=client, shuffle=False, **settings)  # type: ignore[arg-type]
    _same(open_store(tmp_path / "s"), open_store(tmp_path / "u"))
    for name, client in (("s2", client2), ("u2", None)):
        ingest(tmp_path / "d.parquet", tmp_path / name, client=client, like=tmp_path / "s", shuffle=False)
    _same(open_store(tmp_path / "s2"), open_store(tmp_path / "u2"))


@pytest.mark.cluster
def test_what_workers_find_wrong_is_told_and_leaves_nothing(
    tmp_path: Path, client2: Client, X: HostArray, labels: HostArray, left: Left
) -> None:
    X[900, 2] = np.inf
    source = str(save(tmp_path, "parquet", X, labels))
    before = left()
    with pytest.raises(DataError, match=r"row 200 of .*part1\.parquet .* has inf.* in feature column 'f2'"):
        ingest(source, tmp_path / "s", target="t", client=client2, chunk_rows=50)
    np.savez(tmp_path / "d.npz", X_train=X, y_train=labels, X_test=X, y_test=labels)
    with pytest.raises(SpecError, match="which is not supported for files with a test part"):
        ingest(tmp_path / "d.npz", tmp_path / "s", out_test=tmp_path / "t", client=client2)
    (tmp_path / "d.npz").unlink()
    assert left() == before
    (tmp_path / "d.svm").write_text("1 1:1\n2 1:2\n")
    with pytest.raises(SpecError, match="they are sparse"):
        ingest(tmp_path / "d.svm", tmp_path / "s", client=client2)


@pytest.mark.cluster
def test_the_command_takes_a_scheduler(tmp_path: Path, cluster2: str, X: HostArray, labels: HostArray) -> None:
    source = str(save(tmp_path, "h5", X, labels))
    command = ["ingest", source, "--out", str(tmp_path / "s"), "--target", "t", "--scheduler", cluster2]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 0
    assert open_store(tmp_path / "s").info.n_rows == 1003
