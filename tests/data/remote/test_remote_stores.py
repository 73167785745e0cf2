"""Stores behind URLs: the same as on disk, through faults; refused when half-written; clear errors, and no hangs."""

import functools
import http.server
import json
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.remote.copying import upload
from daskkern.data.remote.stores import RETRIES, TIMEOUT, RemoteStore, name_of_place, open_zarr, public
from daskkern.data.rows.rows import take
from daskkern.data.schema.provenance import made_now
from daskkern.data.schema.schema import FORMAT, Scaling
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.check import check_store
from daskkern.data.storage.info import describe_store
from daskkern.data.storage.random_access import gives_ranges
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.store_rows import StoreRows
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import StoreError
from daskkern.kernels import Gaussian
from daskkern.models import KernelModel, load_model, save_model
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import StoreSource
from tests.support.files.same_stores import assert_same_stores
from tests.support.object_server import ObjectServer

Make = Callable[..., Store]


def arrays(store: Store) -> dict[str, HostArray]:
    return {name: np.asarray(store.array(name)[:]) for name in store.array_names()}


def assert_same(store: Store, other: Store) -> None:
    """Assert that two stores hold the same but for where and when they were made."""
    ours, theirs = arrays(store), arrays(other)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])
    assert store.info == other.info
    assert dict(store.info.checksums) == dict(other.info.checksums)


def write(place: str | Path, X: HostArray, **settings: object) -> None:
    with StoreWriter(place, n_features=X.shape[1], chunk_rows=4, **settings) as writer:  # type: ignore[arg-type]
        writer.append(X)


def names(url: str) -> list[str]:
    """Return the keys of all objects below a URL."""

    async def listed() -> list[str]:
        return sorted([key async for key in RemoteStore.at(url, read_only=True).list()])

    return sync(listed())


@pytest.fixture
def table(tmp_path: Path, X: HostArray, codes: HostArray) -> Path:
    np.savez(tmp_path / "d.npz", X=X, y=np.sort(codes))
    return tmp_path / "d.npz"


@pytest.mark.one_in(2, 1)
@pytest.mark.parametrize("place", ["s3", "memory"])
def test_ingested_split_and_shuffled_like_on_disk(
    place: str, objects: ObjectServer, table: Path, tmp_path: Path
) -> None:
    base = objects.url("ingested") if place == "s3" else "memory://ingested"
    objects.faults.fail_every = 37
    for root in (str(tmp_path / "local"), base):
        kept = ingest(
            table, f"{root}/a", split=0.2, out_test=f"{root}/b", scale="standard", chunk_rows=40, shuffle=True
        )
        assert kept.path == f"{root}/a"
    ingest(table, f"{base}/plain", chunk_rows=40, shuffle=False)
    shuffle_store(f"{base}/plain", tmp_path / "local/plain", seed=4)
    shuffle_store(f"{base}/plain", f"{base}/plain", seed=4, overwrite=True)
    objects.faults.slow_every, objects.faults.break_every, objects.faults.pause_s = 7, 17, 0.05
    for name in ("a", "b", "plain"):
        assert_same_stores(f"{base}/{name}", str(tmp_path / "local" / name))
    if place == "s3":
        assert min(objects.faults.counts[fault] for fault in ("failed", "slowed", "broken")) > 2
    assert describe_store(f"{base}/a").stored_bytes == describe_store(tmp_path / "local/a").stored_bytes
    assert {key.partition("/")[0] for key in names(base)} == {"a", "b", "plain"}


