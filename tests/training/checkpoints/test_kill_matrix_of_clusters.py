"""Faults of what a fit depends on besides its workers x every solver x 2 and 3 workers: the answer does not change.

Its disk is full, its writer is cut off, its client and supervisor die together, its scheduler restarts, or its workers
come late. Rows and marks are as in ``test_kill_matrix.py``.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from distributed import Client

from daskkern.errors import ClusterError
from daskkern.events import CheckpointFailed, Event, FitQueued, FitResumed, FitStarted, WorkersLost
from daskkern.training.checkpoints.checkpoint import open_checkpoint
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.claims import commits_of
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_held
from tests.support.processes import started
from tests.support.recovery.kill_matrix import (
    DEAF,
    EPOCHS,
    LONGER,
    Scene,
    Story,
    Undisturbed,
    cells,
    digits_store,
    settings_for,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

_DRIVER = """
import sys
from contextlib import nullcontext
from distributed import Client
from daskkern.events import BatchFinished, CheckpointFailed, CheckpointWritten
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from tests.support.cluster import local_cluster
from tests.support.recovery.kill_matrix import DEAF, settings_for

written = False

def listener(event):
    global written
    written = written or isinstance(event, CheckpointWritten)
    if isinstance(event, CheckpointFailed):
        print("failed:", event.reason, flush=True)
    if written and isinstance(event, BatchFinished) and event.epoch >= 3:
        print("going", flush=True)

if __name__ == "__main__":
    where, store, solver, epochs, place = sys.argv[1:]
    policy = CheckpointPolicy(commit_s=0.05, commit_share=0.2, checkpoint=place, checkpoint_s=0.05)
    with local_cluster(int(where)) if where.isdigit() else Client(where) as client:
        fit(StoreSource.at(store), settings_for(solver, int(epochs)), client=client, gang=DEAF, policy=policy,
            listener=listener)
    print("ended", flush=True)
"""


@dataclass(frozen=True)
class Case:
    """A cell: settings of its fit, number of workers, a folder, and undisturbed scores."""

    solver: str
    workers: int
    folder: Path
    undisturbed: Undisturbed

    @property
    def settings(self) -> FitSettings:
        return settings_for(self.solver, LONGER["Falkon"] if self.solver == "Falkon" else EPOCHS)

    @property
    def policy(self) -> CheckpointPolicy:
        place = str(self.folder / "checkpoint")
        return CheckpointPolicy(commit_s=0.05, commit_share=0.2, checkpoint=place, checkpoint_s=0.05)

    def fit(
        self,
        client: Client,
        listener: Callable[[Event], None],
        *,
        n_ranks: int | None = None,
        resume: bool = False,
        checkpoint: bool = True,
    ) -> FitResult:
        policy = replace(self.policy, resume=resume) if checkpoint else CheckpointPolicy(commit_s=0.05)
        # Workers that a fit asks for may still have to start.
        gang = DEAF if n_ranks is None else replace(DEAF, n_ranks=n_ranks, rejoin_s=60.0, idle_s=120.0)
        return fit(self.undisturbed.source, self.settings, client=client, listener=listener, gang=gang, policy=policy)

    def resumed(self, client: Client, *, forgotten: bool = True) -> None:
        """Go on from the checkpoint, to the answer of an undisturbed fit, after which workers hold nothing.

        Not `forgotten`: they may hold what a fit has left whose client and supervisor died, for some minutes.
        """
        events: list[Event] = []
        found = self.fit(client, events.append, resume=True)
        resumed = [event for event in events if isinstance(event, FitResumed)]
        assert resumed, "the fit began anew"
        assert (resumed[0].epoch, resumed[0].batch) > (1, 0)
        self.undisturbed.assert_same(self.settings, found.model)
        if forgotten:
            assert_nothing_held(client)

    def commits(self) -> list[str]:
        """Return the names of the commits of the checkpoint."""
        return sorted(path.name for path in (self.folder / "checkpoint").glob("commit-*"))

    @contextmanager
    def driver(self, where: str) -> Iterator["subprocess.Popen[str]"]:
        """Yield a process that runs the fit at an address, or on workers of its own, once it is under way."""
        script = self.folder / "driver.py"
        script.write_text(_DRIVER)
        command = (sys.executable, script, where, self.undisturbed.source.location, self.solver,
                   self.settings.max_epochs, self.policy.checkpoint)  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with started(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "going\n"
            yield child


def fill_the_disk(case: Case) -> None:
    """Let files of more than 2 kB fail from the third epoch on: no further commit can be written."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    with local_cluster(case.workers) as client:
        story = Story(lambda: client.run(limit))
        found = case.fit(client, story)
        case.undisturbed.assert_same(case.settings, found.model)
        (failed,) = story.kinds(CheckpointFailed)
        assert "the fit goes on without it" in failed.reason
        assert len(case.commits()) == 1, "something partial was left"
        assert len(commits_of(open_checkpoint(str(case.folder / "checkpoint")))) == 1
        assert not story.kinds(WorkersLost)
        assert_nothing_held(client)


