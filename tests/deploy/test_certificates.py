"""The script that makes certificates: it replaces nothing, and says why where it fails."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deploy_files import DEPLOY

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")


def make(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    script = DEPLOY / "tls" / "make-certificates.sh"
    return subprocess.run([str(script), str(folder), *names], capture_output=True, text=True, check=False)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix != ".srl")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    made = make(tmp_path / "keys", "localhost,127.0.0.1,::1")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.endswith("for DNS:localhost,IP:127.0.0.1,IP:::1\n")
    return tmp_path / "keys"


def test_what_it_makes(keys: Path) -> None:
    own = [f"localhost/{name}.pem" for name in ("ca", "cert", "key")]
    assert files(keys) == ["ca-key.pem", "ca.pem", "localhost", *own]
    assert all(path.stat().st_mode & 0o077 == 0 for path in keys.rglob("*"))
    assert (keys / "localhost" / "ca.pem").read_bytes() == (keys / "ca.pem").read_bytes()


@pytest.mark.parametrize("gone", ["ca-key.pem", "ca.pem"])
def test_an_authority_is_not_replaced(keys: Path, gone: str) -> None:
    (keys / gone).rename(keys.parent / gone)
    before = {path: path.read_bytes() for path in keys.rglob("*.pem")}
    refused = make(keys, "alice")
    assert refused.returncode == 2
    assert f"put {gone} back" in refused.stderr
    assert {path: path.read_bytes() for path in keys.rglob("*.pem")} == before
    (keys.parent / gone).rename(keys / gone)
    assert make(keys, "alice").returncode == 0
    checked = ["openssl", "verify", "-CAfile", str(keys / "localhost/ca.pem"), str(keys / "alice/cert.pem")]
    subprocess.run(checked, check=True, capture_output=True)


def test_what_openssl_refuses_is_said_and_leaves_nothing(keys: Path) -> None:
    before = files(keys)
    refused = make(keys, "bob:x")
    assert refused.returncode == 1
    assert "openssl could not make the certificate of 'bob:x'" in refused.stderr
    assert "bob:x" in refused.stderr.split("openssl could not")[0]  # openssl's own words
    assert files(keys) == before


@pytest.mark.parametrize("name", ["a/b", "../alice", "..", ".hidden", ",127.0.0.1"])
def test_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    refused = make(tmp_path / "keys", "alice", name)
    assert refused.returncode == 2
    assert f"the name '{name}' cannot name a folder" in refused.stderr
    assert files(tmp_path) == []
