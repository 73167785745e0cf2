"""A model or a checkpoint that meets a full disk: one sentence with its place and its bytes."""

import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from daskkern import KernelDensity, KernelRegressor
from daskkern.cli.main import main
from daskkern.data.ingest import ingest
from daskkern.errors import StoreError
from daskkern.events import CheckpointFailed, Event

_X = np.random.default_rng(0).standard_normal((600, 5))


@contextmanager
def _limited(n_bytes: int) -> Iterator[None]:
    """Let this process write files of at most `n_bytes`, as on a disk that is full."""
    before, writes = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python keeps the first bytes of what it compiles, without an error
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = writes


@pytest.mark.parametrize("estimator", [KernelRegressor("gaussian:1", solver="direct", device="cpu"), KernelDensity()])
def test_a_model_names_its_place_and_its_bytes(estimator: KernelRegressor | KernelDensity, tmp_path: Path) -> None:
    model = estimator.fit(_X, _X[:, 0])
    model.save(tmp_path / "older.zarr")
    with (
        _limited(2000),
        pytest.raises(StoreError, match=r"older\.zarr cannot be written: file too large, for \d[\d.]* kB \(.*B are f"),
    ):
        model.save(tmp_path / "older.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["older.zarr"]  # complete, and no partial folder is left
    model.save(tmp_path / "older.zarr")


def test_a_checkpoint_names_its_bytes(tmp_path: Path) -> None:
    events: list[Event] = []
    place = tmp_path / "fit.checkpoint"
    estimator = KernelRegressor(
        "gaussian:1", max_epochs=2, device="cpu", checkpoint=place, calibrate=False, callbacks=[events.append]
    )
    with _limited(2000), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the fit has not converged
        estimator.fit(_X, _X[:, 0])
    (said,) = [event.reason for event in events if isinstance(event, CheckpointFailed)]
    assert said.startswith(f"the checkpoint {place} is not written: File too large, for ")
    assert said.endswith("kB; an earlier commit in it is kept; the fit goes on without it")


def test_the_command_says_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "rows.npz", X=_X, y=_X[:, 0])
    ingest(tmp_path / "rows.npz", tmp_path / "rows.zarr")
    out = str(tmp_path / "model.zarr")
    with _limited(9000), pytest.raises(SystemExit):
        main(
            [
                "fit",
                str(tmp_path / "rows.zarr"),
                "--out",
                out,
                "--kernel",
                "gaussian:1",
                "--solver",
                "direct",
                "--dtype",
                "float32",
            ]
        )
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("daskkern: error: the fit has ended, but its model could not be written to")
    assert f"written to {out}: file too large, for 1" in err
    assert err.count("model.zarr") == 2  # and the checkpoint
