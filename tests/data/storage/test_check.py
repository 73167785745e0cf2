"""A check passes whole stores, and names what is wrong with any other in one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr
from distributed import Client

from daskkern.arrays import HostArray
from daskkern.data.schema.column_scaling import Scaling
from daskkern.data.storage.check import CheckReport, check_store
from daskkern.data.storage.check_parallel import check_store_on
from daskkern.data.storage.store import checksum, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import DaskkernError, StoreError

KINDS = ("classification", "regression", "sparse")


def _write(path: Path, kind: str) -> Path:
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, size=(103, 5)).astype(np.float32)
    weight = rng.random(103)
    if kind == "classification":
        with StoreWriter(
            path, n_features=5, task="classification", classes=("a", "b", "c"), has_weight=True, chunk_rows=10,
            feature_names=tuple("vwxyz"), scale="standard",
        ) as writer:  # fmt: skip
            writer.append(X, np.arange(103) % 3, weight)
    elif kind == "regression":
        with StoreWriter(path, n_features=5, task="regression", n_targets=2, chunk_rows=16) as writer:
            writer.append(X, X[:, :2].astype(np.float64))
    else:
        S = scipy.sparse.random_array((3000, 400), density=0.05, format="csr", dtype=np.float32, rng=rng)
        with StoreWriter(path, n_features=400, task="regression", sparse=True, chunk_rows=200) as writer:
            writer.append(S, np.arange(3000.0))
            writer.set_scaling(Scaling())
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_store_passes(tmp_path: Path, kind: str) -> None:
    seen: list[tuple[int, int]] = []
    report = check_store(_write(tmp_path / "s", kind), progress=lambda *counts: seen.append(counts))
    assert report.findings == ()
    assert report.is_whole
    expected = {"classification": 33, "regression": 14, "sparse": 24}[kind]
    assert report.n_chunks == expected
    assert seen == [(i + 1, expected) for i in range(expected)]
    if kind == "classification":
        assert report.n_bytes == 103 * (5 * 4 + 8 + 8)


def test_copies_pass_too(tmp_path: Path) -> None:
    path = _write(tmp_path / "s", "classification")
    archive = shutil.make_archive(str(tmp_path / "z"), "zip", path)
    assert check_store(archive).is_whole
    assert check_store(zarr.open_group(path, mode="r")).is_whole


def _one(report: CheckReport) -> tuple[str, str]:
    (finding,) = report.findings
    return finding.key, finding.sentence


def test_the_bad_chunk_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "s", "classification")
    for key, damage, words in (
        ("X/c/4/0", lambda raw: b"\x01" + raw[1:], "its checksum differs"),
        ("y/c/7", lambda raw: raw[:-3], "cannot be read"),
        ("weight/c/0", lambda raw: None, "is missing"),
    ):
        copy = shutil.copytree(path, tmp_path / "copy", dirs_exist_ok=True)
        raw = damage((copy / key).read_bytes())
        (copy / key).unlink() if raw is None else (copy / key).write_bytes(raw)
        found, sentence = _one(check_store(copy))
        assert found == key
        assert f"chunk {key} " in sentence
        assert words in sentence
        shutil.rmtree(copy)


def test_all_bad_chunks_are_listed(tmp_path: Path) -> None:
    path = _write(tmp_path / "s", "regression")
    (path / "X/c/1/0").unlink()
    (path / "X/c/3/0").unlink()
    (path / "y/c/6/0").write_bytes(b"")
    assert [finding.key for finding in check_store(path).findings] == ["X/c/1/0", "X/c/3/0", "y/c/6/0"]


def _edit(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    file = path / "zarr.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("key", "value"),
    [("feature_names", list("vwxyq")), ("statistics", None), ("checksums", {"X": 1, "y": 2, "weight": 3})],
)
def test_a_changed_attribute_is_named(tmp_path: Path, key: str, value: object) -> None:
    path = _write(tmp_path / "s", "classification")

    def change(content: dict[str, object]) -> None:
        attributes = content["attributes"]
        assert isinstance(attributes, dict)
        if value is None:
            attributes[key]["mean"][2] += 1e-3
        else:
            attributes[key] = value

    _edit(path, change)
    assert f"attribute {key!r} was changed" in " ".join(finding.sentence for finding in check_store(path).findings)


def test_a_wrong_dtype_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "s", "classification")
    _edit(path / "X", lambda content: content.update(data_type="int32"))
    assert "X/zarr.json were changed" in _one(check_store(path))[1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_without_records_the_rows_are_held_against_the_attributes(tmp_path: Path, kind: str) -> None:
    path = _write(tmp_path / "s", kind)
    shutil.rmtree(path / "chunk_checksums")
    assert "are missing" in _one(check_store(path))[1]
    _edit(path, lambda content: content["attributes"].pop("records"))  # type: ignore[attr-defined]
    assert check_store(path).is_whole
    chunk = next(p for p in sorted(path.glob("X/**/c/0*")) if p.is_file() or (p / "0").is_file())
    chunk = chunk if chunk.is_file() else chunk / "0"
    raw = bytearray(chunk.read_bytes())
    raw[0] ^= 1
    chunk.write_bytes(raw)
    assert "its checksum differs" in check_store(path).findings[0].sentence


def _rewrite(path: Path, name: str, values: HostArray) -> None:
    """Change values and all checksums of bytes, so that only their meaning is wrong."""
    group = zarr.open_group(path, mode="r+")
    array = group[name]
    assert isinstance(array, zarr.Array)
    array[: len(values)] = values
    shutil.rmtree(path / "chunk_checksums")
    sums = dict(group.attrs["checksums"])  # type: ignore[arg-type, call-overload]
    stored = open_store(path, chunks_present=False)
    sums[name] = checksum(stored.array(name), stored.array(name).chunks[0])
    _edit(path, lambda content: content["attributes"].pop("records"))  # type: ignore[attr-defined]
    _edit(path, lambda content: content["attributes"].update(checksums=sums))  # type: ignore[attr-defined]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("kind", "name", "value", "words"),
    [
        ("classification", "X", np.nan, "array X holds a value that is not finite in rows 0"),
        ("classification", "X", 1.0, "attribute 'statistics' does not agree with array X"),
        ("classification", "y", 7, "array y holds codes beyond the 3 classes"),
        ("classification", "y", 2, "attribute 'class_counts' does not agree with array y"),
        ("classification", "weight", -1.0, "unusable weight"),
        ("regression", "y", np.inf, "array y holds a value that is not finite"),
        ("regression", "y", 0.5, "attribute 'target_statistics' does not agree with array y"),
        ("sparse", "X/indices", 400, "no valid CSR rows"),
        ("sparse", "X/indptr", 9, "indptr"),
    ],
)
def test_rows_that_contradict_the_attributes_are_found(
    tmp_path: Path, kind: str, name: str, value: float, words: str
) -> None:
    path = _write(tmp_path / "s", kind)
    array = open_store(path).array(name)
    values = array[:1].copy()
    values[...] = value
    _rewrite(path, name, values)
    assert words in _one(check_store(path))[1]


def test_what_cannot_be_opened_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        check_store(tmp_path / "missing")


def _corrupt(path: Path, rng: np.random.Generator) -> str:
    """Do one random damage to the files of a store, and return which."""
    files = sorted(p for p in path.rglob("*") if p.is_file())
    file = files[rng.integers(len(files))]
    raw = bytearray(file.read_bytes())
    how = rng.choice(["flip", "truncate", "remove", "extend", "blank", "metadata"])
    if how == "metadata":
        file = rng.choice([p for p in files if p.name == "zarr.json"])  # type: ignore[arg-type]
        content = json.loads(file.read_text())
        place = content["attributes"] if rng.random() < 0.5 and content.get("attributes") else content
        key = str(rng.choice(sorted(place)))
        place[key] = [None, 7, -1, "x", [], {}, True, 1e300][rng.integers(8)]
        file.write_text(json.dumps(content))
        return f"{file.relative_to(path)}: {key} = {place[key]!r}"
    if how == "flip" and raw:
        raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
    elif how == "truncate":
        raw = raw[: rng.integers(len(raw))]
    elif how == "extend":
        raw += bytes(rng.integers(1, 30))
    elif how == "blank":
        raw = bytearray(len(raw))
    file.unlink() if how == "remove" else file.write_bytes(raw)
    return f"{how} {file.relative_to(path)}"


@pytest.mark.long
@pytest.mark.one_in(3, 1)
@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_is_one_clean_sentence(tmp_path: Path, kind: str) -> None:
    whole = _write(tmp_path / "s", kind)
    before = {p.relative_to(whole): p.read_bytes() for p in whole.rglob("*") if p.is_file()}
    rng = np.random.default_rng(1)
    for _ in range(70):
        copy = shutil.copytree(whole, tmp_path / "copy")
        what = _corrupt(copy, rng)
        after = {p.relative_to(copy): p.read_bytes() for p in copy.rglob("*") if p.is_file()}
        sentences = _complaints(copy)
        if after != before:
            assert sentences, what
        for sentence in sentences:
            assert "\n" not in sentence, what
            assert len(sentence) < 600, what
        _read(copy)
        shutil.rmtree(copy)


def _complaints(path: Path) -> list[str]:
    try:
        return [finding.sentence for finding in check_store(path).findings]
    except DaskkernError as error:
        return [str(error)]


def _read(path: Path) -> None:
    """Read everything: it works or raises an error of ours that names the store."""
    try:
        rows = StoreRows(open_store(path))
        for start in range(0, rows.n_rows, rows.chunk_rows):
            rows.read(start, min(start + rows.chunk_rows, rows.n_rows))
    except DaskkernError as error:
        complaint = str(error)
    else:
        return
    assert path.name in complaint


_PART = 3000  # bytes of a task, of which there are many then


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["classification", "sparse"])
def test_workers_find_what_one_process_finds(tmp_path: Path, client2: Client, kind: str) -> None:
    path = _write(tmp_path / "s", kind)
    seen: list[tuple[int, int]] = []
    report = check_store_on(client2, path, progress=lambda *counts: seen.append(counts), part_bytes=_PART)
    alone = check_store(path)
    assert report.is_whole
    assert (report.n_chunks, report.n_bytes) == (alone.n_chunks, alone.n_bytes)
    assert seen[-1] == (alone.n_chunks, alone.n_chunks)
    assert len(seen) > 2
    rng = np.random.default_rng(3)
    for _ in range(6):
        copy = shutil.copytree(path, tmp_path / "copy")
        what = _corrupt(copy, rng)
        assert _found_on(client2, copy) == _complaints(copy), what
        shutil.rmtree(copy)
    array = open_store(path).array("y")
    _rewrite(path, "y", np.full_like(array[:1], 1 - array[0]))
    found = _found_on(client2, path)
    assert "does not agree with array y" in found[0]
    assert found == _complaints(path)


def _found_on(client: Client, path: Path) -> list[str]:
    try:
        return [finding.sentence for finding in check_store_on(client, path, part_bytes=_PART).findings]
    except DaskkernError as error:
        return [str(error)]
