"""Local clusters of daskkern let in nobody but their own processes, whoever else uses the machine."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from distributed.comm.core import connect as open_comm
from distributed.security import Security

from daskkern.cluster.connect import protection
from daskkern.cluster.connect.local import connect
from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.gang import run_gang
from daskkern.errors import ClusterError
from daskkern.training.jobs.install_dashboard import show_fits
from tests.support import ranks
from tests.support.processes import ROOT, started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_PARENT = """
from daskkern.cluster.connect.local import connect
if __name__ == "__main__":
    with connect(workers=1) as connection:
        print(connection.client.scheduler.address, flush=True)
        input()
"""


def status_of(link: str, path: str) -> int:
    place = urlsplit(link)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.request("GET", path)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.long
def test_only_the_own_certificate_and_the_own_link_open_a_local_cluster() -> None:
    with connect(workers=1, threads_per_worker=1) as connection:
        client, link = connection.client, connection.dashboard_link
        assert run_gang(client, ranks.many_steps, 3, name="protected") == [1000.0]
        addresses = [client.scheduler.address, *live_workers(client)]
        assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
        for address in addresses:
            for security in (None, Security.temporary()):  # none, and one of another cluster
                assert not asyncio.run(is_let_in(address, security))
            assert not asyncio.run(is_let_in(address.replace("tls", "tcp"), None))
            assert asyncio.run(is_let_in(address, client.security))
        page = urlsplit(link).path
        assert len(page.split("/")[1]) >= 20
        assert status_of(link, page) == 200
        show_fits(client)
        fits = page.replace("status", "kernel-fits")
        assert (status_of(link, fits), status_of(link, f"{fits}/ws")) == (200, 400)  # 400: no websocket's handshake
        assert {status_of(link, path) for path in ("/", "/status", "/metrics", "/x" + page, "/kernel-fits")} == {404}


async def is_let_in(address: str, security: Security | None) -> bool:
    """Return whether a peer with these certificates is let in."""
    arguments = {} if security is None else security.get_connection_args("client")
    try:
        comm = await open_comm(address, timeout=5, **arguments)
        await comm.write({"op": "identity", "reply": True})
        await comm.read()
    except (OSError, TypeError, RuntimeError):
        return False
    comm.abort()
    return True


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ClusterError, match=r"install cryptography, or fit in this process"), connect(workers=1):
        pass


def test_a_port_that_is_taken_meanwhile_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(protection, "dashboard_address", lambda: f"127.0.0.1:{taken}")
        with connect(workers=1) as cluster:  # warnings are errors
            assert f":{taken}/" not in str(cluster.client.dashboard_link)


@pytest.mark.repeated
def test_no_key_is_left_when_the_cluster_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(ROOT),
        "DASK_TEMPORARY_DIRECTORY": str(scratch),
    }
    with started(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("tls://")
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(10)
        assert keys_in(scratch) == []


def keys_in(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files, "the cluster used another folder"
    return [path for path in files if b"PRIVATE KEY" in path.read_bytes()]
