"""A cluster that cannot run a fit is refused with a sentence that says what to do, before anything starts."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from distributed import Client

from daskkern.cluster.connect import preflight as choosing
from daskkern.cluster.connect.protocol import PROTOCOL
from daskkern.cluster.gang import hanging_workers as hung
from daskkern.cluster.gang.gang import GangSettings, PerRank, run_gang
from daskkern.cluster.gang.hanging_workers import equip, remove_hanging_workers
from daskkern.cluster.gang.worker_plugin import PLUGIN_NAME, CollectivesPlugin, install
from daskkern.errors import ClusterError, SpecError
from daskkern.events import Event, StageFinished
from tests.support import ranks
from tests.support.children.bare_workers import bare_worker
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.processes import started

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


@contextmanager
def process(*command: str, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a Dask command; it is killed at the end."""
    words = (sys.executable, "-m", "distributed.cli." + command[0], *command[1:])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with started(words, cwd="/", env={**os.environ, **environment}, **quiet) as child:
        yield child


@pytest.mark.long
def test_a_worker_without_daskkern_is_named_with_the_remedy_where_no_other_will_do(tmp_path: Path) -> None:
    remedy = r"^worker tcp://\S+ cannot import daskkern .*; install daskkern=="
    with local_cluster(1) as client, bare_worker(client, tmp_path) as bare:
        for settings in (GangSettings(workers=(bare,)), GangSettings(n_ranks=2)):
            with pytest.raises(ClusterError, match=remedy):
                run_gang(client, ranks.own_payload, None, name="bare", settings=settings)
        assert run_gang(client, ranks.own_payload, 7, name="without") == [(0, 7)]
    with local_cluster(0) as client, bare_worker(client, tmp_path), pytest.raises(ClusterError, match=remedy):
        run_gang(client, ranks.own_payload, None, name="alone")


@pytest.mark.long
def test_a_worker_that_cannot_load_the_code_is_named_and_stays_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def work(*of): return of\n")
    here = os.pathsep.join(sys.path)
    monkeypatch.syspath_prepend(tmp_path)
    work = import_module("only_here").work
    with local_cluster(1) as client:
        worker = ("dask_worker", client.scheduler.address, "--no-nanny", "--no-dashboard")
        with process(*worker, PYTHONPATH=here):
            client.wait_for_workers(2, timeout=30)
            with pytest.raises(ClusterError, match=r"cannot load what the ranks run .ModuleNotFoundError.*'only_here'"):
                run_gang(client, work, None, name="unknown")
            assert len(client.run(lambda: None)) == 2


@pytest.mark.repeated
def test_a_scheduler_without_daskkern_is_named_with_the_remedy(tmp_path: Path, unused_port: int) -> None:
    (tmp_path / "daskkern.py").write_text('raise ModuleNotFoundError("No module named daskkern", name="daskkern")')
    address = f"tcp://127.0.0.1:{unused_port}"
    here = os.pathsep.join(sys.path)
    options = ("--port", str(unused_port), "--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", ":0")
    worker = ("dask_worker", address, "--no-dashboard", "--no-nanny")
    with (
        process("dask_scheduler", *options, PYTHONPATH=str(tmp_path)),
        process(*worker, PYTHONPATH=here),
        Client(address, timeout=30, set_as_default=False) as client,
    ):
        client.wait_for_workers(1, timeout=30)
        with pytest.raises(ClusterError, match=rf"^the scheduler at {address} cannot import daskkern .*; install"):
            run_gang(client, ranks.own_payload, None, name="bare")


def test_a_worker_with_another_version_is_named(client2: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "VERSION", "0.0.7")
    with pytest.raises(ClusterError, match=r"worker tcp://\S+ has daskkern \S+ and this process has 0\.0\.7"):
        run_gang(client2, ranks.own_payload, None, name="old")


def test_a_process_that_has_loaded_other_messages_is_told_to_restart(
    client2: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "PROTOCOL", 99)
    reported = rf"^worker tcp://\S+ has loaded another daskkern than is installed now: it speaks version {PROTOCOL} of"
    with pytest.raises(ClusterError, match=reported):
        run_gang(client2, ranks.own_payload, None, name="loaded")


