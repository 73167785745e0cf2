"""Writers to ``file://`` URLs leave no empty folders: whatever they remove, they remove with its folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskkern.data.ingest import ingest
from daskkern.data.remote.group import remove_remote
from daskkern.data.shuffle.parallel import shuffle_store_on
from daskkern.data.storage.check import check_store
from daskkern.data.storage.store import open_store
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import StoreError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    number = np.arange(600)
    np.savez(tmp_path / "d.npz", X=number[:, None].astype(np.float32), y=number % 3)
    return tmp_path / "d.npz"


def write(url: str, *, error: BaseException | None = None, **settings: Any) -> None:
    with StoreWriter(url, n_features=3, chunk_rows=2, **settings) as writer:
        writer.append(np.ones((7, 3), np.float32))
        if error is not None:
            raise error


def empty_folders(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())]


@pytest.mark.parametrize("error", [OSError("no more"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_what_failed_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        write(f"file://{tmp_path}/s", error=error)
    assert list(tmp_path.iterdir()) == []


def test_what_is_replaced_leaves_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/s"
    write(url)
    with pytest.raises(OSError, match="no more"):
        write(url, error=OSError("no more"), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    write(url, overwrite=True, has_weight=False)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert empty_folders(tmp_path) == []
    assert check_store(url).is_whole
    remove_remote(url)
    assert list(tmp_path.iterdir()) == []


def test_temporary_stores_and_pieces_leave_nothing(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    places = {"out": f"file://{folder}/s", "out_test": f"file://{folder}/t"}
    settings = {"split": 0.2, "shuffle": True, "chunk_rows": 50}
    for overwrite in (False, True):
        ingest(source, **places, **settings, overwrite=overwrite)
        assert sorted(path.name for path in folder.iterdir()) == ["s", "t"]
        assert empty_folders(folder) == []
    shuffle_store_on(None, places["out"], f"file://{folder}/other", seed=3)
    assert sorted(path.name for path in (folder / "other").iterdir()) == ["X", "chunk_checksums", "y", "zarr.json"]


def test_folders_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "s" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(StoreError, match="are not a daskkern-store"):
        write(f"file://{tmp_path}/s")
    (tmp_path / "s" / "notes.txt").unlink()
    write(f"file://{tmp_path}/s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "s"]
    assert open_store(f"file://{tmp_path}/s").info.n_rows == 7
