"""Commands that are killed (-9) at any of their writes: nothing half-written counts, and the same command completes.

The child kills itself at a write of a chosen number, counted from the first that the command makes, so that moments
around renames are met as surely as those within long writes.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zarr

import daskkern
from daskkern.cli.main import main
from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import open_store

pytestmark = pytest.mark.timeout(600)

_CHILD = """
import os, signal, sys
from daskkern.cli.main import main
from daskkern.data.ingest.pipeline import resume
from daskkern.data.ingest.readers import tables
resume.SECONDS = 0.0
tables.BLOCK_BYTES = 4000
folder, last, words = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
count = 0
def watch(event, arguments):
    global count
    if event == "open":
        writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    else:
        writes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
    if writes and str(arguments[0]).startswith(folder):
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
try:
    main(words)
finally:
    print("writes", count, flush=True)
"""

INGEST = ["ingest", "d.csv", "--target", "t", "--out", "s", "--chunk-rows", "50", "--task", "classification"]
PREDICT = ["predict", "m", "d", "--out", "p"]
COMMANDS = {
    "ingest": INGEST,
    "ingest, split and shuffled": [*INGEST, "--split", "0.3", "--out-test", "u", "--shuffle"],
    "ingest, overwriting": [*INGEST, "--overwrite"],
    "predict": PREDICT,
    "predict, overwriting": [*PREDICT, "--overwrite"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a store and a model of it."""
    folder = tmp_path_factory.mktemp("kills")
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(600, 4)), rng.integers(0, 3, 600)
    lines = [",".join([*map(repr, row.tolist()), str(label)]) for row, label in zip(X, t, strict=True)]
    (folder / "d.csv").write_text("a,b,c,d,t\n" + "\n".join(lines) + "\n")
    for words in (
        ["ingest", "d.csv", "--target", "t", "--out", "d", "--chunk-rows", "50", "--drop", "d"],
        ["fit", "d", "--out", "m", "--kernel", "gaussian:1", "--landmarks", "30", "--epochs", "1", "--workers", "0"],
    ):
        _here(folder, words)
    return folder


def _here(folder: Path, words: Sequence[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("daskkern.data.ingest.pipeline.resume.SECONDS", 0.0)
        patch.setattr("daskkern.data.ingest.readers.tables.BLOCK_BYTES", 4000)  # sums of the same blocks round alike
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert not ended.value.code


def _child(folder: Path, words: Sequence[str], last: int) -> int:
    """Run a command that is killed at write number `last`; return the writes it made, 0 when it was killed."""
    environment = {**os.environ, "PYTHONPATH": str(Path(daskkern.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(folder), str(last), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return int(done.stdout.rsplit(maxsplit=1)[-1]) if done.returncode == 0 else 0


def _copy(made: Path, folder: Path) -> Path:
    shutil.copytree(made, folder)
    return folder


def _outputs(words: Sequence[str]) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word in ("--out", "--out-test")]


def _content(path: Path) -> dict[str, object] | None:
    """Return what the group at `path` holds, None when nothing there counts as whole."""
    if path.name == "p":
        try:
            group = zarr.open_group(path, mode="r")
        except FileNotFoundError:
            return None
        assert group.attrs["complete"] is True
        return {name: array[:].tobytes() for name, array in group.arrays()}
    if not path.exists():
        return None
    store = open_store(path)
    assert check_store(path).is_whole
    return {"info": store.info, **{name: store.array(name)[:].tobytes() for name in store.array_names()}}


def _check_kills(words: list[str], moments: int, made: Path, tmp_path: Path) -> None:
    whole = _copy(made, tmp_path / "whole")
    overwriting = "--overwrite" in words
    if overwriting:
        _here(whole, [word for word in words if word != "--overwrite"])
    total = _child(whole, words, 0)
    expected = {name: _content(whole / name) for name in _outputs(words)}
    left = sorted(os.listdir(whole))
    assert not [name for name in left if name.startswith(".")]
    assert total > 20
    drawn = np.random.default_rng(len(words)).choice(np.arange(2, total - 3), moments - 2, replace=False)
    for last in (*drawn.tolist(), total - 2, total):  # around the last renames, too
        folder = _copy(made, tmp_path / f"killed-{last}")
        if overwriting:
            _here(folder, [word for word in words if word != "--overwrite"])
        assert _child(folder, words, last) == 0
        found = {name: _content(folder / name) for name in _outputs(words)}
        for name, content in found.items():
            assert content in (None, expected[name])
        if overwriting or None in found.values():
            _here(folder, words)
        assert {name: _content(folder / name) for name in _outputs(words)} == expected
        if overwriting or None in found.values():
            assert sorted(os.listdir(folder)) == left
        shutil.rmtree(folder)


@pytest.mark.repeated
@pytest.mark.parametrize("name", ["ingest, split and shuffled", "predict, overwriting"])
def test_killed_at_a_few_moments(name: str, made: Path, tmp_path: Path) -> None:
    _check_kills(COMMANDS[name], 3, made, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_twenty_moments(name: str, made: Path, tmp_path: Path) -> None:
    _check_kills(COMMANDS[name], 20, made, tmp_path)