@pytest.mark.repeated
def test_sparse_rows_are_read_by_range(objects: ObjectServer, tmp_path: Path) -> None:
    X = scipy.sparse.random_array((103, 40), density=0.2, rng=np.random.default_rng(0), dtype=np.float32).tocsr()
    y = np.arange(103) % 2
    with StoreWriter(
        tmp_path / "made.zarr", n_features=40, sparse=True, chunk_rows=10, task="classification", classes=("a", "b")
    ) as writer:
        writer.append(X, y)
    url = objects.url("sparse")
    upload(tmp_path / "made.zarr", url, kind=FORMAT, overwrite=False)
    objects.faults.fail_every = 5
    rows = StoreRows(open_store(url))
    found = rows.read(17, 61)
    np.testing.assert_array_equal(found.X.toarray(), X[17:61].toarray())
    np.testing.assert_array_equal(found.y, y[17:61])


def test_rows_far_apart_are_read_by_range(objects: ObjectServer, X: HostArray) -> None:
    url = objects.url("scattered")
    write(url, X)
    rows = StoreRows(open_store(url))
    objects.faults.fail_every, objects.faults.break_every = 5, 7
    positions = np.array([102, 3, 50, 49, 3])
    np.testing.assert_array_equal(take(rows, positions).X, X[positions])
    objects.faults.clear()
    assert gives_ranges(open_store(url).array("X"))
    _delete(url, "X/c/12/0")
    with pytest.raises(StoreError, match="chunk c/12/0 is missing"):
        take(rows, positions)


@pytest.mark.long
def test_a_missing_and_a_changed_chunk_are_named(objects: ObjectServer, X: HostArray) -> None:
    url = objects.url("damaged")
    write(url, X)
    open_zarr(url, "r+")["X"][8:12] = 1.0  # type: ignore[index]
    assert [finding.key for finding in check_store(url).findings] == ["X/c/2/0"]
    _delete(url, "X/c/5/0")
    with pytest.raises(StoreError, match="chunk 5 of array 'X' is missing"):
        open_store(url)
    assert "X/c/5/0" in [finding.key for finding in check_store(url).findings]


def _put(url: str, key: str, value: bytes) -> None:
    sync(RemoteStore.at(url, read_only=False).set(key, default_buffer_prototype().buffer.from_bytes(value)))


def _delete(url: str, key: str) -> None:
    sync(RemoteStore.at(url, read_only=False).delete(key))


def test_what_was_begun_is_refused_and_replaced_when_its_writer_is_gone(objects: ObjectServer, X: HostArray) -> None:
    url = objects.url("begun")
    write(url, X)
    open_zarr(url, "r+").update_attributes({"complete": False})
    for writer, by in ((None, ""), ({"host": "elsewhere", "pid": 1, "begun": 0.0}, "process 1 on elsewhere")):
        if writer is not None:
            _put(url, "writer.json", json.dumps(writer).encode())
        with pytest.raises(StoreError, match="half-written"):
            open_store(url)
        with pytest.raises(StoreError, match=f"is a half-written daskkern-store.*{by}.*--overwrite"):
            write(url, X)
    _put(url, "writer.json", json.dumps({"host": socket.gethostname(), "pid": 2**22 + 1}).encode())
    write(url, X[:9])
    assert open_store(url).info.n_rows == 9
    assert "writer.json" not in names(url)


@pytest.mark.long
def test_an_error_removes_what_was_written_and_keeps_what_was_there(objects: ObjectServer, X: HostArray) -> None:
    url = objects.url("fails/here")
    bad = X.copy()
    bad[50] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        write(url, bad)
    assert names(objects.url("fails")) == []
    write(url, X)
    with pytest.raises(StoreError, match="exists; choose another name, or replace it"):
        write(url, X)
    with pytest.raises(ValueError, match="NaN"):
        write(url, bad, overwrite=True)
    assert check_store(url).is_whole
    assert {name.partition("/")[0] for name in names(objects.url("fails"))} == {"here"}


