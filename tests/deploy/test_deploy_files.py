"""The files in deploy/ are what their environments expect, as far as that can be seen without them."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import jsonschema
import pytest
import yaml
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker

from daskkern.cli.fit import fit_command
from daskkern.cli.main import cli
from tests.support.deploy_files import DEPLOY, KUBERNETES, commands, containers, is_gpu, load, package_folder, without

COMMANDS = commands()
DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")
_TLS = ("--tls-ca-file", "--tls-cert", "--tls-key")


def test_every_environment_starts_workers() -> None:
    assert {
        name: [words[1:3] if is_gpu(words) else words[1:2] for words in found] for name, found in COMMANDS.items()
    } == {
        "compose.yaml": [["scheduler"], ["worker"], ["cuda", "worker"]],
        "cluster.yaml": [["worker"], ["scheduler"]],
        "cluster-gpu.yaml": [["cuda", "worker"], ["scheduler"]],
        "job.yaml": [["worker"], ["scheduler"]],
        "job-gpu.yaml": [["cuda", "worker"], ["scheduler"]],
        "fit-cpu.sbatch": [["scheduler"], ["worker"]],
        "fit-gpu.sbatch": [["scheduler"], ["cuda", "worker"]],
        "daskkern-scheduler.service": [["scheduler"]],
        "daskkern-worker.service": [["worker"]],
        "daskkern-gpu-worker.service": [["cuda", "worker"]],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_dask_takes_the_options(name: str) -> None:
    for command in COMMANDS[name]:
        if not is_gpu(command):
            program = {"scheduler": dask_scheduler, "worker": dask_worker}[command[1]]
            program.make_context(command[1], without(command, *_TLS)[2:])


def test_dask_cuda_has_the_options() -> None:
    known = set(re.findall(r'"(--[\w-]+)', (package_folder("dask-cuda") / "cli.py").read_text()))
    assert len(known) > 20
    used = {word for found in COMMANDS.values() for command in found if is_gpu(command) for word in command}
    assert {word for word in used if word.startswith("--")} <= known


@pytest.mark.parametrize("name", KUBERNETES)
def test_the_service_finds_its_scheduler_and_mounts_have_volumes(name: str) -> None:
    document = load(f"kubernetes/{name}")
    cluster = document["spec"].get("cluster", document)["spec"]
    service, scheduler = cluster["scheduler"]["service"], cluster["scheduler"]["spec"]["containers"][0]
    assert service["selector"]["dask.org/cluster-name"] == document["metadata"]["name"]
    assert {port["targetPort"] for port in service["ports"]} == {port["name"] for port in scheduler["ports"]}
    specs = [cluster["worker"]["spec"], *([document["spec"]["job"]["spec"]] if "job" in document["spec"] else [])]
    for spec in specs:
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for one in spec["containers"] for mount in one["volumeMounts"]} == volumes
    on_gpus = [one["resources"]["limits"].get("nvidia.com/gpu") for one in containers(cluster["worker"])]
    assert on_gpus == ["1" if "gpu" in name else None]


JOBS = ("job.yaml", "job-gpu.yaml")


@pytest.mark.parametrize("name", JOBS)
def test_a_job_ends_when_it_fails_and_knows_its_name(name: str) -> None:
    spec = load(f"kubernetes/{name}")["spec"]["job"]["spec"]
    assert spec["restartPolicy"] == "Never"
    label = spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    key = re.fullmatch(r"metadata\.labels\['(.+)'\]", label)
    assert key is not None
    controller = package_folder("dask-kubernetes") / "operator/controller/controller.py"
    made = controller.read_text().split("def build_job_pod_spec")[1].split("def ")[0]
    assert f'"{key[1]}": cluster_name' in made


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(("failures", "wait"), [(0, "20"), (1, "20"), (99, "0.3")])
def test_the_script_of_a_job(name: str, failures: int, wait: str, tmp_path: Path) -> None:
    """A program in the place of daskkern: doctor fails so many times, and fit says how it was called."""
    container = load(f"kubernetes/{name}")["spec"]["job"]["spec"]["containers"][0]
    script = container["args"][0]
    assert "\n" not in script.strip()
    assert "timeout 1200 " in script
    assert "sleep 5" in script
    assert "$(" not in script  # Kubernetes reads these as its own
    program = tmp_path / "daskkern"
    count = tmp_path / "count"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = doctor ]; then echo . >> "{count}"; [ "$(wc -l < "{count}")" -gt {failures} ]; exit; fi\n'
        'echo "$@"\n'
    )
    program.chmod(0o755)
    script = script.replace("timeout 1200 ", f"timeout {wait} ").replace("sleep 5", "sleep 0.05")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB": "mine", "DASK_SCHEDULER_ADDRESS": "tcp://s:1"}
    command = [*container["command"], script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if failures == 99:
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "no fit could run within 20 minutes" in ended.stderr
        return
    assert (ended.returncode, ended.stderr) == (0, "")
    program_name, *words = ended.stdout.split()
    assert program_name == "fit"
    fit_command.make_context("fit", list(words))
    assert words[:3] == ["/data/train.zarr", "--out", "/data/mine.zarr"]
    assert words[-3:] == ["--scheduler", "tcp://s:1", "--resume"]
    assert ("--device" in words) == ("gpu" in name)


def test_compose_takes_the_file() -> None:
    schema = json.loads((package_folder("check-jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(load("compose.yaml"))


def test_images_of_compose_are_built_from_files_that_exist() -> None:
    for service in load("compose.yaml")["services"].values():
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert set(service.get("depends_on", {})) <= {"scheduler"}


@pytest.mark.parametrize("section", ["slurm", "slurm-gpu", "pbs"])
def test_jobqueue_knows_the_settings(section: str) -> None:
    known = yaml.safe_load((package_folder("dask-jobqueue") / "jobqueue.yaml").read_text())["jobqueue"]
    base = section.split("-")[0]
    ours = set(load("jobqueue.yaml")["jobqueue"][section])
    assert ours <= set(known[base])
    if section != base:  # which dask-jobqueue has no defaults for
        assert ours == set(known[base])


def instructions(name: str) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / name).read_text(), flags=re.MULTILINE).replace("\\\n", "")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_docker_takes_the_instructions(name: str) -> None:
    found = instructions(name)
    assert {word for word, _ in found} <= {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "USER", "ENV", "EXPOSE", "CMD"}
    root = DEPLOY.parent
    ignored = (DEPLOY / f"{name}.dockerignore").read_text().splitlines()
    for word, rest in found:
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
        elif word == "CMD":
            assert json.loads(rest) == ["daskkern", "doctor"]
        elif word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (root / source).exists(), source
                assert f"!{Path(source).name}" in ignored
    users = [rest for word, rest in found if word == "USER"]
    assert users == ["1000"]  # a number, so that Kubernetes knows that it is not root
    extras = next(rest for word, rest in found if word == "ARG" and rest.startswith("EXTRAS=")).split("=")[1].split(",")
    assert {"plot", "metrics"} <= set(extras)  # reports, and the scheduler's /metrics for prometheus.yml
    declared = (root / "pyproject.toml").read_text()
    for extra in [*extras, *(["cuda12", "cuda13"] if "cuda" in name else [])]:
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE), extra


@pytest.mark.parametrize(
    "name", ["slurm/fit-cpu.sbatch", "slurm/fit-gpu.sbatch", "slurm/one_machine.sh", "tls/make-certificates.sh"]
)
def test_shell_scripts(name: str) -> None:
    subprocess.run(["bash", "-n", str(DEPLOY / name)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(DEPLOY / name)], check=True)


SLURM = {
    ("fit-cpu.sbatch", "SLURM_MEM_PER_CPU", "2048"): "16384MiB",  # 8 threads
    ("fit-cpu.sbatch", "SLURM_MEM_PER_NODE", "65536"): "32768MiB",  # 2 tasks of a node
    ("fit-cpu.sbatch", "SLURM_MEM_PER_NODE", "0"): "auto",  # all memory of the node
    ("fit-gpu.sbatch", "SLURM_MEM_PER_CPU", "2048"): "4096MiB",  # 8 threads, 4 GPUs
    ("fit-gpu.sbatch", "SLURM_MEM_PER_NODE", "65536"): "16384MiB",
    ("fit-gpu.sbatch", "SLURM_MEM_PER_NODE", "0"): "auto",
}


@pytest.mark.repeated
@pytest.mark.parametrize(("name", "variable", "value"), SLURM)
def test_batch_scripts_share_the_memory_out_and_wait_as_long_as_there_is_a_scheduler(
    name: str, variable: str, value: str, tmp_path: Path
) -> None:
    """Programs in the place of Slurm's, Dask's and daskkern's: the doctor never finds a worker, and fit ends with 3."""
    says = 'echo "$(basename "$0") $*" >> "$SAID"\n'
    ends = '[ "$1" = doctor ] && { echo nobody; exit 1; }; exit 3\n'
    for program, more in (("dask", "sleep 2\n"), ("srun", "sleep 2\n"), ("daskkern", ends)):
        (tmp_path / program).write_text(f"#!/bin/sh\n{says}{more}")
        (tmp_path / program).chmod(0o755)
    text = (DEPLOY / "slurm" / name).read_text()
    assert "  sleep 2\n" in text
    script = tmp_path / name
    script.write_text(text.replace("  sleep 2\n", "  sleep 0.2\n"))
    job = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8", variable: value}
    shares = {"SLURM_NTASKS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "4"}
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SAID": str(tmp_path / "said"), **job, **shares}
    environment["DASKKERN_MESSAGE_S"] = "0"
    words = ["bash", str(script), "s.zarr", "m.zarr", "--epochs", "2"]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert "nobody" in ended.stdout
    assert "workers are waited for until the time limit is near" in ended.stdout
    said = (tmp_path / "said").read_text().splitlines()
    assert len([line for line in said if line.startswith("daskkern doctor")]) > 1
    workers = next(line for line in said if line.startswith("srun"))
    assert f"--memory-limit {SLURM[name, variable, value]} " in workers
    fit = next(line for line in said if line.startswith("daskkern fit"))
    assert fit.startswith("daskkern fit s.zarr --out m.zarr --scheduler-file")
    assert fit.endswith("--epochs 2")
    assert not list(tmp_path.glob("daskkern-7*"))


def test_units_are_systemd_s(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("apt-get install systemd")
    for path in (DEPLOY / "systemd").glob("*.service"):
        unit = tmp_path / path.name
        unit.write_text(
            path.read_text().replace("/opt/daskkern/bin/dask", "/bin/sh").replace("User=daskkern", "User=root")
        )
        checked = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("page", sorted(path.name for path in DEPLOY.glob("*.md")))
def test_links_of_the_pages_lead_to_files(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (DEPLOY / page).read_text()):
        assert (DEPLOY / target).exists(), target


@pytest.mark.parametrize("page", sorted(path.name for path in DEPLOY.glob("*.md")))
def test_options_of_the_pages_exist(page: str) -> None:
    text = "".join(re.findall(r"```bash\n(.*?)```", (DEPLOY / page).read_text(), re.DOTALL)).replace("\\\n", " ")
    for line in re.findall(r"^(?:dask (?:scheduler|worker)|daskkern \w+) .*", text, re.MULTILINE):
        program, name, *words = re.sub(r"\s{2,}#.*", "", line).split()
        dask = {"scheduler": dask_scheduler, "worker": dask_worker}
        command = dask[name] if program == "dask" else cli.get_command(click.Context(cli), name)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