def cut_the_writer_off(case: Case) -> None:
    """Stop a whole cluster with its driver, let another go on from the checkpoint, and let the first one wake."""
    with case.driver(str(case.workers)) as child:
        os.killpg(child.pid, signal.SIGSTOP)
        with local_cluster(case.workers) as client:
            case.resumed(client)
        after = case.commits()
        os.killpg(child.pid, signal.SIGCONT)
        # It goes on, is refused as a writer, and ends; or it finds its own workers gone.
        with suppress(subprocess.TimeoutExpired):
            child.wait(60)
        # What it was writing when it was stopped may be complete now, and does not count: its generation is earlier.
        assert case.commits()[-1] == after[-1], "the first one has written"


def kill_client_and_supervisor(case: Case) -> None:
    with local_cluster(case.workers) as client:
        with case.driver(client.scheduler.address) as child:
            pids = worker_pids(client)
            scene = Scene(client, list(pids.values()), list(pids))
            supervisor = scene.supervisor()
            child.kill()
            scene.kill(supervisor)
            child.wait(30)
        wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == case.workers, what="all workers")
        case.resumed(client, forgotten=False)


def restart_the_scheduler(case: Case) -> None:
    """Kill the scheduler, and start another one at its address, with workers of its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with _dask(port, case.workers) as (client, scheduler):
        story = Story(scheduler.kill)
        with pytest.raises(ClusterError, match="scheduler"):
            case.fit(client, story)
    with _dask(port, case.workers) as (client, _):
        case.resumed(client)


@contextmanager
def _dask(port: int, n_workers: int) -> Iterator[tuple[Client, "subprocess.Popen[str]"]]:
    """Yield a client of a scheduler and workers that are processes of their own, and the scheduler's process."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "distributed.cli")
    address = f"tcp://127.0.0.1:{port}"
    scheduler = (*command[:2], "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port,
                 "--no-dashboard", "--dashboard-address", ":0")  # fmt: skip
    workers = (*command[:2], "distributed.cli.dask_worker", address, "--host", "127.0.0.1", "--nthreads", "1",
               "--nworkers", n_workers, "--no-dashboard")  # fmt: skip
    with (
        started(scheduler, env=environment, **quiet) as process,
        started(workers, env=environment, **quiet),
        Client(address, timeout=60, set_as_default=False) as client,
    ):
        client.wait_for_workers(n_workers, timeout=120)
        yield client, process


def begin_without_workers(case: Case) -> None:
    """Start on an adaptive cluster of none, and kill a worker that it has started."""
    with local_cluster(0) as client:
        client.cluster.adapt(minimum=0, maximum=case.workers, interval="200ms")
        story = Story(lambda: os.kill(list(worker_pids(client).values())[-1], signal.SIGKILL))
        found = case.fit(client, story, n_ranks=case.workers, checkpoint=False)
        case.undisturbed.assert_same(case.settings, found.model)
        assert story.kinds(WorkersLost), "the fault was not noticed"
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], what="the end of idle workers")


def let_workers_trickle_in(case: Case) -> None:
    """Start when there is one worker, and let the others come one after the other."""
    with local_cluster(1) as client:

        def trickle() -> None:
            for number in range(2, case.workers + 1):
                time.sleep(1.0)
                client.cluster.scale(number)

        events: list[Event] = []
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        found = case.fit(client, events.append, n_ranks=case.workers, checkpoint=False)
        thread.join()
        case.undisturbed.assert_same(case.settings, found.model)
        assert any(isinstance(event, FitQueued) for event in events)
        assert [event.size for event in events if isinstance(event, FitStarted)] == [case.workers]
        assert_nothing_held(client)


FAULTS: dict[str, Callable[[Case], None]] = {
    "the checkpoint's disk is full": fill_the_disk,
    "a writer is cut off": cut_the_writer_off,
    "client and supervisor are killed": kill_client_and_supervisor,
    "the scheduler restarts": restart_the_scheduler,
    "an adaptive cluster has no workers": begin_without_workers,
    "workers trickle in": let_workers_trickle_in,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(digits_store(tmp_path_factory.mktemp("clusters")))


@pytest.mark.parametrize(
    ("fault", "solver", "workers"), cells(list(FAULTS), long=("a writer is cut off", "the scheduler restarts"))
)
def test_a_fault_around_the_workers_does_not_change_the_answer(
    fault: str, solver: str, workers: int, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    FAULTS[fault](Case(solver, workers, tmp_path, undisturbed))