def test_handlers_of_another_version_are_refused_and_do_no_harm(client2: Client) -> None:
    run_gang(client2, ranks.own_payload, PerRank((1, 2)), name="before")
    older = CollectivesPlugin()
    older.protocol = 3
    with pytest.raises(
        ClusterError, match=r"^worker tcp://\S+ speaks version \d+ .* and this client version 3; install"
    ):
        client2.register_plugin(older, name="daskkern_collectives_3")
    assert run_gang(client2, ranks.own_payload, PerRank((1, 2)), name="after") == [(0, 1), (1, 2)]
    client2.unregister_worker_plugin("daskkern_collectives_3")


@pytest.mark.repeated
def test_workers_that_hang_and_that_no_fit_uses_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, events = GangSettings(n_ranks=2, silence_s=2.0, rejoin_s=20.0), list[Event]()
    with local_cluster(3) as client:
        workers = list(worker_pids(client).items())
        monkeypatch.setattr(hung, "install", partial(install, timeout_s=3.0))
        os.kill(workers[0][1], signal.SIGSTOP)
        equip(client, settings.silence_s, events.append)
        assert client.run(lambda dask_worker: PLUGIN_NAME in dask_worker.plugins, workers=[workers[1][0]])
        os.kill(workers[1][1], signal.SIGSTOP)
        time.sleep(2.5)  # until the scheduler misses it
        assert run_gang(client, ranks.own_payload, None, name="first", settings=settings, listener=events.append)
        reported = [event.detail for event in events if isinstance(event, StageFinished)]
        for (address, _), line in zip(workers, reported, strict=False):
            assert line.startswith(f"worker {address} (")
            assert line.endswith("hangs: nothing was heard of it for 2 s; it was removed")
        assert len(reported) == 2
        client.wait_for_workers(3, timeout=30)  # their nannies have started others


@pytest.mark.repeated
def test_a_worker_that_hangs_is_dead_once_it_was_removed() -> None:
    """If it woke up it would close its nanny, and no other worker would be started."""
    with local_cluster(2) as client:
        victim = psutil.Process(next(iter(worker_pids(client).values())))
        victim.suspend()
        time.sleep(2.5)  # until the scheduler misses it
        assert len(remove_hanging_workers(client, 2.0)) == 1
        assert not victim.is_running() or hung.status() == psutil.STATUS_ZOMBIE
        client.wait_for_workers(2, timeout=30)


def test_a_worker_cannot_be_taken_twice(client2: Client) -> None:
    address = next(iter(client2.run(lambda: None)))
    with pytest.raises(SpecError, match="the same worker twice"):
        run_gang(client2, ranks.own_payload, None, name="twice", settings=GangSettings(workers=(address, address)))


def test_an_asynchronous_client_is_refused(cluster2: str) -> None:
    async def fit() -> None:
        async with Client(cluster2, asynchronous=True, set_as_default=False) as client:
            run_gang(client, ranks.own_payload, None, name="async")

    with pytest.raises(ClusterError, match="this Dask client is asynchronous"):
        asyncio.run(fit())


@pytest.mark.repeated
def test_a_scheduler_that_dies_ends_the_fit(tmp_path: Path, unused_port: int) -> None:
    address = f"tcp://127.0.0.1:{unused_port}"
    here = os.pathsep.join(sys.path)
    options = ("--port", str(unused_port), "--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", ":0")
    worker = ("dask_worker", address, "--no-dashboard", "--nworkers", "2", "--nthreads", "1")
    with process("dask_scheduler", *options, PYTHONPATH=here) as scheduler, process(*worker, PYTHONPATH=here):
        with Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=30)

            def kill(event: object) -> None:
                scheduler.kill()

            with pytest.raises(ClusterError, match=f"the Dask scheduler at {address} cannot be reached"):
                run_gang(client, ranks.emits_and_waits, str(tmp_path), name="orphan", listener=kill)
        wait_until(lambda: len(list(tmp_path.glob("done-*"))) == 2, timeout_s=20, what="the end of both ranks")


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
