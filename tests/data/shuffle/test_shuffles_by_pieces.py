"""Workers shuffle by way of pieces: the bytes of one process, in bounded memory, whatever fails meanwhile."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from distributed import Client

import daskkern
from daskkern.cli.main import main
from daskkern.data.shuffle import piece_plan
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.shuffle.pieces import Pieces
from daskkern.data.shuffle.shuffle import shuffle_store
from daskkern.data.storage.check import check_store
from daskkern.data.storage.chunked import ChunkedArrays
from daskkern.data.storage.store import Store, open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.data.transactions import part_record
from daskkern.data.transactions.output_files import output_folder
from daskkern.errors import CONTINUES, DaskkernError, MemoryBudgetError, SpecError, StoreError
from tests.support.cluster import local_cluster
from tests.support.object_server import ObjectServer, reaching
from tests.support.processes import started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ROWS, CHUNK = 640, 40


def dense(dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (ROWS, 9)).astype(dtype)


def sparse(n_features: int = 50, density: float = 0.2) -> scipy.sparse.csr_array:
    rng = np.random.default_rng(0)
    return scipy.sparse.random_array((ROWS, n_features), density=density, format="csr", dtype=np.float32, rng=rng)


def uneven() -> scipy.sparse.csr_array:
    """Rows of which some have hundreds of entries, side by side, and most have none."""
    X = np.zeros((ROWS, 300), np.float32)
    X[200:240] = np.random.default_rng(0).normal(size=(40, 300))
    X[600:, 7] = 1
    return scipy.sparse.csr_array(X)


STORES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "classes and weights": lambda: (dense(), {"task": "classification", "has_weight": True, "scale": "standard"}),
    "two targets": lambda: (dense("u1"), {"task": "regression", "n_targets": 2}),
    "no targets": lambda: (dense("f2"), {}),
    "sparse": lambda: (sparse(), {"task": "regression", "has_weight": True, "scale": "maxabs"}),
    "sparse, no targets": lambda: (sparse(), {}),
    "sparse, uneven": lambda: (uneven(), {"task": "classification"}),
    "sparse, no entries": lambda: (sparse(density=0.0), {"has_weight": True}),
    "sparse, wide": lambda: (sparse(40_000, 0.001), {"task": "regression"}),
}


def make(path: str | Path, name: str = "classes and weights") -> Store:
    X, settings = STORES[name]()
    task, number = settings.get("task"), np.arange(ROWS)
    y: Any = {None: None, "classification": number % 3, "regression": number * 0.1}[task]
    if settings.get("n_targets") == 2:
        y = np.stack([y, -y], axis=1)
    more = {"classes": ("a", "b", "c")} if task == "classification" else {}
    weight = number * 0.5 if settings.get("has_weight") else None
    is_sparse = scipy.sparse.issparse(X)
    with StoreWriter(
        path, n_features=X.shape[1], dtype=X.dtype, chunk_rows=CHUNK, sparse=is_sparse, **settings, **more
    ) as writer:
        for start in range(0, ROWS, 64):
            part = slice(start, start + 64)
            writer.append(X[part], None if y is None else y[part], None if weight is None else weight[part])
    return open_store(path)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def objects_at(url: str) -> dict[str, bytes | None]:
    folder = output_folder(url)
    return {name: folder.read(name) for name in folder.names()}


def assert_same_bytes(url: str, folder: Path) -> None:
    ours, alone = objects_at(url), files(folder)
    assert sorted(ours) == sorted(alone)
    assert [name for name, content in alone.items() if ours[name] != content] == []
    assert check_store(url).findings == ()


@pytest.fixture
def workers2(client2: Client, objects: ObjectServer) -> Iterator[Client]:
    with reaching(client2, objects) as client:
        yield client


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_plan, "LEAST_BYTES", 5000)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("memory", [60_000, 1 << 28])
@pytest.mark.parametrize("name", STORES)
def test_workers_write_the_bytes_of_one_process(
    name: str, memory: int, workers2: Client, objects: ObjectServer, tmp_path: Path
) -> None:
    url, seen = objects.url(f"shuffled/{name.replace(', ', '-').replace(' ', '-')}/{memory}"), []
    make(tmp_path / "s", name)
    shuffle_store(tmp_path / "s", tmp_path / "alone", seed=5)
    objects.faults.fail_every = 41
    together = shuffle_store_on(
        workers2, tmp_path / "s", url, seed=5, memory=memory, progress=lambda *moved: seen.append(moved)
    )
    objects.faults.clear()
    assert together.path == url
    assert_same_bytes(url, tmp_path / "alone")
    assert seen == sorted(seen)
    assert seen[-1] == (2 * ROWS, 2 * ROWS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["sparse", "sparse, uneven", "sparse, no targets"])
def test_sparse_rows_are_shuffled_to_a_folder(name: str, client2: Client, tmp_path: Path) -> None:
    make(tmp_path / "s", name)
    shuffle_store(tmp_path / "s", tmp_path / "alone")
    shuffle_store_on(client2, tmp_path / "s", tmp_path / "together", memory=60_000)
    assert files(tmp_path / "together") == files(tmp_path / "alone")
    shuffle_store_on(client2, tmp_path / "s", tmp_path / "s", overwrite=True)
    assert files(tmp_path / "s") == files(tmp_path / "alone")
    assert sorted(os.listdir(tmp_path)) == ["alone", "s", "together"]


def test_a_failed_shuffle_to_a_folder_leaves_nothing(client2: Client, tmp_path: Path) -> None:
    make(tmp_path / "s", "sparse")
    with pytest.raises(KeyboardInterrupt):
        shuffle_store_on(client2, tmp_path / "s", tmp_path / "t", progress=Stop(ROWS, KeyboardInterrupt()))
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.repeated
def test_the_number_of_workers_does_not_count(client3: Client, objects: ObjectServer, tmp_path: Path) -> None:
    make(objects.url("source"), "sparse")
    shuffle_store(objects.url("source"), tmp_path / "alone")
    with local_cluster(1, threads_per_worker=2) as client1:
        for number, client in enumerate((client1, client3)):
            with reaching(client, objects):
                url = objects.url(f"of-some-workers/{number}")
                objects.faults.break_every, objects.faults.slow_every, objects.faults.pause_s = 23, 29, 0.01
                shuffle_store_on(client, objects.url("source"), url, memory=50_000)
                objects.faults.clear()
                assert_same_bytes(url, tmp_path / "alone")


def test_a_store_is_shuffled_onto_itself(workers2: Client, objects: ObjectServer, tmp_path: Path) -> None:
    url = objects.url("itself/s")
    make(url)
    shuffle_store(url, tmp_path / "alone", seed=2)
    with pytest.raises(StoreError, match="exists; choose another name"):
        shuffle_store_on(workers2, url, url)
    shuffle_store_on(workers2, url, url, seed=2, overwrite=True)
    assert_same_bytes(url, tmp_path / "alone")
    assert all(name.startswith("s/") for name in output_folder(objects.url("itself")).names())


def die_in(owner: str, mark: Path) -> None:
    """On a worker: the process that calls a method for the second time is killed, and leaves a file that says so."""
    kind, name = {"pass one": (Pieces, "write"), "pass two": (ChunkedArrays, "commit")}[owner]
    plain, called = getattr(kind, name), 0

    def method(self: Any, *arguments: Any) -> None:
        nonlocal called
        plain(self, *arguments)
        called += 1
        if called == 2:
            mark.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, name, method)


@pytest.mark.repeated
@pytest.mark.parametrize("owner", ["pass one", "pass two"])
def test_a_killed_worker_loses_nothing(owner: str, objects: ObjectServer, tmp_path: Path) -> None:
    url = objects.url(f"killed/{owner[5:]}")
    make(tmp_path / "s")
    shuffle_store(tmp_path / "s", tmp_path / "alone")
    with local_cluster(2, env=objects.environment()) as client:
        client.run(die_in, owner, tmp_path / "killed", workers=[next(iter(client.scheduler_info()["workers"]))])
        shuffle_store_on(client, tmp_path / "s", url)
    assert (tmp_path / "killed").exists()
    assert_same_bytes(url, tmp_path / "alone")


class Stop:
    """Raises an error when so many rows were moved."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error = at, error
        self.seen: list[int] = []

    def __call__(self, done: int, total: int) -> None:
        self.seen.append(done)
        if done >= self.at:
            raise self.error


