"""A JupyterLab on the loopback interface, and a notebook in a headless browser."""

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support import browser
from tests.support.cluster import wait_until
from tests.support.processes import ROOT, started

_QUIET = {"checkForUpdates": False, "fetchNews": "false", "doNotDisturbMode": True}
"""Settings that keep JupyterLab from asking and fetching."""
_NOTEBOOK = "const found = [...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext);"


def missing() -> str:
    """Return the command that installs what a notebook in a browser needs, or "" when all is there."""
    commands = [browser.missing(), "" if find_spec("jupyterlab") else "pip install jupyterlab"]
    return " && ".join(filter(None, commands))


class Notebook:
    """A notebook that is open in a browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def begin(self, cell: int) -> None:
        """Run a cell, without waiting for its end."""
        self._do(f"found.content.activeCellIndex = {cell}; found.content.deselectAll();")
        self._do("jupyterapp.commands.execute('notebook:run-cell')")

    def outputs(self, cell: int) -> list[str]:
        """Return the texts that a cell shows, one for each of its outputs."""
        shown = f"found.content.widgets[{cell}].node.querySelectorAll('.jp-OutputArea-output')"
        return list(self._do(f"return [...{shown}].map(output => output.innerText.trim()).filter(Boolean)"))

    def wait(self, cell: int, word: str, timeout_s: float = 60.0) -> list[str]:
        """Wait until a cell shows `word`, and return what it shows then: what is replaced is empty for a moment."""
        seen: list[list[str]] = []

        def found() -> bool:
            seen.append(self.outputs(cell))
            return word in "\n".join(seen[-1])

        wait_until(found, timeout_s, what=f"{word!r} in cell {cell}")
        return seen[-1]

    def end(self, cell: int, timeout_s: float = 60.0) -> list[str]:
        """Wait until a cell has ended, and return what it shows."""
        model = f"found.content.widgets[{cell}].model"
        ended = f"return {model}.executionCount !== null && {model}.executionState === 'idle'"  # idle before it, too
        wait_until(lambda: self._do(ended) is True, timeout_s, what=f"the end of cell {cell}")
        time.sleep(0.5)  # the page draws what it has received
        return self.outputs(cell)

    def interrupt(self) -> None:
        """Do what the button with the square does."""
        self._do("found.sessionContext.session.kernel.interrupt()")

    def _do(self, script: str) -> Any:
        return self.driver.execute_script(_NOTEBOOK + script)


@contextmanager
def notebook(folder: Path, cells: Sequence[str]) -> Iterator[Notebook]:
    """Yield a notebook of `cells` in a JupyterLab whose files are all in `folder`; its kernel has ended afterwards."""
    written = [
        {"cell_type": "code", "id": f"c{k}", "source": cell, "outputs": [], "execution_count": None, "metadata": {}}
        for k, cell in enumerate(cells)
    ]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": written, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notebook.ipynb").write_text(json.dumps(content))
    settings = folder / "home" / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(_QUIET))
    token = secrets.token_urlsafe(24)
    words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    words += [f"--ServerApp.root_dir={folder}", "--expose-app-in-browser"]
    with (folder / "lab.log").open("w") as log:
        environment = _environment(folder / "home", token)
        with started(words, cwd=folder, env=environment, stdout=log, stderr=log), browser.browser(1280, 1600) as driver:
            driver.get(f"{_address(folder)}lab/tree/notebook.ipynb?token={token}")
            idle = f"{_NOTEBOOK} return found.sessionContext.session.kernel.status == 'idle'"
            browser.wait_for(driver, idle, timeout_s=60.0)
            try:
                yield Notebook(driver)
            finally:  # a kernel has a session of its own
                driver.set_script_timeout(20)
                end = "found.sessionContext.shutdown().then(() => done(1), () => done(0))"
                driver.execute_async_script(f"const done = arguments[0]; {_NOTEBOOK} {end}")


def _environment(home: Path, token: str) -> dict[str, str]:
    places = {
        "HOME": home,
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "run",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        **{name: str(place) for name, place in places.items()},
        "PYTHONPATH": path,
        "JUPYTER_TOKEN": token,
    }


def _address(folder: Path) -> str:
    found: list[str] = []

    def named() -> bool:
        for path in (folder / "home" / "run").glob("jpserver-*.json"):
            try:
                found.append(json.loads(path.read_text())["url"])
            except ValueError:  # it is being written
                return False
        return bool(found)

    wait_until(named, 60.0, what=f"a JupyterLab, see {folder / 'lab.log'}")
    return found[0]
