"""Automatic batches and kept blocks on GPUs follow from the memory of the devices; on CPUs nothing does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskkern.basis import Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.errors import StoreError
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, Falkon
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.device_choices import batch_elements, with_batches_of_devices
from daskkern.training.planning.memory_plan import KEEP_LIMIT, plan_memory
from daskkern.training.planning.planner import upper_bound_plan
from daskkern.training.planning.resources import WorkerResources
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import BATCH_ELEMENTS, FitSettings
from tests.support.plans import CENTRES

GIB = 1 << 30
H100 = WorkerResources(8, 200 * GIB, 63 * GIB, 0, device_size=79 * GIB)
SETTINGS = FitSettings(Gaussian(1.0), Squared(), Landmarks(16_000), EigenPro(), device="gpu")


@pytest.fixture(scope="module")
def source() -> ArraySource:
    X = np.zeros((40_000, 3), np.float32)
    info = SourceInfo(len(X), 3, "regression", None, Scaling(), None, 1, True)
    return ArraySource(X, X[:, 0], None, info)


@pytest.mark.parametrize(
    ("gib", "dtype", "elements"),
    [(4, "float32", 1 << 26), (24, "float32", 1 << 28), (79, "float32", 1 << 30), (79, "float64", 1 << 29)],
)
def test_a_batch_takes_at_most_a_16th_of_a_device(gib: int, dtype: str, elements: int) -> None:
    assert batch_elements(gib * GIB, dtype) == elements
    assert batch_elements(gib * GIB * 101 // 100, dtype) == elements  # devices of a kind have one limit


def test_the_smallest_device_decides(source: ArraySource) -> None:
    small = replace(H100, device_budget=16 * GIB, device_size=24 * GIB)
    assert with_batches_of_devices(SETTINGS, source, [H100]).batch_limit(262_144) == 4096
    assert with_batches_of_devices(SETTINGS, source, [H100, small]).batch_limit(262_144) == 1024
    assert with_batches_of_devices(SETTINGS, source, [H100] * 8).batch_limit(262_144) == 4096


def test_batches_of_passes_over_all_rows_follow_from_the_devices(source: ArraySource) -> None:
    settings = replace(SETTINGS, basis=Landmarks(39_000), solver=Falkon())

    def batch(chosen: FitSettings) -> int:
        sizes = upper_bound_plan(source, chosen, 1, H100.threads, H100.budget, H100.device_budget or 0).sizes
        assert sizes is not None
        return sizes.m

    few, many = batch(settings), batch(with_batches_of_devices(settings, source, [H100]))  # of whole chunks
    assert few <= (1 << 27) // 39_000 or few == source.open("float32").chunk_rows
    assert 4 * few < many <= (1 << 30) // 39_000


@pytest.mark.parametrize(
    ("changed", "resources"),
    [
        ({}, [replace(H100, device_budget=None, device_size=0)]),
        ({}, [H100, replace(H100, device_budget=None, device_size=0)]),
        ({"virtual_shards": 4}, [H100]),
        ({"batch_size": 100}, [H100]),
        ({"batch_elements": 1 << 27}, [H100]),
    ],
    ids=["cpu", "one on a cpu", "virtual", "given", "decided"],
)
def test_otherwise_nothing_changes(
    source: ArraySource, changed: dict[str, int], resources: list[WorkerResources]
) -> None:
    settings = replace(SETTINGS, **changed)
    assert with_batches_of_devices(settings, source, resources) is settings


def test_a_device_with_little_free_memory_takes_smaller_batches(source: ArraySource) -> None:
    limits = [
        with_batches_of_devices(SETTINGS, source, [replace(H100, device_budget=free)]).batch_elements
        for free in (63 * GIB, 5 * GIB // 2, GIB // 2)
    ]
    assert limits[0] == 1 << 30
    assert limits[2] == BATCH_ELEMENTS
    assert limits[0] > limits[1] > limits[2]


def test_the_summary_of_settings_changes_only_where_batches_do() -> None:
    summary = SETTINGS.summary()
    assert replace(SETTINGS, batch_elements=BATCH_ELEMENTS).summary() == summary
    assert replace(SETTINGS, batch_elements=1 << 30).summary() == {**summary, "batch_elements": 1 << 30}


def test_a_resumed_fit_has_the_batches_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3)).astype(np.float32)
    source = ArraySource(X, X[:, 0], None, SourceInfo(len(X), 3, "regression", None, Scaling(), None, 1, True))
    settings = replace(SETTINGS, basis=Landmarks(40), device="cpu", max_epochs=1)
    limits = []
    real = FitSettings.batch_limit

    def watched(self: FitSettings, n_columns: int) -> int:
        limits.append(self.batch_elements)
        return real(self, n_columns)

    monkeypatch.setattr(FitSettings, "batch_limit", watched)
    policy = CheckpointPolicy(checkpoint=str(tmp_path / "c.zarr"), commit_s=0.0, checkpoint_s=0.0)
    fit(source, replace(settings, batch_elements=1 << 30), policy=policy)
    assert set(limits) == {1 << 30}
    resumed = fit(source, replace(settings, max_epochs=2), policy=replace(policy, resume=True))
    assert set(limits) == {1 << 30}
    assert [epoch.epoch for epoch in resumed.history] == [1, 2]
    with pytest.raises(StoreError, match="settings seed was 0 and is 1"):
        fit(source, replace(settings, seed=1), policy=replace(policy, resume=True))


def test_a_gpu_keeps_more_blocks_than_a_host_that_others_share() -> None:
    sizes = replace(CENTRES, n=400_000, p=4_000)
    wanted = sizes.blocks_bytes
    assert wanted > KEEP_LIMIT
    assert plan_memory(sizes, 1 << 40).kept == 0
    assert plan_memory(replace(sizes, device="gpu"), 1 << 40, 4 * wanted).kept == wanted
    assert plan_memory(replace(sizes, device="gpu"), 1 << 40, wanted).kept == 0
