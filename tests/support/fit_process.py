"""A fit in a process of its own, whose ranks run until they are stopped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import wait_until
from tests.support.processes import started

_FIT = """
from tests.support import ranks
from distributed import Client
from daskkern.cluster.gang.gang import run_gang
if __name__ == "__main__":
    with Client({address!r}) as client:
        print(run_gang(client, ranks.until_stopped, {folder!r}, name="child"), flush=True)
"""


@contextmanager
def running_fit(address: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield the process of a fit on two ranks once both run."""
    script = folder / "fit.py"
    script.write_text(_FIT.format(address=address, folder=str(folder)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, script)
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as child:
        wait_until(lambda: len(list(folder.glob("running-*"))) == 2, timeout_s=30, what="a running fit")
        yield child
