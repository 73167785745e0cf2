"""Fits on worker processes of different size: refused where all were like the smallest, and with the same answer."""

import math
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern.basis import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.data.schema.schema import Scaling
from daskkern.errors import MemoryBudgetError
from daskkern.events import BatchFinished, Event, FitResumed, RankReported, StageFinished, WorkersLost
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.planning.cluster_planner import ClusterPlanner
from daskkern.training.planning.planner import upper_bound_plan, upper_bound_summary
from daskkern.training.planning.worker_resources import resources_of
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import mixed_cluster, worker_pids

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

N, P = 20_000, 1200
SETTINGS = FitSettings(
    Gaussian(2.0), Squared(), Landmarks(P), EigenPro(subsample=400), 1e-4, max_epochs=2, batch_size=500, seed=3,
    dtype="float32", device="cpu", keep_blocks="memory",
)  # fmt: skip


def _source() -> ArraySource:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 6), np.float32)
    return ArraySource(
        X, np.sin(X[:, :1] + X[:, 1:2]), None, SourceInfo(N, 6, "regression", None, Scaling(), None, 1, True)
    )


def _limits(n_small: int) -> list[int]:
    """Return memory limits of which the smaller ones have room for about a sixth of the blocks, and no set-up."""
    plan = upper_bound_plan(_source(), SETTINGS, n_small + 1, 1, 1 << 40)
    blocks = 4 * N * P
    small = plan.total - dict(plan.items)["set-up peak above training peak"] + blocks / 6
    return [math.ceil(small / 0.8)] * n_small + [math.ceil((plan.total + 4 * blocks) / 0.8)]


def _fitted(client: Client | None) -> tuple[np.ndarray, list[Event]]:
    """Return coefficients and events of a fit."""
    events: list[Event] = []
    gang = None if client is None else GangSettings(elastic=False)
    return fit(_source(), SETTINGS, client=client, gang=gang, listener=events.append).model.coef, events


def _by_columns(events: Sequence[Event]) -> list[RankReported]:
    """Return a report of each rank, that with the fewest columns first."""
    ranks = {event.rank: event for event in events if isinstance(event, RankReported)}
    return sorted(ranks.values(), key=lambda event: event.columns)


def _shared(events: Sequence[Event]) -> str:
    return next(event.detail for event in events if isinstance(event, StageFinished) and event.stage == "columns")


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    """The coefficients of the fit in this process."""
    return _fitted(None)[0]


@pytest.mark.long
def test_two_workers_fit_what_two_small_ones_refuse(alone: np.ndarray) -> None:
    limits = small, large = _limits(1)
    with mixed_cluster([(1, small), (1, small)]) as client, pytest.raises(MemoryBudgetError, match="budget"):
        _fitted(client)
    with mixed_cluster([(1, small), (1, large)]) as client:
        coef, events = _fitted(client)
    assert "by memory and speed" in _shared(events)
    ranks = _by_columns(events)
    assert sum(rank.columns for rank in ranks) == P
    assert ranks[0].columns < 0.3 * P
    assert all(rank.planned_bytes <= 0.8 * limit for rank, limit in zip(ranks, limits, strict=True))
    np.testing.assert_allclose(coef, alone, rtol=1e-3, atol=1e-4 * np.abs(alone).max())


@pytest.mark.repeated
def test_three_workers_divide_by_memory(alone: np.ndarray) -> None:
    with mixed_cluster([(1, limit) for limit in _limits(2)]) as client:
        coef, events = _fitted(client)
    assert "3 ranks by memory and speed" in _shared(events)
    assert [rank.columns < 0.3 * P for rank in _by_columns(events)] == [True, True, False]
    np.testing.assert_allclose(coef, alone, rtol=1e-3, atol=1e-4 * np.abs(alone).max())


@pytest.mark.repeated
def test_the_columns_of_a_lost_worker_are_divided_again(tmp_path: Path) -> None:
    X = np.asarray(_source().X)
    np.savez(tmp_path / "rows.npz", X=X, y=np.sin(X[:, 0] + X[:, 1]))
    daskkern.ingest([str(tmp_path / "rows.npz")], tmp_path / "rows.zarr")
    source = StoreSource.at(str(tmp_path / "rows.zarr"))
    settings = replace(SETTINGS, max_epochs=6)
    events: list[Event] = []
    limits = _limits(2)
    with mixed_cluster([(1, limit) for limit in limits]) as client:
        known = client.scheduler_info(n_workers=-1)["workers"]
        small = next(address for address, worker in known.items() if worker["memory_limit"] == limits[0])
        victim = worker_pids(client)[small]

        def listen(event: Event) -> None:
            killed = any(isinstance(event, BatchFinished) and event.epoch >= 3 for event in events)
            events.append(event)
            if not killed and isinstance(event, BatchFinished) and event.epoch >= 3:
                os.kill(victim, signal.SIGKILL)

        gang = GangSettings(silence_s=10.0, rejoin_s=2.0)
        policy = CheckpointPolicy(commit_s=0.1)
        found = fit(source, settings, client=client, gang=gang, policy=policy, listener=listen).model
    assert len([event for event in events if isinstance(event, WorkersLost)]) == 1
    again = next(event for event in events if isinstance(event, FitResumed))
    assert (again.epoch, again.batch) > (1, 0)  # from a commit; how late one was made depends on the machine
    assert again.size in (2, 3)
    expected = fit(source, settings).model
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-3, atol=1e-4 * np.abs(expected.coef).max())


@pytest.mark.long
def test_the_speed_of_different_workers_is_measured() -> None:
    with mixed_cluster([(1, 2 << 30), (2, 2 << 30)]) as client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        resources = resources_of(client, SETTINGS, workers, None)
        summary = upper_bound_summary(_source(), SETTINGS)
        planner = ClusterPlanner(client, _source(), SETTINGS, workers, resources)
        few = planner.speeds(summary)
        speeds = planner.speeds(replace(summary, n=10**9))
        same = [replace(resource, kind="the same") for resource in resources]
        alike = replace(planner, resources=same).speeds(replace(summary, n=10**9))
    assert few == alike == (1.0, 1.0)
    assert sorted(resource.threads for resource in resources) == [1, 2]
    assert min(speeds) == 1.0
    assert max(speeds) < 16
