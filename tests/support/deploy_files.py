"""What the files in deploy/ start: read from them as their environments would."""

import importlib.util
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = ("cluster.yaml", "cluster-gpu.yaml", "job.yaml", "job-gpu.yaml")
Command = list[str]


def load(path: str) -> Any:
    """Return the content of a YAML file of deploy/."""
    return yaml.safe_load((DEPLOY / path).read_text())


def package_folder(name: str) -> Path:
    """Return the folder of a package whose files are compared with, without importing it; skip where it is missing."""
    others = Path(os.environ.get("DASKKERN_TEST_PACKAGES", "/nowhere")) / name.replace("-", "_")
    if others.is_dir():
        return others
    found = importlib.util.find_spec(name.replace("-", "_"))
    if found is None or found.origin is None:
        pytest.skip(f"pip install --no-deps --target FOLDER {name}, and set DASKKERN_TEST_PACKAGES=FOLDER")
    return Path(found.origin).parent


def chart_folder() -> Path:
    """Return the folder of the Helm chart dask/dask, which is no package; skip where it is missing."""
    folder = Path(os.environ.get("DASKKERN_TEST_PACKAGES", "/nowhere")) / "dask_helm_chart" / "dask"
    if not folder.is_dir():
        url = "https://github.com/dask/helm-chart"
        pytest.skip(f"git clone {url} FOLDER/dask_helm_chart, and set DASKKERN_TEST_PACKAGES=FOLDER")
    return folder


def containers(document: Any) -> list[Any]:
    """Return the containers of a Kubernetes document, wherever they are in it."""
    if isinstance(document, list):
        return [found for part in document for found in containers(part)]
    if not isinstance(document, dict):
        return []
    own = [one for key in ("containers", "initContainers") for one in document.get(key, [])]
    return own + [found for key, part in document.items() if key != "containers" for found in containers(part)]


def commands() -> dict[str, list[Command]]:
    """Return the Dask commands of every file, by its name."""
    found: dict[str, list[Command]] = {"compose.yaml": _compose()}
    for name in KUBERNETES:
        words = [list(map(str, one.get("args", []))) for one in containers(load(f"kubernetes/{name}"))]
        found[name] = [command for command in words if command[0] == "dask"]
    for name in ("fit-cpu.sbatch", "fit-gpu.sbatch"):
        found[name] = _slurm((DEPLOY / "slurm" / name).read_text())
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        found[path.name] = [_unit(path.read_text())]
    return found


def _compose() -> list[Command]:
    texts = [service["command"] for service in load("compose.yaml")["services"].values()]
    defaults = [shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)) for text in texts]
    return [words for words in defaults if words[0] == "dask"]


def _slurm(script: str) -> list[Command]:
    values = {r'"\$file"': "scheduler.json", r'"\$threads"': "2", r'"\$memory"': "1GB", r'"\$\(\(.*?\)\)"': "1"}
    for pattern, value in {**values, r'"\$\{TMPDIR:-/tmp\}"': "/tmp", r"\\\n": ""}.items():
        script = re.sub(pattern, value, script)
    lines = [line.split(" >")[0] for line in script.splitlines() if re.match(r"(srun .*)?dask ", line)]
    return [shlex.split(re.sub(r"^srun .*?(?=dask )", "", line)) for line in lines]


def _unit(unit: str) -> Command:
    text = next(line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart="))
    settings = (
        line.split("=", 1) for line in (DEPLOY / "systemd/cluster.env").read_text().splitlines() if line[0] != "#"
    )
    for name, value in settings:
        text = text.replace(f"${name}", value)
    words = shlex.split(text)
    assert words[0] == "/opt/daskkern/bin/dask"
    return ["dask", *words[1:]]


def is_gpu(command: Command) -> bool:
    """Return whether the command is dask-cuda's."""
    return command[1] == "cuda"


def without(command: Command, *options: str) -> Command:
    """Return the command without these options and their values."""
    kept: Command = []
    skip = False
    for word in command:
        if not skip and word not in options:
            kept.append(word)
        skip = word in options and not skip
    return kept
