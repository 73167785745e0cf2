"""Fits on 48 and 64 ranks over sockets: the bits of one process, also when a rank is lost on the way."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, Worker

from daskkern.basis import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.gang.worker_plugin import registry_of
from daskkern.events import BatchFinished, EpochTimed, Event, FitResumed, FitStarted
from daskkern.kernels import Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import by_messages, one_process_cluster
from tests.support.fits import toy_source, toy_store

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.repeated,
    pytest.mark.timeout(400),
    # A connection that Dask gives up at its time limit, on a busy machine, is left to the garbage collector.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

GB = 1 << 30


def _settings(shards: int) -> FitSettings:
    """Return settings whose memory is enough for all ranks: each counts an interpreter of its own."""
    rule = Landmarks(2 * shards)
    return FitSettings(
        Laplacian(3.0), Squared(), rule, EigenPro(), 1e-3, max_epochs=3, batch_size=64, dtype="float64", device="cpu",
        virtual_shards=shards, memory_budget=GB,
    )  # fmt: skip


def _coef(
    settings: FitSettings, client: Client | None, listener: Callable[[Event], None], source: RowSource | None = None
) -> np.ndarray:
    if client is None:
        settings = replace(settings, memory_budget=64 * GB)
    gang = None if client is None else GangSettings(elastic=False)
    return fit(source or toy_source(), settings, client=client, gang=gang, listener=listener).model.coef


@pytest.mark.parametrize("n_ranks", [48, 64])
def test_many_ranks_have_the_bits_of_one(n_ranks: int) -> None:
    events: list[Event] = []
    with one_process_cluster(n_ranks) as client, by_messages(client) if n_ranks == 64 else nullcontext():
        found = _coef(_settings(n_ranks), client, events.append)
    assert [event.size for event in events if isinstance(event, FitStarted)] == [n_ranks]
    ways = {event.ways for event in events if isinstance(event, EpochTimed)}
    if n_ranks == 64:
        assert any("doubling" in names or "star" in names for names in ways)  # the number of cores decides which
    else:
        assert any("shared memory" in names for names in ways)
    np.testing.assert_array_equal(found, _coef(_settings(n_ranks), None, lambda event: None), strict=True)


@dataclass
class _Loss:
    """Closes the workers of `n_lost` of the ranks `ranks`, which have not been warned, at an event that meets a
    condition. That of the supervisor stays."""

    client: Client
    meets: Callable[[Event], bool]
    ranks: tuple[int, ...]
    n_lost: int = 1
    events: list[Event] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self.lost or not self.meets(event):
            return
        ranks = {rank: worker for worker in self.client.cluster.workers.values() for rank in _ranks_of(worker)}
        chosen = [ranks[rank] for rank in self.ranks if not _supervises(ranks[rank])]
        for worker in chosen[: self.n_lost]:
            self.lost.append(worker.address)
            leave = partial(worker.close, timeout=0, executor_wait=False, nanny=False, reason="killed")
            worker.loop.add_callback(leave)


def _ranks_of(worker: Worker) -> list[int]:
    return [mailbox.membership.rank for mailbox in registry_of(worker).mailboxes.values()]


def _supervises(worker: Worker) -> bool:
    return any("supervisor" in str(key) for key in worker.state.tasks)


PHASES: dict[str, Callable[[Event], bool]] = {
    "set-up": lambda event: isinstance(event, FitStarted),
    "first epoch": lambda event: isinstance(event, BatchFinished) and event.batch == 2,
    "later": lambda event: isinstance(event, BatchFinished) and event.epoch == 3,
}


@pytest.mark.parametrize("phase", PHASES)
def test_one_of_many_ranks_is_lost(phase: str, tmp_path: Path) -> None:
    source = toy_store(tmp_path)  # not sent: the test is of ranks
    with one_process_cluster(24) as client:
        loss = _Loss(client, PHASES[phase], (20, 5))
        found = _coef(_settings(32), client, loss, source)
    sizes = [event.size for event in loss.events if isinstance(event, FitStarted | FitResumed)]
    assert loss.lost
    assert sizes[-1] == 23
    np.testing.assert_array_equal(found, _coef(_settings(32), None, lambda event: None, source), strict=True)