@pytest.mark.repeated
def test_replacing_that_stops_anywhere_leaves_old_or_new_or_what_is_refused(
    objects: ObjectServer, X: HostArray, tmp_path: Path
) -> None:
    url = objects.url("stops/here")
    write(tmp_path / "old", X[:6])
    write(tmp_path / "new", X[:10])
    upload(tmp_path / "old", url, kind=FORMAT, overwrite=True)
    objects.faults.counts.clear()
    upload(tmp_path / "new", url, kind=FORMAT, overwrite=True)
    total = objects.faults.counts["requests"]
    seen: dict[str, int] = {}
    for last in range(0, total + 1, 8):
        upload(tmp_path / "old", url, kind=FORMAT, overwrite=True)
        objects.faults.counts.clear()
        objects.faults.deny_after = last
        with suppress(StoreError):  # that access was denied
            upload(tmp_path / "new", url, kind=FORMAT, overwrite=True)
        objects.faults.clear()
        found = _which(url, {"old": tmp_path / "old", "new": tmp_path / "new"})
        seen[found] = seen.get(found, 0) + 1
    assert seen.keys() == {"old", "new", "refused"}
    assert seen["refused"] < total / 8 / 2


def _which(url: str, stores: dict[str, Path]) -> str:
    try:
        store = open_store(url)
    except StoreError:
        return "refused"
    name = {6: "old", 10: "new"}[store.info.n_rows]
    assert check_store(url).is_whole
    assert_same(store, open_store(stores[name]))
    return name


def test_two_writers_of_one_place_are_noticed(objects: ObjectServer, X: HostArray) -> None:
    url = objects.url("two")

    def both() -> None:
        with StoreWriter(url, n_features=5) as writer:
            writer.append(X)
            _put(url, "writer.json", b'{"host": "elsewhere", "pid": 1}')

    with pytest.raises(StoreError, match="another process writes to"):
        both()


def test_models_are_saved_and_loaded(objects: ObjectServer, rng: np.random.Generator) -> None:
    model = _model(rng)
    objects.faults.fail_every = 13
    for url in (objects.url("model"), "memory://model"):
        save_model(model, url)
        save_model(model, url)  # replaces it
        loaded = load_model(url)
        np.testing.assert_array_equal(loaded.coef, model.coef)
        np.testing.assert_array_equal(loaded.points, model.points)
    with pytest.raises(StoreError, match="not a daskkern-store"):
        open_store(objects.url("model"))


def _model(rng: np.random.Generator) -> KernelModel:
    return KernelModel(
        kernel=Gaussian(2.0),
        points=rng.normal(size=(30, 4)).astype(np.float32),
        coef=rng.normal(size=(30, 1)).astype(np.float32),
        loss="squared",
        task="regression",
        classes=None,
    )


