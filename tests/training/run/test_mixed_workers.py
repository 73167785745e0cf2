"""Fits on worker processes of different size: refused where all were like the smallest, and with the same answer."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from distributed import Client

from daskkern.basis import Landmarks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.data.schema.schema import Scaling
from daskkern.errors import MemoryBudgetError
from daskkern.events import Event, RankReported, StageFinished
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.planner import upper_bound_plan, upper_bound_summary
from daskkern.training.planning.worker_resources import resources_of, speeds_of
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import mixed_cluster

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


def test_three_workers_divide_by_memory(alone: np.ndarray) -> None:
    with mixed_cluster([(1, limit) for limit in _limits(2)]) as client:
        coef, events = _fitted(client)
    assert "3 ranks by memory and speed" in _shared(events)
    assert [rank.columns < 0.3 * P for rank in _by_columns(events)] == [True, True, False]
    np.testing.assert_allclose(coef, alone, rtol=1e-3, atol=1e-4 * np.abs(alone).max())


def test_the_speed_of_different_workers_is_measured() -> None:
    with mixed_cluster([(1, 2 << 30), (2, 2 << 30)]) as client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        resources = resources_of(client, SETTINGS, workers, None)
        summary = upper_bound_summary(_source(), SETTINGS)
        few = speeds_of(client, summary, _source(), SETTINGS, workers, resources)
        speeds = speeds_of(client, replace(summary, n=10**9), _source(), SETTINGS, workers, resources)
        same = [replace(resource, kind="the same") for resource in resources]
        alike = speeds_of(client, replace(summary, n=10**9), _source(), SETTINGS, workers, same)
    assert few == alike == (1.0, 1.0)
    assert sorted(resource.threads for resource in resources) == [1, 2]
    assert min(speeds) == 1.0
    assert max(speeds) < 16
