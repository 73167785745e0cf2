"""The command line on URLs: fits, predictions and checkpoints in a bucket are those on disk, through faults."""

import os
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import Client

import daskkern
from daskkern import KernelClassifier, Landmarks
from daskkern.cli.main import main
from daskkern.data.remote.stores import open_zarr
from daskkern.models import load_model
from tests.support.object_server import ObjectServer

pytestmark = pytest.mark.timeout(180)

FIT = ["--kernel", "gaussian:4", "--landmarks", "100", "--set", "batch_size=50"]


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0) + 2 * (X[:, 1] > 0))
    return tmp_path / "d.npz"


@pytest.mark.repeated
def test_everything_in_a_bucket_is_as_on_disk(
    objects: ObjectServer, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported = {}
    objects.faults.fail_every, objects.faults.slow_every, objects.faults.pause_s = 37, 13, 0.02
    for root in (str(tmp_path), objects.url("commands")):
        for words in (
            ("ingest", table, "--out", f"{root}/d", "--chunk-rows", 200),
            ("plan", f"{root}/d", *FIT, "--workers", 0),
            ("fit", f"{root}/d", "--out", f"{root}/m", *FIT, "--epochs", 2, "--workers", 0),
            ("predict", f"{root}/m", f"{root}/d", "--out", f"{root}/p"),
            ("check", f"{root}/d"),
            ("score", f"{root}/m", f"{root}/d", "--json"),
        ):
            code, out, err = run(capfd, *words)
            assert code == 0, err
        reported[root] = out
    assert len(set(reported.values())) == 1
    objects.faults.clear()
    ours, theirs = (zarr.open_group(tmp_path / "p", mode="r"), open_zarr(objects.url("commands/p")))
    for name in ("prediction", "scores"):
        np.testing.assert_array_equal(ours[name][:], theirs[name][:])
    assert theirs.attrs["complete"] is True
    with pytest.raises(FileNotFoundError):
        open_zarr(objects.url("commands/m.checkpoint"))  # removed when the fit ended


@pytest.mark.repeated
def test_a_fit_goes_on_from_a_checkpoint_in_a_bucket(
    objects: ObjectServer, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(capfd, "ingest", table, "--out", tmp_path / "d")[0] == 0
    fit = ["fit", tmp_path / "d", *FIT, "--workers", 0, "--checkpoint", objects.url("checkpoint")]
    objects.faults.fail_every = 11
    code, _, err = run(capfd, *fit, "--out", tmp_path / "m", "--epochs", 2)
    assert code == 0, err
    code, _, err = run(capfd, *fit, "--out", tmp_path / "m", "--epochs", 4)
    assert code == 1
    assert "a checkpoint of an earlier fit is at s3://" in err
    code, _, err = run(capfd, *fit, "--out", tmp_path / "m", "--epochs", 4, "--resume")
    assert code == 0, err
    assert "epoch   2/4" not in err
    assert run(capfd, *fit, "--out", tmp_path / "whole", "--epochs", 4, "--overwrite")[0] == 0
    np.testing.assert_array_equal(load_model(tmp_path / "m").coef, load_model(tmp_path / "whole").coef)


def test_a_checkpoint_that_cannot_be_written_is_told(
    objects: ObjectServer, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(capfd, "ingest", table, "--out", tmp_path / "d")[0] == 0
    fit = ["fit", tmp_path / "d", *FIT, "--out", tmp_path / "m", "--epochs", 2, "--workers", 0]
    code, _, err = run(capfd, *fit, "--checkpoint", "s3://no-such-bucket/c")
    assert code == 1
    assert err.splitlines()[-1].startswith("daskkern: error: the bucket of s3://no-such-bucket/c")
    objects.faults.deny_after = 0
    code, _, err = run(capfd, *fit, "--checkpoint", objects.url("denied"))
    assert code == 1
    assert "was denied (403 Forbidden, AccessDenied)" in err
    assert "Traceback" not in err


@pytest.mark.repeated
@pytest.mark.cluster
def test_workers_read_from_a_bucket(objects: ObjectServer, table: Path, tmp_path: Path, client2: Client) -> None:
    url, environment = objects.url("workers"), objects.environment()
    for place in (url, tmp_path / "d"):
        daskkern.ingest(table, place, chunk_rows=200)
    objects.faults.fail_every, objects.faults.slow_every, objects.faults.pause_s = 23, 13, 0.05
    how = {"kernel": "gaussian:4", "basis": Landmarks(100), "batch_size": 50, "max_epochs": 2}
    client2.run(_set, environment)
    try:
        theirs = KernelClassifier(**how, client=client2).fit(url)
    finally:
        client2.run(_unset, list(environment))
    assert objects.faults.counts["failed"] > 0
    ours = KernelClassifier(**how).fit(tmp_path / "d")
    with np.load(table) as data:
        X = data["X"]
    np.testing.assert_allclose(theirs.decision_function(X), ours.decision_function(X), rtol=1e-3, atol=1e-3)


def _set(values: dict[str, str]) -> None:
    os.environ.update(values)


def _unset(names: list[str]) -> None:
    for name in names:
        os.environ.pop(name, None)
