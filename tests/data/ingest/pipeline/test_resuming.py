"""Ingestions that are killed: nothing half-written is taken for whole, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

import daskkern
from daskkern.arrays import HostArray
from daskkern.data.ingest import ingest
from daskkern.data.storage.store import open_store
from daskkern.data.transactions.atomic import OWNER
from daskkern.data.transactions.resumable import PROGRESS, resumable_group
from daskkern.errors import StoreError
from tests.support.processes import started

Left = Callable[[], list[str]]

# Slow enough to be killed in the middle, and keeping its progress after every block.
_CHILD = """
import sys, time
from daskkern.data.ingest import ingest
from daskkern.data.ingest.pipeline import resume
from daskkern.data.ingest.readers import svm_tables, tables
resume.SECONDS = 0.0
tables.BLOCK_BYTES = svm_tables.BLOCK_BYTES = 20_000
def tell(done, total):
    print(done, flush=True)
    time.sleep(0.01)
ingest(sys.argv[1], sys.argv[2], task="classification", chunk_rows=64, shuffle=False, scale="maxabs", progress=tell)
"""


@pytest.fixture(params=["csv", "svm"])
def source(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> Path:
    X, y = rng.normal(size=(6000, 8)).astype(np.float32), rng.integers(0, 3, 6000)
    path = tmp_path / f"d.{request.param}"
    if request.param == "svm":
        dump_svmlight_file(scipy.sparse.csr_array(np.where(X > 0, X, 0)), y, str(path))
    else:
        rows = "\n".join(",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist())
        path.write_text("a,b,c,d,e,f,g,h,t\n" + rows + "\n")
    return path


def _start(source: Path, out: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    program = _CHILD.replace("task=", 'target="t", task=') if source.suffix == ".csv" else _CHILD
    command = [sys.executable, "-W", "ignore", "-c", program, str(source), str(out)]
    return started(command, env=environment, stdout=subprocess.PIPE, text=True)


def _run_and_kill(source: Path, out: Path, kill_after: int, harder: float = 0.0) -> list[int]:
    """Return the rows that were told as done by a process that is killed at so many tellings."""
    reported: list[int] = []
    with _start(source, out) as process:
        for line in process.stdout or ():
            reported.append(int(line))
            if len(reported) == kill_after:
                time.sleep(harder)
                process.send_signal(signal.SIGKILL)
                break
        assert process.wait(60) != 0
    return reported


def _run_here(source: Path, out: Path) -> list[int]:
    """Do what the child does, to the end and in this process; return the rows that were told as done."""
    reported: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskkern.data.ingest.pipeline.resume.SECONDS", 0.0)
        patch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 20_000)
        patch.setattr("daskkern.data.ingest.readers.svm_tables.BLOCK_BYTES", 20_000)
        ingest(
            str(source), str(out), target="t" if source.suffix == ".csv" else None, task="classification",
            chunk_rows=64, shuffle=False, scale="maxabs", progress=lambda done, total: reported.append(done),
        )  # fmt: skip
    return reported


def _bytes(store: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}
    metadata = json.loads(files["zarr.json"])
    for name in ("source_key", "provenance", "records"):  # names and times, and a digest of them
        metadata["attributes"].pop(name, None)
    files = {name: content for name, content in files.items() if name != "chunk_checksums/zarr.json"}
    return {**files, "zarr.json": json.dumps(metadata, sort_keys=True).encode()}


@pytest.mark.repeated
@pytest.mark.one_in(2)
def test_killed_at_several_moments_the_result_is_that_of_one_run(source: Path, tmp_path: Path, left: Left) -> None:
    before = left()
    whole = _run_here(source, tmp_path / "whole")
    total, n_reported = whole[-1], len(whole)
    assert n_reported > 8
    reached = 0
    for share, harder in ((0.3, 0.0), (0.25, 0.006)):
        reported = _run_and_kill(source, tmp_path / "s", kill_after=max(2, int(share * n_reported)), harder=harder)
        assert reported[0] >= reached  # it went on where the record says, which is a block behind at most
        reached = reported[0]
        with pytest.raises(StoreError, match="there is no store at"):
            open_store(tmp_path / "s")
        assert len([name for name in left() if name.startswith(".")]) == 1
    reported = _run_here(source, tmp_path / "s")
    assert reported[0] > whole[0]
    assert reported[-1] == total
    open_store(tmp_path / "s").verify()
    assert _bytes(tmp_path / "s") == _bytes(tmp_path / "whole")
    assert left() == sorted([*before, "s", "whole"])


@pytest.mark.repeated
def test_other_sources_or_settings_begin_anew(tmp_path: Path, X: HostArray, left: Left) -> None:
    source = tmp_path / "d.npz"
    np.savez(source, X=np.ones((6000, 8), np.float32), y=np.arange(6000) % 3)
    _run_and_kill(source, tmp_path / "s", kill_after=5)
    np.savez(source, X=X, y=np.arange(103) % 3)
    ingest(source, tmp_path / "s")
    np.testing.assert_array_equal(open_store(tmp_path / "s").array("X")[:], X)
    assert left() == ["d.npz", "s"]


def test_rows_that_were_staged_before_the_kill_are_not_read_again(
    tmp_path: Path, X: HostArray, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(103) % 3)
    ingest(tmp_path / "d.npz", tmp_path / "s", shuffle=False)
    (tmp_path / "s").rename(tmp_path / ".s.staged")  # what a process leaves that is killed while it shuffles
    with monkeypatch.context() as patch:
        patch.setattr("daskkern.data.ingest.pipeline.stream.IngestStream.run", None)
        ingest(tmp_path / "d.npz", tmp_path / "s", shuffle=True)
    assert sorted(open_store(tmp_path / "s").array("X")[:, 0].tolist()) == sorted(X[:, 0].tolist())  # type: ignore[index,union-attr]
    (tmp_path / "s").rename(tmp_path / ".s.staged")
    np.savez(tmp_path / "d.npz", X=X[:50], y=np.arange(50) % 3)
    assert ingest(tmp_path / "d.npz", tmp_path / "s", shuffle=True).n_rows == 50
    assert left() == ["d.npz", "s"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskkern.data.ingest.pipeline.resume.SECONDS", 0.0)
    monkeypatch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 100)


@pytest.mark.usefixtures("quick")
def test_an_interrupt_keeps_the_progress_and_an_error_does_not(tmp_path: Path, X: HostArray, left: Left) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(103) % 3)
    seen: list[int] = []

    def stop_with(error: BaseException) -> Callable[[int, int | None], None]:
        def progress(done: int, total: int | None) -> None:
            del total
            seen.append(done)
            if done > 50:
                raise error

        return progress

    with pytest.raises(KeyboardInterrupt):
        ingest(tmp_path / "d.npz", tmp_path / "s", chunk_rows=10, progress=stop_with(KeyboardInterrupt()))
    assert len(left()) == 2
    before = seen[-1]
    seen.clear()
    with pytest.raises(OSError, match="no room"):
        ingest(tmp_path / "d.npz", tmp_path / "s", chunk_rows=10, progress=stop_with(OSError("no room")))
    assert before - 10 < seen[0] <= before
    assert left() == ["d.npz"]


def _leave_behind(target: Path, key: str, **owner: object) -> Path:
    """Leave what a killed process would; `owner` says which."""
    folders: list[Path] = []

    def interrupted() -> None:
        with resumable_group(target, kind="k", key=key) as partial:
            folders.append(partial.folder)
            partial.progress.write_text("here")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (folder,) = folders
    found = json.loads((folder / OWNER).read_text())
    (folder / OWNER).write_text(json.dumps({**found, **owner}))
    return folder


def test_work_of_the_living_and_of_other_machines_is_left_alone(tmp_path: Path) -> None:
    me = psutil.Process()
    with resumable_group(tmp_path / "t", kind="k", key="a") as partial:
        here = json.loads((partial.folder / OWNER).read_text())["where"]
    alive = _leave_behind(tmp_path / "s", "a", where=here, pid=me.pid, started=me.create_time())
    away = _leave_behind(tmp_path / "s", "a", where="elsewhere", pid=me.pid)
    reused = _leave_behind(tmp_path / "s", "a", where=here, pid=me.pid, started=1.0)  # the number of a dead process
    with resumable_group(tmp_path / "s", kind="k", key="a") as partial:
        assert partial.found
        assert partial.progress.read_text() == "here"
    assert (alive.exists(), away.exists(), reused.exists()) == (True, True, False)
    for name in (OWNER, PROGRESS):
        os.utime(away / name, (0, 0))
    with resumable_group(tmp_path / "s", kind="k", key="b", overwrite=True) as partial:
        assert not partial.found
    assert (alive.exists(), away.exists()) == (True, False)
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["zarr.json"]
