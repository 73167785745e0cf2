"""Clusters that tests start end all their processes, and no others."""

import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest
from distributed import Client
from distributed.utils import get_mp_context

from tests.support.cluster import PIDS, leave_pid, local_cluster, wait_until, worker_pids
from tests.support.processes import marked_processes


def _linger(folder: str) -> None:
    leave_pid(folder)
    time.sleep(120)


def _lost_worker(client: Client) -> BaseProcess:
    """Start a process as the cluster's nanny starts its workers, and do not tell the nanny."""
    (nanny,) = client.cluster.workers.values()
    process: BaseProcess = get_mp_context().Process(target=_linger, args=(nanny.env[PIDS],), daemon=True)
    process.start()
    wait_until(lambda: (Path(nanny.env[PIDS]) / str(process.pid)).exists())
    return process


@pytest.mark.long
def test_a_closed_cluster_ends_the_processes_that_dask_lost_sight_of() -> None:
    with local_cluster(1) as outer, local_cluster(1) as inner:
        (outer_pid,), (inner_pid,) = worker_pids(outer).values(), worker_pids(inner).values()
        of_outer, of_inner = _lost_worker(outer), _lost_worker(inner)
        inner.close()
        inner.cluster.close()
        assert of_inner.is_alive()
    for process in (of_outer, of_inner):
        process.join(10)
        assert process.exitcode not in (0, None)
    assert not psutil.pid_exists(outer_pid)
    assert not psutil.pid_exists(inner_pid)


def test_the_processes_of_another_cluster_live_on() -> None:
    with local_cluster(1) as outer:
        with local_cluster(1):
            lost = _lost_worker(outer)
        assert lost.is_alive()
        assert outer.submit(sum, [1, 2]).result(timeout=30) == 3
    lost.join(10)
    assert lost.exitcode not in (0, None)


def test_workers_are_among_the_processes_of_a_run() -> None:
    with local_cluster(1) as client:
        (pid,) = worker_pids(client).values()
        assert pid in [process.pid for process in marked_processes()]
    wait_until(lambda: pid not in [process.pid for process in marked_processes()])


def test_workers_are_forked_from_a_process_with_one_thread() -> None:
    with local_cluster(1) as client:
        (pid,) = worker_pids(client).values()
        assert psutil.Process(pid).parent().num_threads() == 1
