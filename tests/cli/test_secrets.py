"""Secrets in URLs that a user gives are shown by no message, event, log, page, report or file."""

import json
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from daskkern.cli.main import main
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.data.ingest import ingest
from daskkern.data.remote.stores import RemoteStore, open_zarr, public
from daskkern.errors import ClusterError, DaskkernError, StoreError, without_secrets
from daskkern.events import to_message
from daskkern.models import load_model
from daskkern.training.checkpoints.checkpoint import begin_checkpoint
from daskkern.training.checkpoints.checkpoint_writer import CheckpointWriter
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.claims import Claim
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.jobs.handle import FitHandle

SECRET = "hunter2"
UNREACHABLE = f"sftp://me:{SECRET}@127.0.0.1:1/data"
BARE = f"sftp://127.0.0.1:1/data?{SECRET}"
SIGNED = f"https://127.0.0.1:1/data?X-Amz-Signature={SECRET}&x=1"


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out + err


@pytest.fixture
def place() -> str:
    """A place in memory whose URL has a password; it works."""
    pytest.importorskip("fsspec")
    return f"memory://me:{SECRET}@host"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=(X[:, 0] > 0).astype(int))
    return tmp_path / "d.npz"


@pytest.mark.long
def test_a_whole_tour_on_urls_with_a_password(
    place: str, table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, model, checkpoint, log = f"{place}/s", f"{place}/m", f"{place}/c", tmp_path / "log.json"
    fit = ["--kernel", "gaussian:2", "--landmarks", 30, "--epochs", 2, "--workers", 0, "--calibrate", "none"]
    tour: list[list[object]] = [
        ["ingest", table, "--out", store],
        ["info", store],
        ["info", store, "--json"],
        ["check", store],
        ["check", store, "--json"],
        ["fit", store, "--out", model, "--checkpoint", checkpoint, "--log-file", log, *fit],
        ["fit", store, "--out", model, "--checkpoint", checkpoint, "--log-json", "--resume", *fit],
        ["score", model, store],
        ["score", model, store, "--json"],
        ["predict", model, store, "--out", f"{place}/p"],
        ["shuffle", store, "--out", f"{place}/t"],
        ["report", model, "--test", store, "--out", tmp_path / "page.html"],
    ]
    for words in tour:
        code, said = run(capfd, *words)
        assert SECRET not in said, said
        assert code == 0, (words, said)
    for words in (
        tour[0],
        tour[5],
        ["fit", f"{store}x", "--out", f"{model}x"],
        ["score", f"{model}x", store, "--debug"],
    ):
        code, said = run(capfd, *words)
        assert SECRET not in said, said
        assert code != 0, words
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != table]
    assert {path.suffix for path in written} >= {".json", ".html"}
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    for url in (store, model, checkpoint):
        assert SECRET not in json.dumps(open_zarr(url).attrs.asdict())
    assert SECRET not in repr(load_model(model))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("url", [UNREACHABLE, SIGNED, BARE, f"nosuch://me:{SECRET}@host/x"])
