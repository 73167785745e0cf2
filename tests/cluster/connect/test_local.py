"""The command line's cluster starts, says where it is, and is gone afterwards."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client
from distributed.core import Status

from daskkern.cluster.connect import local
from daskkern.cluster.connect.local import connect
from daskkern.cluster.gang.gang import run_gang
from daskkern.errors import ClusterError, DaskkernError, SpecError
from tests.support import ranks
from tests.support.cluster import child_processes, wait_until
from tests.support.processes import started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


def test_a_local_cluster_runs_a_gang_and_is_gone_at_the_end() -> None:
    before = {process.pid for process in child_processes()}
    with connect(workers=2, memory_limit="500 MB") as connection:
        assert connection.kind == "cpu"
        assert connection.dashboard_link.startswith("http://127.0.0.1:")
        workers = connection.client.sync(connection.client.scheduler.identity, n_workers=-1)["workers"]
        assert [worker["nthreads"] for worker in workers.values()] == [max(1, os.cpu_count() // 2)] * 2
        assert {worker["memory_limit"] for worker in workers.values()} == {500_000_000}
        assert run_gang(connection.client, ranks.many_steps, 3, name="local") == [1000.0] * 2
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of the workers")


def test_the_cluster_is_closed_when_the_command_fails() -> None:
    before = {process.pid for process in child_processes()}
    with pytest.raises(KeyboardInterrupt), connect(workers=1):
        raise KeyboardInterrupt
    wait_until(lambda: {process.pid for process in child_processes()} <= before, what="the end of the workers")


@pytest.mark.repeated
def test_a_worker_that_is_lost_twice_comes_back_twice() -> None:
    with connect(workers=1) as connection:
        workers = connection.client.cluster.workers
        first, begun = workers[0].process.pid, time.monotonic()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: workers[0].process.status == Status.running and workers[0].process.pid != first, 30)
        time.sleep(max(0.0, begun + 14.0 - time.monotonic()))
        second = workers[0].process.pid
        os.kill(second, signal.SIGKILL)
        time.sleep(3.0)  # Dask looks 15 s after the first loss
        wait_until(lambda: 0 in workers and workers[0].process.pid != second, 30, what="a third worker")
        connection.client.wait_for_workers(1, timeout=30)


def test_a_busy_dashboard_port_is_no_matter() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8787))
            taken.listen()
        except OSError:
            pass  # somebody else has taken it: as good
        with connect(workers=1) as connection:
            assert connection.dashboard_link.startswith("http://127.0.0.1:")
            assert ":8787" not in connection.dashboard_link


def test_a_running_cluster_is_attached_and_left_running(client2: Client, cluster2: str) -> None:
    with connect(cluster2) as connection:
        assert connection.kind == "attached"
        assert run_gang(connection.client, ranks.many_steps, 3, name="attached") == [1000.0] * 2
    assert client2.submit(max, 1, 2, pure=False).result() == 2


def test_a_dead_scheduler_is_told_in_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}"), connect(address, timeout_s=1):
        pass
    assert time.monotonic() - started < 10
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("address", ["nonsense://here", "tcp://127.0.0.1", "tcp://127.0.0.1:99999999"])
def test_an_address_that_is_none_is_told_in_a_sentence(address: str) -> None:
    scheduler = dask.config.get("scheduler", None)
    words = r"no Dask scheduler answers|as the address of a scheduler; expected one"
    with pytest.raises(DaskkernError, match=words), connect(address, timeout_s=1):
        pass
    assert dask.config.get("scheduler", None) == scheduler, "Dask would look for the client that failed"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"scheduler": "tcp://host:1", "workers": 2}, "has its own workers"),
        ({"workers": 0}, "workers=0"),
        ({"workers": 2, "gpus": "all"}, "got both workers and gpus"),
        ({"gpus": "some"}, "'all' or 'auto'"),
        ({"gpus": (1, 1)}, "different numbers from 0 on"),
        ({"threads_per_worker": -1}, "threads_per_worker=-1"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence), connect(**settings):
        pass


class TestGPUs:
    @pytest.fixture(autouse=True)
    def _all_visible(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def test_asked_for_and_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", None)
        with pytest.raises(ClusterError, match=r"2 GPUs were requested but cannot be used .*daskkern\[cuda12\]"):
            connect(gpus=2).__enter__()

    @pytest.mark.parametrize(
        ("gpus", "devices"), [("all", [0, 1, 2]), ("auto", [0, 1, 2]), (2, [0, 1]), ((0, 2), [0, 2])]
    )
    def test_a_worker_for_each(self, gpus: Any, devices: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 3))
        given = local._gpu_cluster(gpus, None, None, {"memory_limit": "auto"})
        assert given == {"CUDA_VISIBLE_DEVICES": devices, "threads_per_worker": 1, "memory_limit": "auto"}

    @pytest.mark.parametrize(
        ("visible", "gpus", "devices"),
        [("2,3", "all", [2, 3]), ("3, 1,0", 2, [3, 1]), ("2,3", (1,), [3]), ("GPU-ab12", "auto", ["GPU-ab12"])],
    )
    def test_only_those_that_this_process_may_use(
        self, visible: str, gpus: Any, devices: list[int | str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 8))
        assert local._gpu_cluster(gpus, None, None, {})["CUDA_VISIBLE_DEVICES"] == devices
        with pytest.raises(ClusterError, match=r"the GPUs 0, 4 were requested .*\d GPUs were found"):
            local._gpu_cluster((0, 4), None, None, {})
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        with pytest.raises(ClusterError, match="no GPU was found"):
            local._gpu_cluster("all", None, None, {})

    @pytest.mark.parametrize(
        ("gpus", "words"), [(4, "4 GPUs were requested"), ((0, 3), "the GPUs 0, 3 were requested")]
    )
    def test_more_than_there_are(self, gpus: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 3))
        with pytest.raises(ClusterError, match=f"{words} but cannot be used .*3 GPUs were found"):
            local._gpu_cluster(gpus, None, None, {})

    def test_auto_does_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", None)
        with connect(workers=1, gpus="auto", threads_per_worker=1) as connection:
            assert connection.kind == "cpu"
            assert len(connection.client.scheduler_info()["workers"]) == 1

    def test_auto_comes_before_the_workers_of_a_machine_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 1))
        given, kind = local._start(2, "auto", None, None, {})
        assert kind == "gpu"
        assert given["CUDA_VISIBLE_DEVICES"] == [0]

    @pytest.mark.parametrize("installed", [True, False])
    def test_the_pool_is_planned_where_rmm_is(self, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 3))
        monkeypatch.setattr(local, "find_spec", lambda name: object() if installed and name == "rmm" else None)
        given = local._gpu_cluster("all", None, lambda devices: local.Pool(sum(devices) << 30, 9 << 30), {})
        pool = {
            "rmm_pool_size": 3 << 30,
            "rmm_maximum_pool_size": 9 << 30,
            "rmm_allocator_external_lib_list": ["cupy"],
            "rmm_track_allocations": True,
        }
        assert given == {"CUDA_VISIBLE_DEVICES": [0, 1, 2], "threads_per_worker": 1, **(pool if installed else {})}
        nothing = local._gpu_cluster("all", None, lambda devices: local.Pool(0, 0), {})
        assert nothing == {"CUDA_VISIBLE_DEVICES": [0, 1, 2], "threads_per_worker": 1}

    def test_gpus_that_are_there_and_fail_are_not_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(**given: Any) -> None:
            raise RuntimeError("out of memory")

        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=fails))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 1))
        with pytest.raises(ClusterError, match=r"GPUs were found, but .*out of memory.* run on the CPU"):
            local._gpu_cluster("auto", None, None, {})

    def test_a_plan_that_fails_is_told_and_not_taken_for_a_missing_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(devices: Any) -> local.Pool:
            raise SpecError("no such kernel")

        monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=lambda **given: given))
        monkeypatch.setitem(sys.modules, "dask_cuda.utils", SimpleNamespace(get_n_gpus=lambda: 1))
        monkeypatch.setattr(local, "find_spec", lambda name: object())
        with pytest.raises(SpecError, match="no such kernel"):
            local._gpu_cluster("auto", None, refuses, {})


def test_log_levels_are_restored(cluster2: str) -> None:
    level = logging.getLogger("distributed").level
    with connect(cluster2):
        assert not logging.getLogger("distributed.worker").isEnabledFor(logging.ERROR)
    assert logging.getLogger("distributed").level == level


_COMMAND = """
import sys
from tests.support import ranks
from daskkern.cluster.gang.gang import run_gang
from daskkern.cluster.connect.local import connect
from distributed import Client
if __name__ == "__main__":
    with {cluster}:
        print(run_gang(client, ranks.until_stopped, {folder!r}, name="command"), flush=True)
"""
_CLUSTERS = {
    "of daskkern": "connect(workers=2, threads_per_worker=1) as connection, connection.client as client",
    "of Dask": "Client(n_workers=2, threads_per_worker=1, dashboard_address='127.0.0.1:0') as client",
}


@pytest.mark.parametrize("cluster", [pytest.param("of daskkern", marks=pytest.mark.repeated), "of Dask"])
def test_ctrl_c_in_a_terminal_stops_the_fit_and_says_nothing_else(cluster: str, tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(_COMMAND.format(folder=str(tmp_path), cluster=_CLUSTERS[cluster]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started((sys.executable, script), env=environment, **pipes) as child:
        wait_until(lambda: len(list(tmp_path.glob("running-*"))) == 2, timeout_s=120, what="a running fit")
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        output, errors = child.communicate(timeout=60)
    assert errors == ""
    assert child.returncode == 0
    steps = [int(word) for word in output.strip(" []\n").split(",")]
    assert steps[0] == steps[1] > 0
