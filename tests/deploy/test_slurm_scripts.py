"""The batch scripts of Slurm with programs in the place of Slurm's, Dask's and daskkern's: keys, signals, requeues."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cluster import wait_until
from tests.support.deploy_files import DEPLOY

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
SCRIPTS = ("fit-cpu.sbatch", "fit-gpu.sbatch")
_SAYS = 'echo "$(basename "$0") $*" >> "$SAID"\n'
_FIT = f"""
[ "$1" = doctor ] && {{ grep -q "^srun" "$SAID" && grep -q "^dask" "$SAID"; exit $?; }}
for word in "$@"; do case "$last" in --tls-key) stat -c "key %a" "$word" >> "$SAID";
  openssl verify -CAfile "$(dirname "$word")/cert.pem" "$(dirname "$word")/cert.pem" >> "$SAID";; esac; last=$word; done
[ "$WAITS" ] || exit 0
exec {shutil.which("python3") or "python3"} -c '
import os, signal, sys, time
def end(*_):
    if os.environ["WAITS"] == "saves":
        os.mkdir(sys.argv[1])
    sys.exit(130)
signal.signal(signal.SIGINT, end)
open(os.environ["SAID"], "a").write("begun\\n")
time.sleep(60)' "$4"
"""
_RUNS = "exec sleep 100\n"
_KILLED = 'echo left "$SLURM_SUBMIT_DIR"/* >> "$SAID"; kill -KILL $PPID\n'  # as Slurm does it to a job that is requeued


def job(name: str, folder: Path, *options: str, **more: str) -> tuple[list[str], dict[str, str]]:
    for program, text in (("dask", _RUNS), ("srun", _RUNS), ("scontrol", more.get("REQUEUE", "")), ("daskkern", _FIT)):
        (folder / program).write_text(f"#!/bin/sh\n{_SAYS}{text}")
        (folder / program).chmod(0o755)
    given = {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "8", "WAITS": ""}
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SAID": str(folder / "said"), **given, **more}
    return ["bash", str(DEPLOY / "slurm" / name), "s.zarr", str(folder / "m.zarr"), *options], environment


def said(folder: Path, program: str) -> list[str]:
    lines = (folder / "said").read_text().splitlines() if (folder / "said").exists() else []
    return [line for line in lines if line.startswith(program)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_process_of_a_job_is_encrypted_with_a_key_that_only_its_user_can_read(name: str, tmp_path: Path) -> None:
    words, environment = job(name, tmp_path)
    subprocess.run(words, env=environment, capture_output=True, check=True)
    for program in ("dask scheduler", "srun"):
        (started,) = said(tmp_path, program)
        assert "--protocol tls" in started
        assert all(option in started for option in ("--tls-ca-file", "--tls-cert", "--tls-key"))
    assert "--dashboard-address 127.0.0.1:0" in said(tmp_path, "dask scheduler")[0]
    for started in (*said(tmp_path, "daskkern doctor"), *said(tmp_path, "daskkern fit")):
        assert all(option in started for option in ("--tls-ca ", "--tls-cert ", "--tls-key "))
    assert said(tmp_path, "key") == ["key 600"]
    assert len(said(tmp_path, "/")) == 1  # what openssl says of a certificate that it accepts
    assert said(tmp_path, "/")[0].endswith("cert.pem: OK")
    assert not list(tmp_path.glob("daskkern-7*"))


def until_its_time_limit(name: str, folder: Path, **more: str) -> tuple[int, str]:
    """Run a job until Slurm's signal before the time limit; return its exit code and its output."""
    words, environment = job(name, folder, "--epochs", "2", **more)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as process:
        wait_until(lambda: said(folder, "begun"), 60, "the fit")
        time.sleep(0.2)
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_job_near_its_time_limit_saves_its_progress_and_is_requeued_without_its_key(
    name: str, tmp_path: Path
) -> None:
    text = (DEPLOY / "slurm" / name).read_text()
    assert "#SBATCH --signal=B:USR1@180\n" in text
    assert "#SBATCH --requeue\n" in text
    status, out = until_its_time_limit(name, tmp_path, WAITS="saves", REQUEUE=_KILLED)
    assert status == -signal.SIGKILL
    assert said(tmp_path, "scontrol") == ["scontrol requeue 7"]
    assert "goes on from its checkpoint" in out
    (left,) = said(tmp_path, "left")
    assert "daskkern-7" not in left  # the key was gone before
    assert not list(tmp_path.glob("daskkern-7*"))


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_fit_that_ends_at_once_after_the_signal(name: str, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text('kill() { builtin kill "$@"; local status=$?; sleep 0.5; return "$status"; }\n')
    status, _ = until_its_time_limit(name, tmp_path, WAITS="saves", BASH_ENV=str(tmp_path / "slow"))
    assert status == 130
    assert said(tmp_path, "scontrol") == ["scontrol requeue 7"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_job_that_saved_nothing_is_not_requeued_forever(name: str, tmp_path: Path) -> None:
    status, out = until_its_time_limit(name, tmp_path, WAITS="yes")
    assert status == 130
    assert said(tmp_path, "scontrol") == []
    assert "nothing was saved in this run: the job is not requeued; give it more --time" in out
    assert not list(tmp_path.glob("daskkern-7*"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_time_limit_that_comes_before_the_workers(name: str, tmp_path: Path) -> None:
    words, environment = job(name, tmp_path, WAITS="yes")
    (tmp_path / "srun").write_text(f"#!/bin/sh\necho queued >> $SAID\n{_RUNS}")  # doctor finds no worker
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as process:
        wait_until(lambda: said(tmp_path, "daskkern doctor"), 60, "the first question")
        process.send_signal(signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing was saved in this run" in out
    assert not list(tmp_path.glob("daskkern-7*"))


@pytest.mark.long
@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SCRIPTS)
def test_workers_are_waited_for_as_long_as_the_job_may_run(name: str, tmp_path: Path) -> None:
    words, environment = job(name, tmp_path, DASKKERN_MESSAGE_S="0")
    (tmp_path / "srun").write_text(f'#!/bin/sh\nwhile [ ! -e "$SAID.node" ]; do sleep 0.1; done\n{_SAYS}{_RUNS}')
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as process:
        wait_until(lambda: len(said(tmp_path, "daskkern doctor")) > 2, 60, "the third question")
        assert said(tmp_path, "daskkern fit") == []
        (tmp_path / "said.node").touch()
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "workers are waited for until the time limit is near" in out
    assert len(said(tmp_path, "daskkern fit")) == 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_workers_that_have_failed_are_not_waited_for(name: str, tmp_path: Path) -> None:
    words, environment = job(name, tmp_path)
    (tmp_path / "srun").write_text("#!/bin/sh\necho no such partition >&2\nexit 1\n")
    subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60)
    assert len(said(tmp_path, "daskkern fit")) == 1  # which says what is wrong


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_partition_without_requeues_is_reported(name: str, tmp_path: Path) -> None:
    status, out = until_its_time_limit(name, tmp_path, WAITS="saves", REQUEUE="exit 1\n")
    assert status == 130
    assert "it could not be requeued: submit it again, with --resume" in out
    assert not list(tmp_path.glob("daskkern-7*"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_requeued_job_resumes(name: str, tmp_path: Path) -> None:
    words, environment = job(name, tmp_path, "--overwrite", "--epochs", "2", SLURM_RESTART_COUNT="1")
    subprocess.run(words, env=environment, capture_output=True, check=True)
    (fit,) = said(tmp_path, "daskkern fit")
    assert fit.endswith(" --resume --epochs 2")
    assert "--overwrite" not in fit
    assert said(tmp_path, "scontrol") == []
