"""A store on a full disk is refused in one sentence, with its own place and what to do."""

import errno
from pathlib import Path

import pytest
import zarr

from daskkern.data.storage.whole_arrays import unwritten


@pytest.mark.parametrize("folder", ["s.zarr", ".s.zarr.partial-host-1-ab", "..s.zarr.staged.partial-host-1-ab"])
def test_the_place_is_that_of_the_store(folder: str, tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / folder, mode="w")
    full = str(unwritten(group, OSError(errno.ENOSPC, "No space left on device")))
    assert full == f"{tmp_path}/s.zarr cannot be written: no space left on device; make room, or choose another place"
    assert str(unwritten(group, OSError("gone"))) == f"{tmp_path}/s.zarr cannot be written: gone; choose another place"