@pytest.mark.parametrize(
    "words",
    [
        ["fit", "URL", "--out", "m"],
        ["fit", "STORE", "--out", "URL"],
        ["fit", "STORE", "--out", "m", "--checkpoint", "URL", "--workers", "0"],
        ["fit", "STORE", "--out", "m", "--validation", "URL"],
        ["fit", "STORE", "--out", "m", "--log-file", "URL"],
        ["fit", "STORE", "--out", "m", "--report", "URL"],
        ["fit", "STORE", "--out", "m", "--config", "URL"],
        ["fit", "STORE", "--out", "m", "--scheduler-file", "URL"],
        ["fit", "STORE", "--out", "m", "--unknown", "URL"],
        ["fit", "STORE", "URL", "--out", "m"],
        ["URL"],
        ["ingest", "URL", "--out", "o"],
        ["ingest", "TABLE", "--out", "URL", "--overwrite"],
        ["ingest", "TABLE", "--out", "o", "--like", "URL"],
        ["score", "URL", "STORE"],
        ["predict", "URL", "STORE", "--out", "p"],
        ["info", "URL"],
        ["check", "URL", "--json"],
        ["report", "URL", "--out", "page.html"],
        ["plan", "URL"],
        ["sweep", "URL", "--workers", "0"],
    ],
    ids=" ".join,
)
def test_a_refused_url_is_named_without_its_secret(
    url: str,
    words: list[str],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DASKKERN_REMOTE_RETRIES", "0")
    monkeypatch.setenv("DASKKERN_REMOTE_TIMEOUT", "1")
    if "STORE" in words:
        ingest(table, tmp_path / "s")
    given = {"URL": url, "STORE": "s", "TABLE": str(table)}
    for more in ([], ["--debug"]):
        code, said = run(capfd, *(given.get(word, word) for word in words), *more)
        assert code != 0, said
        assert SECRET not in said, said


@pytest.mark.parametrize("address", [f"tcp://me:{SECRET}@127.0.0.1:1", f"tls://me:{SECRET}@127.0.0.1:1"])
@pytest.mark.parametrize("command", ["status", "doctor"])
def test_a_scheduler_that_does_not_answer(
    address: str, command: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    _, said = run(capfd, command, "--scheduler", address)
    assert SECRET not in said + caplog.text, said


def test_what_is_known_on_the_scheduler_and_in_logs(place: str, table: Path, caplog: pytest.LogCaptureFixture) -> None:
    metadata = FitMetadata("0" * 12, "n", source=f"{place}/s?k={SECRET}", out=f"{place}/m")
    assert (metadata.source, metadata.out) == ("memory://host/s", "memory://host/m")
    assert SECRET not in str(asdict(metadata))
    claim = Claim(f"{place}/none", 1, "x")
    with CheckpointWriter(claim, 0, "run", "{}", 0.0) as writer:
        events = writer.events()
    texts = [str(to_message(event)) for event in events] + [caplog.text, repr(claim)]
    texts += [repr(CheckpointPolicy(checkpoint=f"{place}/c")), repr(FitHandle("f", "tcp://x", f"{place}/m"))]
    ingest(table, f"{place}/s2", overwrite=True)
    store = RemoteStore.at(f"{place}/s2", read_only=True)
    texts += [repr(StoreSource.at(f"{place}/s2")), repr(store), str(store), f"{open_zarr(f'{place}/s2').store_path}"]
    begun = begin_checkpoint(f"{place}/c2", "run")
    begin_checkpoint(f"{place}/c2", "run")
    with pytest.raises(StoreError) as refused:
        begun.check()
    texts.append(str(refused.value))
    assert len(texts) == len(events) + 9
    assert not [text for text in texts if SECRET in text]


def test_errors_keep_no_secret_on_their_way() -> None:
    error = ClusterError(f"worker cannot write to {UNREACHABLE}: denied; try again")
    error.add_note(f"On rank 0: Order(out='{UNREACHABLE}')")
    assert str(error) == "worker cannot write to sftp://127.0.0.1:1/data: denied; try again"
    assert SECRET not in str(error.__notes__)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert isinstance(again, DaskkernError)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"got 's3://key:{SECRET}@bucket/a b'; give", "got 's3://bucket/a b'; give"),
        (f"at s3://key:a/{SECRET}@bucket/x, and", "at s3://bucket/x, and"),
        (f"at https://h/x?sig={SECRET}; copy it", "at https://h/x; copy it"),
        (f"(see https://h/x#{SECRET}).", "(see https://h/x)."),
        (f"simplecache::sftp://me:{SECRET}@h/x", "simplecache::sftp://h/x"),
        ("s3://bucket/name: not found", "s3://bucket/name: not found"),
        ("http://127.0.0.1:8787/status", "http://127.0.0.1:8787/status"),
        ("tcp://127.0.0.1:8786/a@b", "tcp://127.0.0.1:8786/a@b"),
        ("me@host: no URL? #1", "me@host: no URL? #1"),
        (f"of s3://bucket/key?{SECRET}; check", "of s3://bucket/key; check"),
        (f"of s3://bucket/folder/?{SECRET}/x", "of s3://bucket/folder/"),
        (f"of az://c/data.2024?a.b.{SECRET}{SECRET}", "of az://c/data.2024"),
        (f"simplecache::s3://b/x?{SECRET}", "simplecache::s3://b/x"),
        (f"of HTTPS://h/x?{SECRET} here", "of HTTPS://h/x here"),
        (f"no file /home/https:/h/x?{SECRET}; check", "no file /home/https:/h/x; check"),
        ("of s3://bucket/day=?/hour=??; check", "of s3://bucket/day=?/hour=??; check"),
        ("of s3://bucket/part-?-of-9.parquet; check", "of s3://bucket/part-?-of-9.parquet; check"),
        ("of s3://bucket/day=?/part-?.csv; check", "of s3://bucket/day=?/part-?.csv; check"),
        (f"of s3://bucket/x.parquet?X-Amz-Signature={SECRET}; check", "of s3://bucket/x.parquet; check"),
        (f"of s3://bucket/part-?.csv?sig={SECRET}", "of s3://bucket/part-?.csv"),
        (f"of https://h/part-?{SECRET}.csv", "of https://h/part-"),
        (f"zip://a::https://h/x?{SECRET}", "zip://a::https://h/x"),
        (f"two: sftp://me:{SECRET}@a/b sftp://me:{SECRET}@c/d", "two: sftp://a/b sftp://c/d"),
    ],
)
def test_texts_without_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


def test_places_without_secrets() -> None:
    assert public(f"s3://key:{SECRET}@bucket/part 1?x y={SECRET} z") == "s3://bucket/part 1"
    assert public("a folder/with?marks#of all kinds") == "a folder/with?marks#of all kinds"
    assert public("s3://bucket/a day/day=?/part 1?.csv") == "s3://bucket/a day/day=?/part 1?.csv"
    assert public(f"s3://bucket/x.csv?{SECRET}") == "s3://bucket/x.csv"
    assert public("s3://bucket/a day/day=?/part 1?.csv") == "s3://bucket/a day/day=?/part 1?.csv"
