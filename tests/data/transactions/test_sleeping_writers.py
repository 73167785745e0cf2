"""A process that sleeps right before its group appears does not replace what another has written there meanwhile."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zarr

from daskkern.data.transactions.atomic import atomic_group
from tests.support.cluster import wait_until
from tests.support.processes import started

_WRITER = """
import os, signal, sys
from daskkern.data.transactions.atomic import atomic_group

def sleep():
    print("sleeps", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)

with atomic_group(sys.argv[1], kind="thing", overwrite=True, check=sleep) as group:
    group.attrs["by"] = "the one that slept"
"""


def _write(place: Path, by: str) -> None:
    with atomic_group(place, kind="thing", overwrite=True) as group:
        group.attrs["by"] = by


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_writer_that_slept_keeps_what_came_meanwhile(older: bool, meanwhile: bool, tmp_path: Path) -> None:
    place = tmp_path / "m.zarr"
    if older:
        _write(place, "an earlier one")
    command = (sys.executable, "-c", _WRITER, place)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "sleeps\n"
        wait_until(lambda: _is_stopped(child.pid), what="the writer's sleep")
        if meanwhile:
            _write(place, "another")
        os.kill(child.pid, signal.SIGCONT)
        assert child.wait(60) == int(meanwhile)
        said = child.stderr.read()
    assert zarr.open_group(place, mode="r").attrs["by"] == ("another" if meanwhile else "the one that slept")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.zarr"]
    if older and meanwhile:
        assert f"another process has written {place} meanwhile; its group is kept; choose another place" in said


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
