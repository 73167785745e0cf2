"""Hosts with addresses of their own: a link goes silent in mid-fit, and the fit goes on without it, and with it."""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_digits

import daskkern
from daskkern import Landmarks
from daskkern.cluster.connect import membership
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.gang.worker_plugin import registry_of
from daskkern.errors import ClusterError
from daskkern.events import BatchFinished, Event, FitResumed, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support import ranks
from tests.support.cluster import wait_until
from tests.support.network import Host, Network, NoNetworkError, dask_commands, network

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_IMPATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s"}
"""After so long without an answer Dask's workers take the scheduler for lost: 30 s by default, 11 s at least."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    try:
        with network(3) as made:
            yield made
    except NoNetworkError as reason:
        pytest.skip(str(reason))


@contextmanager
def cluster(hosts: Network, **environment: str) -> Iterator[Client]:
    """A scheduler on the first host and a worker on each other; all links are whole again at the end."""
    try:
        address = dask_commands(hosts.hosts[0], hosts.hosts[1:], environment=environment)
        with Client(address, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=30)
            yield client
    finally:
        for host in hosts.hosts:
            host.heal()
            host.end()


def home(client: Client) -> int:
    """Return the number of the worker that the supervisor runs on."""

    def look(dask_scheduler: Any = None) -> int:
        tasks = [task for task in dask_scheduler.tasks.values() if "-supervisor-" in str(task.key)]
        return int(tasks[0].processing_on.name)

    return int(client.run_on_scheduler(look))


def left_behind(dask_worker: Any = None) -> tuple[list[str], int]:
    """Return the fits that a worker has mailboxes of, and how many of its threads run a rank."""
    stacks = [traceback.extract_stack(frame) for frame in sys._current_frames().values()]
    return list(registry_of(dask_worker).mailboxes), sum(any(f.name == "run_rank" for f in s) for s in stacks)


class Cutter:
    """Cuts a link after `batches` batches were heard of, and heals it when the fit has gone on."""

    def __init__(self, client: Client, batches: int, victim: Callable[[int], Host]) -> None:
        self.events: list[tuple[float, Event]] = []
        self._client, self._batches, self._victim = client, batches, victim
        self._cut_at: float | None = None
        self._host: Host | None = None

    def __call__(self, event: Event) -> None:
        self.events.append((time.monotonic(), event))
        if isinstance(event, BatchFinished):
            self._batches -= 1
            if self._batches < 0 and self._cut_at is None:
                self._cut_at = time.monotonic()
                threading.Thread(target=self._cut, daemon=True).start()
        elif isinstance(event, FitResumed) and self._host is not None:
            self._host.heal()

    def _cut(self) -> None:
        self._host = self._victim(home(self._client))
        self._host.cut()
        self._cut_at = time.monotonic()

    @property
    def noticed_s(self) -> float:
        """Seconds from the cut to the first word of it."""
        assert self._cut_at is not None
        return next(at for at, event in self.events if isinstance(event, WorkersLost)) - self._cut_at

    @property
    def sizes(self) -> list[int]:
        """How many ranks went on, each time."""
        return [event.size for _, event in self.events if isinstance(event, FitResumed)]


def _nothing_left(client: Client) -> bool:
    """Return whether every worker answers that nothing is left; the scheduler may still hold a link that was cut."""
    try:
        return set(map(str, client.run(left_behind).values())) == {"([], 0)"}
    except OSError:  # CommClosedError is one
        return False


def check_that_all_is_well(client: Client, hosts: Network) -> None:
    """Check that the links are whole, nothing is left of the fit on any worker, and the next fit runs.

    A worker that was taken for lost is back, or has ended: Dask closes one that it has removed.
    """

    def serving() -> list[str]:
        return list(membership.live_workers(client))

    wait_until(
        lambda: len(serving()) == sum(bool(host.processes()) for host in hosts.hosts[1:]),
        timeout_s=40,
        what="the return or the end of the worker that was cut off",
    )
    wait_until(lambda: _nothing_left(client), what="the end of the ranks on both sides of the cut")
    assert set(run_gang(client, ranks.many_steps, 3, name="again")) == {1000.0}


@pytest.mark.repeated
def test_a_silent_link_costs_the_fit_a_worker_and_no_accuracy(hosts: Network, tmp_path: Path) -> None:
    X, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "d.npz", X=X.astype(np.uint8), y=y)
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", chunk_rows=200, scale="minmax")
    source = StoreSource.at(str(tmp_path / "d.zarr"))
    settings = FitSettings(
        Gaussian(1.5), SquaredHinge(), Landmarks(300), EigenPro(window=3), max_epochs=15, batch_size=32, device="cpu"
    )
    expected = fit(source, settings)
    quick = GangSettings(silence_s=3.0, rejoin_s=1.0)
    with cluster(hosts) as client:
        cutter = Cutter(client, 5, lambda number: hosts.hosts[1 + (1 - number)])
        found = fit(source, settings, client=client, listener=cutter, gang=quick, policy=CheckpointPolicy(commit_s=0.0))
        assert cutter.noticed_s < quick.silence_s + 5.0, "Dask itself would need 30 s"
        assert cutter.sizes[0] == 1
        check_that_all_is_well(client, hosts)
    want, got = expected.model.scores(X / 16.0), found.model.scores(X / 16.0)
    assert np.abs(want - got).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.repeated  # supervisors that hang or are killed are in test_recovery.py
def test_a_supervisor_that_is_cut_off_is_replaced_and_does_no_harm_later(hosts: Network) -> None:
    quick = GangSettings(silence_s=2.0, rejoin_s=1.0)
    with cluster(hosts) as client:
        cutter = Cutter(client, 3, lambda number: hosts.hosts[1 + number])
        results = run_gang(client, ranks.counts, 500, name="cut", settings=quick, listener=cutter)
        assert {total for _, total, _ in results} == {500.0}
        assert cutter.sizes[1] == 1
        check_that_all_is_well(client, hosts)


@pytest.mark.repeated
def test_without_a_scheduler_the_client_is_told_and_the_ranks_end(
    hosts: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "ANSWER_S", 4.0)
    with cluster(hosts, **_IMPATIENT) as client:
        begun: list[float] = []

        def cut(event: Event) -> None:
            begun.append(time.monotonic())
            hosts.hosts[0].cut()

        with pytest.raises(ClusterError, match=r"the Dask scheduler at tcp://\S+ cannot be reached"):
            run_gang(client, ranks.emits_and_waits, str(tmp_path), name="cut", listener=cut)
        assert time.monotonic() - begun[0] < 4.0 + 8.0, "Dask itself would need 30 s"
        assert len([name for name in os.listdir(tmp_path) if name.startswith("running")]) == 2
        ended = lambda: sum(name.startswith("done") for name in os.listdir(tmp_path)) == 2  # noqa: E731
        wait_until(ended, timeout_s=20, what="the end of both ranks without their scheduler")
