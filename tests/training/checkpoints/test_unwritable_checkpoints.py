"""A checkpoint that cannot be written says why in plain words."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from daskkern.errors import StoreError
from daskkern.training.checkpoints import checkpoint


def test_the_reason_is_that_of_the_system_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Any, mode: str) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))

    monkeypatch.setattr(checkpoint, "open_zarr", full)
    monkeypatch.setattr(checkpoint, "open_checkpoint", lambda place: None)
    place = str(tmp_path / "place")
    with pytest.raises(StoreError) as told:
        checkpoint.begin_checkpoint(place, "run")
    assert (
        str(told.value) == f"the checkpoint {place} cannot be written: read-only file system; "
        "choose another place for the model, or for the checkpoint alone with --checkpoint"
    )
