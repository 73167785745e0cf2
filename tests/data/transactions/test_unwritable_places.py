"""A place that cannot be written to is named at once, and not as that of something else."""

import errno
import os
from pathlib import Path

import pytest

from daskkern.data.transactions.atomic import atomic_group, check_destination, make_parent
from daskkern.data.transactions.work_folder import work_folder
from daskkern.errors import StoreError
from daskkern.training.checkpoints.fingerprints import check_model_place


def test_a_file_above_the_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "folder" / "m.zarr"
    with pytest.raises(StoreError, match=r"m\.zarr cannot be written: .*file is not a folder; choose another place"):
        check_model_place(str(place), f"{place}.checkpoint", overwrite=False)
    with pytest.raises(StoreError, match="choose another place"):
        make_parent(place)


def test_a_read_only_folder_is_named_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StoreError, match="is read-only for this user; choose another place"):
        check_destination(tmp_path / "new" / "d.zarr", kind="daskkern-store", overwrite=False)


def test_a_read_only_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with (
        pytest.raises(StoreError, match=r"d\.zarr cannot be written: read-only file system; choose another place"),
        atomic_group(tmp_path / "new" / "d.zarr", kind="daskkern-store"),
    ):
        pass
    with pytest.raises(StoreError, match="read-only file system"), work_folder(tmp_path / "d.zarr"):
        pass
