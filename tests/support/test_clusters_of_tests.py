"""Clusters that tests start end all their processes, and no others."""

import subprocess
import sys

import psutil
from distributed import Client

from tests.support.cluster import local_cluster, worker_pids


def _lost_worker(client: Client) -> subprocess.Popen[bytes]:
    """Start a process as the cluster's nanny starts its workers, and do not tell the nanny."""
    (nanny,) = client.cluster.workers.values()
    command = "import time; time.sleep(120)  # spawn_main"
    return subprocess.Popen([sys.executable, "-c", command], env=nanny.pre_spawn_env)


def test_a_closed_cluster_ends_the_processes_that_dask_lost_sight_of() -> None:
    with local_cluster(1) as outer, local_cluster(1) as inner:
        (outer_pid,), (inner_pid,) = worker_pids(outer).values(), worker_pids(inner).values()
        of_outer, of_inner = _lost_worker(outer), _lost_worker(inner)
        inner.close()
        inner.cluster.close()
        assert of_inner.poll() is None
    assert of_outer.wait(10) != 0
    assert of_inner.wait(10) != 0
    assert not psutil.pid_exists(outer_pid)
    assert not psutil.pid_exists(inner_pid)


def test_the_processes_of_another_cluster_live_on() -> None:
    with local_cluster(1) as outer:
        with local_cluster(1):
            lost = _lost_worker(outer)
        assert lost.poll() is None
        assert outer.submit(sum, [1, 2]).result(timeout=30) == 3
    assert lost.wait(10) != 0
