"""A worker that cannot hold its part of a fit is left out with a sentence, and the fit goes on with the others."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from distributed import Client

from daskkern.basis import Landmarks
from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.gang import GangSettings
from daskkern.data.schema.schema import Scaling
from daskkern.errors import MemoryBudgetError
from daskkern.events import BatchFinished, Event, FitResumed, RankReported, StageFinished, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import mixed_cluster, worker_pids
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

SMALL, LARGE = 380_000_000, 2_000_000_000
"""Of the first, less may be planned with than what an interpreter takes with its libraries."""
SETTINGS = FitSettings(
    Gaussian(2.0), Squared(), Landmarks(300), EigenPro(subsample=100), 1e-4, max_epochs=2, batch_size=200, seed=3,
    dtype="float32", device="cpu",
)  # fmt: skip


def _source() -> ArraySource:
    X = np.random.default_rng(0).standard_normal((4000, 6), np.float32)
    y = np.sin(X[:, :1] + X[:, 1:2])
    return ArraySource(X, y, None, SourceInfo(4000, 6, "regression", None, Scaling(), None, 1, True))


class Fit:
    """A fit, its events, and the sentences on workers that were left out."""

    def __init__(self, client: Client, gang: GangSettings, settings: FitSettings = SETTINGS) -> None:
        self.events: list[Event] = []
        self._client, self._gang, self._settings = client, gang, settings

    def run(self) -> "Fit":
        policy = CheckpointPolicy(commit_s=0.1)
        found = fit(
            _source(), self._settings, client=self._client, gang=self._gang, policy=policy, listener=self.listen
        )
        self.coef = found.model.coef
        return self

    def listen(self, event: Event) -> None:
        self.events.append(event)

    @property
    def ranks(self) -> int:
        return len({event.rank for event in self.events if isinstance(event, RankReported)})

    @property
    def left_out(self) -> list[str]:
        stages = (event for event in self.events if isinstance(event, StageFinished) and event.stage == "workers")
        return [event.detail for event in stages if "too little memory" in event.detail]


def _small(client: Client) -> str:
    known = client.scheduler_info(n_workers=-1)["workers"]
    return next(address for address, worker in known.items() if worker["memory_limit"] == SMALL)


@contextmanager
def _cluster(sizes: Sequence[int], later: int = LARGE) -> Iterator[Client]:
    with mixed_cluster([(1, size) for size in sizes], later=(1, later)) as client:
        yield client


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    """The coefficients of the fit in this process."""
    return fit(_source(), SETTINGS).model.coef


@pytest.mark.long
def test_a_fit_goes_on_without_a_worker_that_is_too_small(alone: np.ndarray) -> None:
    with _cluster([SMALL, LARGE, LARGE]) as client:
        small = _small(client)
        order = (small, *(address for address in worker_pids(client) if address != small))
        for n_ranks, ranks in ((None, 2), (1, 1), (2, 2), (3, 2)):
            found = Fit(client, GangSettings(n_ranks=n_ranks, workers=order, elastic=False)).run()
            assert found.ranks == ranks, n_ranks
            assert len(found.left_out) == 1, n_ranks
            assert small in found.left_out[0]
            assert "the fit goes on without it" in found.left_out[0]
            np.testing.assert_allclose(found.coef, alone, rtol=1e-3, atol=1e-4 * np.abs(alone).max())
        declared = Fit(client, GangSettings(share_memory=500_000_000, elastic=False)).run()
        assert declared.ranks == 2


@pytest.mark.long
def test_a_fit_that_no_worker_holds_is_refused_with_the_numbers() -> None:
    with _cluster([SMALL, SMALL]) as client:
        begun = time.monotonic()
        for n_ranks in (None, 1):
            found = Fit(client, GangSettings(n_ranks=n_ranks))
            with pytest.raises(MemoryBudgetError, match=r"one rank would need .* but its budget is"):
                found.run()
            assert not found.left_out
        with pytest.raises(MemoryBudgetError, match="declared 500,000,000 bytes"):
            Fit(client, GangSettings(share_memory=500_000_000)).run()
        assert time.monotonic() - begun < 60


class _Joined(Fit):
    """A fit that is joined by another worker once it runs, and then loses its last rank.

    An elastic one loses it when the other has been left out, others as soon as it is there.
    """

    joined = killed = False
    victim = 0

    def listen(self, event: Event) -> None:
        super().listen(event)
        if isinstance(event, BatchFinished) and not self.joined:
            self.joined = True
            self._client.cluster.scale(3)
        elif isinstance(event, BatchFinished) and not self.killed and self._is_decided():
            self.killed = True
            os.kill(self.victim, signal.SIGKILL)

    def _is_decided(self) -> bool:
        return bool(self.left_out) if self._gang.elastic else len(live_workers(self._client)) == 3


@pytest.mark.long
@pytest.mark.parametrize("elastic", [True, False])
def test_a_small_worker_that_joins_later_is_left_out_once(elastic: bool) -> None:
    with _cluster([LARGE, LARGE], later=SMALL) as client:
        joined = _Joined(client, GangSettings(rejoin_s=20.0, elastic=elastic), replace(SETTINGS, max_epochs=400))
        joined.victim = list(worker_pids(client).values())[1]
        joined.run()
        assert joined.killed
        assert [event for event in joined.events if isinstance(event, WorkersLost)]
        assert len(joined.left_out) == 1
        assert _small(client) in joined.left_out[0]
        resumed = [event.size for event in joined.events if isinstance(event, FitResumed)]
        assert resumed[-1] == 2, "the worker that was lost came back"
        assert_nothing_left(client)