@pytest.mark.one_in(2, 1)
@pytest.mark.parametrize("at", [ROWS // 2, 3 * ROWS // 2])
def test_an_interrupted_shuffle_continues(
    at: int, workers2: Client, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_record, "SECONDS", 0.0)
    source, url = tmp_path / "s", objects.url(f"interrupted/{at}")
    make(source)
    shuffle_store(source, tmp_path / "alone")
    objects.faults.clear()
    shuffle_store_on(workers2, source, objects.url(f"whole/{at}"))
    at_once = objects.faults.counts["PUT"]
    objects.faults.clear()
    with pytest.raises(KeyboardInterrupt) as ended:
        shuffle_store_on(workers2, source, url, progress=Stop(at, KeyboardInterrupt()))
    assert ended.value.__notes__ == [CONTINUES]
    with pytest.raises(StoreError, match="half-written"):
        open_store(url)
    again = Stop(3 * ROWS, KeyboardInterrupt())
    shuffle_store_on(workers2, source, url, progress=again)
    assert objects.faults.counts["PUT"] <= at_once + 20  # of claims, records, and tasks that ran when it ended
    assert at < ROWS or next(done for done in again.seen if done > ROWS) > at
    assert_same_bytes(url, tmp_path / "alone")


@pytest.mark.repeated
def test_a_shuffle_that_was_interrupted_at_its_very_end_is_completed(
    workers2: Client, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_record, "SECONDS", 0.0)
    url, seen = objects.url("completed/s"), Stop(3 * ROWS, KeyboardInterrupt())
    make(tmp_path / "s")
    shuffle_store(tmp_path / "s", tmp_path / "alone")

    def interrupt(self: Pieces) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "remove", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shuffle_store_on(workers2, tmp_path / "s", url)
    shuffle_store_on(workers2, tmp_path / "s", url, progress=seen)
    assert seen.seen == []  # no row was moved again
    assert_same_bytes(url, tmp_path / "alone")


# Keeps its progress at once, and says how far it is.
_CHILD = """
import sys
from distributed import Client
from daskkern.data.shuffle import piece_plan
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.transactions import part_record
piece_plan.LEAST_BYTES, part_record.SECONDS = 5000, 0.0
with Client(sys.argv[1]) as client:
    shuffle_store_on(client, sys.argv[2], sys.argv[3], progress=lambda done, total: print(done, flush=True))
"""


@pytest.mark.repeated
def test_a_killed_command_continues(
    workers2: Client, cluster2: str, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, url = make(tmp_path / "s").path, objects.url("command/s")
    shuffle_store(source, tmp_path / "alone")
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, cluster2, source, url]
    with started(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            if int(line) > 3 * ROWS // 2:
                child.send_signal(signal.SIGKILL)
                break
        assert child.wait(60) == -signal.SIGKILL
    with pytest.raises(StoreError, match="half-written"):
        open_store(url)
    again = Stop(3 * ROWS, KeyboardInterrupt())
    shuffle_store_on(workers2, source, url, progress=again)
    assert next(done for done in again.seen if done > ROWS) > 3 * ROWS // 2
    assert_same_bytes(url, tmp_path / "alone")


def test_the_command_needs_no_disk(
    workers2: Client, cluster2: str, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(objects.url("command/from"), "sparse")
    shuffle_store(objects.url("command/from"), tmp_path / "alone", seed=3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    out = objects.url("command/to")
    with pytest.raises(SystemExit) as ended:
        main(["shuffle", objects.url("command/from"), "--out", out, "--seed", "3", "--scheduler", cluster2])
    assert ended.value.code == 0
    assert_same_bytes(out, tmp_path / "alone")


def peak_bytes(restart: bool) -> int:
    """Return the largest resident memory of this process, since the last restart of the measurement."""
    if restart:
        Path("/proc/self/clear_refs").write_text("5")
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(found.split()[1]) << 10


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("is_sparse", [True, False])
def test_the_memory_of_a_worker_stays_within_the_budget(
    is_sparse: bool, objects: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_plan, "LEAST_BYTES", 1 << 30)  # pieces and loads are as large as the memory allows
    budget, rows = 16 << 20, 5000  # 40 MB of rows
    with StoreWriter(tmp_path / "large", n_features=100, sparse=is_sparse, chunk_rows=1000) as writer:
        for seed in range(20):
            block = np.random.default_rng(seed).normal(size=(rows, 100)).astype(np.float32)
            block[: rows if is_sparse and seed % 5 else 0, 40:] = 0  # entries are dense in places
            writer.append(scipy.sparse.csr_array(block) if is_sparse else block)
    make(tmp_path / "s", "sparse" if is_sparse else "no targets")
    with local_cluster(1, env=objects.environment()) as client:
        shuffle_store_on(client, tmp_path / "s", objects.url(f"memory/first/{is_sparse}"))  # imports and connections
        (before,) = client.run(peak_bytes, restart=True).values()
        shuffle_store_on(client, tmp_path / "large", objects.url(f"memory/{is_sparse}"), memory=budget)
        (after,) = client.run(peak_bytes, restart=False).values()
    assert budget // 4 < after - before <= budget


def test_another_shuffle_replaces_an_interrupted_one(workers2: Client, objects: ObjectServer, tmp_path: Path) -> None:
    url = objects.url("replaced/s")
    make(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        shuffle_store_on(workers2, tmp_path / "s", url, progress=Stop(ROWS, KeyboardInterrupt()))
    shuffle_store_on(workers2, tmp_path / "s", url, seed=1)
    shuffle_store(tmp_path / "s", tmp_path / "alone", seed=1)
    assert_same_bytes(url, tmp_path / "alone")


def test_what_fails_leaves_nothing(workers2: Client, objects: ObjectServer, tmp_path: Path) -> None:
    make(tmp_path / "s")
    with pytest.raises(OSError, match="no more"):
        shuffle_store_on(workers2, tmp_path / "s", objects.url("failed/s"), progress=Stop(ROWS, OSError("no more")))
    chunk = tmp_path / "s/X/c/4/0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    with pytest.raises(StoreError, match="cannot be read"):
        shuffle_store_on(workers2, tmp_path / "s", objects.url("failed/s"))
    assert output_folder(objects.url("failed")).names() == []


@pytest.mark.parametrize(
    ("out", "memory", "kind", "words"),
    [
        ("s3://bucket/alone", 1 << 28, StoreError, "exists; choose another name"),
        ("s3://bucket", 1 << 28, StoreError, "is a whole bucket; name a place in it"),
        ("http://127.0.0.1:1/s", 1 << 28, StoreError, "web addresses are read-only"),
        ("memory://shuffled/here", 1 << 28, StoreError, "a worker finds no store at memory://shuffled/here"),
        ("s3://bucket/new", 5000, MemoryBudgetError, "a chunk of rows has .* give more memory"),
    ],
)
def test_bad_places_and_sizes_are_a_sentence(
    out: str,
    memory: int,
    kind: type[DaskkernError],
    words: str,
    workers2: Client,
    objects: ObjectServer,
    tmp_path: Path,
) -> None:
    make(tmp_path / "s")
    if out.endswith("alone"):
        make(out, "sparse")
    with pytest.raises(kind, match=words):
        shuffle_store_on(workers2, tmp_path / "s", out, memory=memory)


@pytest.mark.parametrize("out", ["s3://bucket/new", "folder"])
def test_a_negative_seed_is_refused_before_anything_is_written(
    out: str, workers2: Client, objects: ObjectServer, tmp_path: Path
) -> None:
    make(tmp_path / "s")
    place = out if out.startswith("s3") else tmp_path / out
    with pytest.raises(SpecError, match=r"got seed -1 for a shuffle; expected 0 or more"):
        shuffle_store_on(workers2, tmp_path / "s", place, seed=-1)


def test_a_removed_piece_is_a_sentence(workers2: Client, objects: ObjectServer, tmp_path: Path) -> None:
    make(tmp_path / "s")
    url = objects.url("removed/s")

    def remove(done: int, total: int) -> None:
        if done == ROWS:
            folder = output_folder(url)
            folder.delete(next(name for name in folder.names() if name.startswith("pieces/") and name.endswith("-3-0")))

    with pytest.raises(StoreError, match=r"pieces/\w+-3-0 of the shuffle is gone; does another process"):
        shuffle_store_on(workers2, tmp_path / "s", url, progress=remove)
    assert output_folder(objects.url("removed")).names() == []
