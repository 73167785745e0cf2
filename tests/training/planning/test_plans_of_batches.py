"""A plan does not refuse what the fit may run: batches that the set-up chooses are smaller than the largest ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

import daskkern
from daskkern.basis import Landmarks
from daskkern.cli.plan import _here, _on_cluster, _sure_batch
from daskkern.data.schema.schema import Scaling
from daskkern.errors import MemoryBudgetError
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource, StoreSource
from daskkern.training.planning import worker_resources
from daskkern.training.planning.memory_by_columns import INTERPRETER
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.planner import check_before, upper_bound_plan
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings

_X = np.zeros((20_000, 30), np.float32)
_SOURCE = ArraySource(_X, _X[:, 0], None, SourceInfo(*_X.shape, "regression", None, Scaling(), None, 1, True))
_SETTINGS = FitSettings(Gaussian(2.0), Squared(), Landmarks(5000), EigenPro(), device="cpu")


def _plan(budget: int, **changes: object) -> MemoryPlan:
    return upper_bound_plan(_SOURCE, replace(_SETTINGS, **changes), 1, 2, budget)


def test_a_plan_over_its_budget_names_the_batch_that_fits() -> None:
    most = _plan(8 << 30).total
    assert _sure_batch(_plan(8 << 30)) == 0
    batch = _sure_batch(_plan(most - 50_000_000))
    assert 0 < batch < 20_000
    check_before(_SOURCE, _SETTINGS, False, 1, 2, most - 50_000_000)
    _plan(most - 50_000_000, batch_size=batch).check()
    assert _sure_batch(_plan(most - 50_000_000, batch_size=20_000)) == 0
    assert _sure_batch(_plan(most // 10)) == 0


def test_virtual_shards_share_a_worker() -> None:
    settings = replace(_SETTINGS, batch_size=500, basis=Landmarks(500))
    plain = _here(2, _SOURCE, replace(settings, memory_budget=8 << 30))
    sharded = _here(2, _SOURCE, replace(settings, memory_budget=8 << 30, virtual_shards=8))
    assert (plain.ranks, sharded.ranks) == ("one rank of 2", "one virtual rank of 8, 4 in a worker")
    assert sharded.plan.budget == (plain.plan.budget + 3 * INTERPRETER) // 4  # which they share
    assert sharded.plan.sizes is not None
    assert sharded.plan.sizes.ranks == 8
    with pytest.raises(MemoryBudgetError):  # a fit refuses it as well: each of them has a share of the worker
        _here(0, _SOURCE, replace(settings, memory_budget=plain.plan.total, virtual_shards=16))
    assert _here(4, _SOURCE, replace(settings, virtual_shards=2)).ranks == "one virtual rank of 2, 1 in a worker"


@pytest.mark.long
@pytest.mark.cluster
def test_a_plan_for_a_cluster_has_the_room_that_a_fit_there_has(
    client2: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", X=_X, y=_X[:, 0])
    daskkern.ingest([str(tmp_path / "d.npz")], tmp_path / "d.zarr", task="regression")
    source = StoreSource.at(str(tmp_path / "d.zarr"))
    settings = replace(_SETTINGS, batch_size=500, basis=Landmarks(200))
    sharded = _on_cluster(client2, source, replace(settings, memory_budget=6 << 30, virtual_shards=6))
    assert sharded.ranks == "one virtual rank of 6, 3 in a worker"
    assert sharded.plan.budget == ((6 << 30) + 2 * INTERPRETER) // 3
    assert sharded.rates is not None
    monkeypatch.setattr(worker_resources, "available_memory", lambda: 20_000_000)  # of a host that others use as well
    refused: list[str] = []
    for ask in (lambda: _on_cluster(client2, source, settings), lambda: fit(source, settings, client=client2)):
        with pytest.raises(MemoryBudgetError) as refusal:
            ask()
        refused.append(str(refusal.value))
    assert refused[0] == refused[1]
