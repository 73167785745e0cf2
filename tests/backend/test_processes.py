"""Which processes still run."""

import os
import subprocess
import sys
import time
from pathlib import Path

from daskkern.backend.processes import is_running


def test_a_process_that_nobody_waited_for_does_not_run(tmp_path: Path) -> None:
    assert is_running(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdin=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while is_running(child.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_running(child.pid)
    assert child.wait() == 0
    assert not is_running(child.pid)
    assert is_running(os.getpid(), tmp_path)  # a system without /proc


def test_the_name_of_a_process_is_not_read_for_its_state(tmp_path: Path) -> None:
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    (folder / "stat").write_text(f"{os.getpid()} (a) Z (b) S 1 1")
    assert is_running(os.getpid(), tmp_path)
    (folder / "stat").write_text(f"{os.getpid()} (a S) Z 1 1")
    assert not is_running(os.getpid(), tmp_path)