def test_the_way_there_is_told_in_one_sentence(
    objects: ObjectServer, X: HostArray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = objects.url("told")
    write(url, X)

    def says(words: str, place: str = url) -> None:
        with pytest.raises(StoreError, match=words) as caught:
            open_store(place)
        assert str(caught.value).count("\n") == 0

    says("the bucket of s3://no-such-bucket/x does not exist", "s3://no-such-bucket/x")
    says("there is no such|holds no Zarr v3 group", objects.url("nothing-there"))
    says("is no URL|cannot be opened", "s3://")
    says("Protocol not known: nonsense", "nonsense://x/y")
    with pytest.raises(StoreError, match="the bucket of s3://no-such-bucket/x does not exist"):
        write("s3://no-such-bucket/x", X)
    with pytest.raises(StoreError, match="is a whole bucket"):
        write(f"s3://{objects.bucket}", X)
    with pytest.raises(StoreError, match="web addresses are read-only"):
        write("https://example.org/x", X)
    objects.faults.deny_after = 0
    says(r"access to .* was denied \(403 Forbidden, AccessDenied\); check the credentials")
    with pytest.raises(StoreError, match="was denied"):
        write(objects.url("other"), X)
    objects.faults.clear()
    monkeypatch.setenv(RETRIES, "2")
    objects.faults.fail_every = 1
    says(r"failed \(500 Internal Server Error\) after 3 tries; try again later")
    objects.faults.clear()
    monkeypatch.setenv(TIMEOUT, "1")
    objects.faults.slow_every, objects.faults.pause_s = 1, 1.5
    monkeypatch.setenv(RETRIES, "0")
    says("did not answer in time.*DASKKERN_REMOTE_TIMEOUT")
    objects.faults.clear()
    monkeypatch.setenv(RETRIES, "lots")
    with pytest.raises(ValueError, match="DASKKERN_REMOTE_RETRIES='lots'"):
        open_store(url)
    monkeypatch.setenv(RETRIES, "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    says("is not reachable: http://127.0.0.1:9 did not answer after 2 tries; check the network and AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    says("no credentials for .* set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    says(r"needs the package obstore, which is not installed; install daskkern\[remote\]")


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server of the test's folder."""
    handler = functools.partial(_Files, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_stores_and_models_are_read_from_web_servers(
    web: str, make_store: Make, X: HostArray, rng: np.random.Generator, tmp_path: Path
) -> None:
    local = make_store(X, np.arange(103.0), task="regression", chunk_rows=25)
    url = f"{web}/made.zarr"
    assert_same(open_store(url), local)
    assert check_store(url).is_whole
    np.testing.assert_array_equal(take(StoreRows(open_store(url)), np.array([99, 5])).X, X[[99, 5]])  # without ranges
    assert describe_store(url).stored_bytes == describe_store(tmp_path / "made.zarr").stored_bytes
    assert_same(shuffle_store(url, tmp_path / "there", seed=1), shuffle_store(local.group, tmp_path / "here", seed=1))
    save_model(_model(rng), tmp_path / "model")
    assert load_model(f"{web}/model").coef.shape == (30, 1)
    (tmp_path / "made.zarr/X/c/3/0").unlink()
    with pytest.raises(StoreError, match="chunk 3 of array 'X' is missing"):
        open_store(url)
    shutil.rmtree(tmp_path / "model/coef/c")
    with pytest.raises(StoreError, match="chunks of 'coef' are missing"):
        load_model(f"{web}/model")
    with pytest.raises(StoreError, match="holds no Zarr v3 group"):
        open_store(f"{web}/nothing")


def test_groups_that_the_user_opened_with_fsspec_are_read(make_store: Make, X: HostArray, tmp_path: Path) -> None:
    local = make_store(X)
    group = zarr.open_group(zarr.storage.FsspecStore.from_url(f"file://{tmp_path}/made.zarr"), mode="r")
    assert_same(open_store(group), local)
    assert_same(open_store(f"file://{tmp_path}/made.zarr"), local)


@pytest.mark.parametrize(
    ("place", "shown", "name"),
    [
        ("http://user:pw@host:80/data/a.zarr?sig=SECRET", "http://host:80/data/a.zarr", "a.zarr"),
        ("https://host/a.zarr/?sig=SE/CRET#SECRET", "https://host/a.zarr/", "a.zarr"),
        ("zip://a.zarr::https://me:SECRET@host/x.zip?SECRET", "zip://a.zarr::https://host/x.zip", "x.zip"),
        ("s3://bucket/a@b.zarr", "s3://bucket/a@b.zarr", "a@b.zarr"),
        ("folder/a?b#c.zarr/", "folder/a?b#c.zarr/", "a?b#c.zarr"),
    ],
)
def test_what_may_be_secret_in_a_url_is_not_shown(place: str, shown: str, name: str) -> None:
    assert public(place) == shown
    assert name_of_place(place) == name
    assert made_now("ingest", [place])["from"] == [shown]
    if "://" in place:
        source = StoreSource(place, SourceInfo(1, 1, None, None, Scaling("none", (), ()), None, 1, True))
        assert source.origin == shown
        assert source.description()["name"] == name


def test_a_folder_has_a_name_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_of_place(".") == tmp_path.name
